"""What Dask calls instead of its own: the same results, more often without a copy."""

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest
from distributed.protocol import utils as dask

import spillway
from spillway.dask.merge_parts import host_array_from_buffers, merge_memoryviews


def address(view):
    return numpy.asarray(view).__array_interface__["data"][0]


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    st.sampled_from(["B", "b", "h", "d"]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=6),
)
def test_what_dask_merges_is_merged_to_the_same(kind, is_writeable, cuts):
    memory = bytearray(range(128))
    whole = memoryview(memory if is_writeable else bytes(memory)).cast(kind)
    parts = [whole[start : start + size] for start, size in cuts]
    try:
        expected = dask.merge_memoryviews(parts)
    except ValueError:
        if any(part.nbytes for part in parts):
            with pytest.raises(ValueError):
                merge_memoryviews(parts)
        return
    merged = merge_memoryviews(parts)
    assert merged == expected
    assert merged.format == expected.format or not parts
    assert merged.readonly == expected.readonly
    if merged.nbytes:
        assert address(merged) == address(expected)


def test_one_part_is_given_back_as_it_is():
    part = memoryview(bytearray(12)).cast("i", [3])
    assert merge_memoryviews([part]) is part
    assert merge_memoryviews([b"as it is"]) == b"as it is"


def test_none_are_an_empty_view():
    assert merge_memoryviews([]) == b""
    assert not merge_memoryviews([]).readonly


def test_an_empty_part_of_another_kind_is_no_reason_to_copy():
    whole = memoryview(bytearray(b"abcdef"))
    merged = merge_memoryviews([memoryview(b"").cast("d"), whole[:2], b"", whole[2:]])
    assert merged == b"abcdef"
    assert merged.format == "B"


def test_what_dask_could_not_merge_without_a_copy():
    records = numpy.zeros(4, "i4,>f4")
    parts = [memoryview(records)[:1], memoryview(records)[1:]]
    with pytest.raises(ValueError):
        dask.merge_memoryviews(parts)
    # No view can be cast to that format, so it is bytes.
    assert address(spillway.merge(parts)) == address(records)


def test_two_parts_that_may_not_be_written_to_are_merged_as_such():
    whole = memoryview(bytearray(b"abcdef"))
    assert merge_memoryviews([whole[:2].toreadonly(), whole[2:]]).readonly


@pytest.mark.parametrize(
    "parts", [[b"abc", b"def"], [bytearray(3), memoryview(b"def")]]
)
def test_a_copy_is_writeable_and_aligned(parts):
    with pytest.raises(ValueError):
        merge_memoryviews(parts)
    joined = host_array_from_buffers(iter(parts))
    assert joined == dask.host_array_from_buffers(parts)
    assert not joined.readonly
    assert address(joined) % 64 == 0


def test_a_copy_can_be_forbidden():
    with spillway.debug.no_copies():
        with pytest.raises(spillway.debug.UnexpectedCopyError):
            host_array_from_buffers([b"abc", b"def"])
