"""tools/check_headers.py finds what it says that it finds."""

import check_headers
import pytest

WHOLE = """
/* What there is of it. */
#ifndef X_H
typedef struct spw_x spw_x;

/* Make one.
 * Returns: an x. Thread: any. Errors: NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status spw_x_create(int size, spw_x **ret_x,
                                                 spw_error *error);
/* Takes: x (NULL allowed). Thread: any. */
SPW_EXPORT void spw_x_free(spw_x *x);

/* Returns: how large it is. Thread: any. */
SPW_EXPORT int spw_x_size(const spw_x *x);
/* What a status is called. Returns: text. Thread: any. */
SPW_EXPORT const char *spw_x_name(spw_status status);
static inline int not_exported(void) { return 1; }
#endif
"""


@pytest.fixture
def faults(tmp_path):
    """What is found in a header of that text."""

    def check(text):
        header = tmp_path / "include/spillway/x.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text)
        return check_headers.check(tmp_path)

    return check


def test_a_header_that_says_everything_passes(faults):
    assert faults(WHOLE) == []


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [
        (" Errors: NO_MEMORY.", "spw_x_create", "Errors"),
        ("Returns: an x. ", "spw_x_create", "Returns"),
        ("Takes: x (NULL allowed). ", "spw_x_free", "Takes"),
        ("Returns: how large it is. ", "spw_x_size", "Returns"),
        ("Returns: text. ", "spw_x_name", "Returns"),
        (" Thread: any. Errors", "spw_x_create", "Thread"),
    ],
)
def test_a_word_that_is_missing_is_found(faults, text, name, word):
    without = WHOLE.replace(text, "Errors" if text.endswith("Errors") else "", 1)
    assert without != WHOLE
    assert faults(without) == [f"include/spillway/x.h: {name} does not say {word}"]


def test_a_comment_counts_for_one_declaration(faults):
    without = WHOLE.replace("/* Returns: how large it is. Thread: any. */\n", "")
    assert faults(without) == [
        "include/spillway/x.h: spw_x_size has no comment of its own"
    ]


def test_what_cannot_be_read_is_not_passed_over(faults):
    odd = WHOLE.replace("int spw_x_size", "int x_size")
    assert faults(odd) == [
        "include/spillway/x.h: 4 declarations, of which 3 can be read"
    ]


def test_our_own_headers_pass():
    assert check_headers.check(check_headers.Path(__file__).parents[2]) == []
