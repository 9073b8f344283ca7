"""no_copies(): what would have been copied raises, everywhere and only inside."""

import threading

import pytest

import spillway
from spillway import merge
from spillway.debug import UnexpectedCopyError, no_copies

APART = [bytearray(b"abc"), bytearray(b"defg")]


def test_a_copy_raises_inside_and_is_made_outside():
    before = spillway.stats()["copies"]["merged"]
    with spillway.debug.no_copies():
        with pytest.raises(
            UnexpectedCopyError, match=r"^7 bytes .* 2 frames$"
        ) as caught:
            merge(APART, copy="if_needed")
    assert "part 1 does not follow part 0" in str(caught.value.__context__)
    assert spillway.stats()["copies"]["merged"] == before
    assert merge(APART, copy="if_needed") == b"abcdefg"


def test_what_needs_no_copy_goes_on():
    whole = memoryview(b"abcdef")
    with no_copies():
        assert merge([whole[:2], b"", whole[2:]], copy="if_needed") == b"abcdef"
        with pytest.raises(ValueError):
            merge(APART)


def test_it_ends_with_the_outermost():
    with no_copies():
        with no_copies():
            pass
        with pytest.raises(UnexpectedCopyError):
            merge(APART, copy="if_needed")
    with pytest.raises(ZeroDivisionError):
        with no_copies():
            _ = 1 / 0
    assert merge(APART, copy="if_needed") == b"abcdefg"


def test_it_holds_in_every_thread():
    raised = []

    def copy():
        try:
            merge(APART, copy="if_needed")
        except UnexpectedCopyError as error:
            raised.append(error)

    with no_copies():
        thread = threading.Thread(target=copy)
        thread.start()
        thread.join()
    assert len(raised) == 1


def test_it_is_none_of_the_errors_that_dask_answers_by_a_copy():
    assert not issubclass(UnexpectedCopyError, (ValueError, TypeError))
