"""What a script answers, and when two answers are the same."""

import pytest

from spillway.compare.answer import KEPT_BYTES, LONGEST_LINE, Answer


def answer(*pieces):
    made = Answer()
    for piece in pieces:
        made.feed(piece)
    made.end()
    return made


@pytest.mark.parametrize(
    ("pieces", "digest"),
    [
        ([b"took 3 s\ndigest: 7\n"], b"digest: 7"),
        ([b"digest: 7\ndigest: 8\nbye\n"], b"digest: 8"),
        ([b"dig", b"est: ", b"9"], b"digest: 9"),
        ([b"digest: 7\r\n"], b"digest: 7"),
        ([b"the digest: 7\n"], None),
        ([b"digest:" + b"x" * LONGEST_LINE + b"\n"], None),
        ([b"digest: 1\n" + b"x" * (LONGEST_LINE + 1), b"\ndigest: 2"], b"digest: 2"),
    ],
)
def test_the_last_digest_line_counts(pieces, digest):
    assert answer(*pieces).digest == digest


def test_answers_with_one_digest_are_the_same_whatever_else_was_printed():
    one, other = answer(b"3 s\ndigest: 7\n"), answer(b"digest: 7\n4 s\n")
    assert one.difference(other) is None


def test_answers_with_two_digests_differ():
    said = answer(b"digest: 7\n").difference(answer(b"digest: 8\n"))
    assert said == "'digest: 7' and 'digest: 8'"


def test_a_digest_is_not_the_same_as_none():
    one, other = answer(b"digest: 7\n"), answer(b"7\n")
    assert "the other did not" in one.difference(other)
    assert "the other did not" in other.difference(one)


def test_without_a_digest_all_of_the_output_counts():
    assert answer(b"a\nb\n").difference(answer(b"a\n", b"b\n")) is None
    said = answer(b"a\nb\n").difference(answer(b"a\nc\n"))
    assert "'b' and 'c'" in said and "prints a line 'digest: ...'" in said
    assert "in it 2 lines and 1 lines" in answer(b"a\nb\n").difference(answer(b"a\n"))


def test_what_differs_further_down_than_is_kept_differs():
    same = b"x" * KEPT_BYTES
    assert answer(same, b"a").difference(answer(same, b"b")) is not None
    assert len(answer(same, same).beginning) == KEPT_BYTES


def test_no_output_is_no_answer():
    assert answer().is_empty and not answer(b"\n").is_empty
