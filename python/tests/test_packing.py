"""pack_frames() and unpack_frames(): as Dask's, and right where those are not."""

import array
import doctest
import inspect
import struct
import typing

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest
from distributed.protocol import utils as dask

import spillway.dask
import spillway.merging
from spillway import pack_frames, unpack_frames

frame_lists = st.lists(st.binary(max_size=20), max_size=12)


def packed(count, *lengths, rest=b""):
    return struct.pack(f"<{1 + len(lengths)}Q", count, *lengths) + rest


@hypothesis.given(frame_lists)
def test_the_bytes_are_dasks(frames):
    assert pack_frames(frames) == dask.pack_frames(frames)
    assert type(pack_frames(frames)) is bytes


@hypothesis.given(frame_lists, frame_lists)
def test_what_was_packed_comes_back(frames, others):
    together = pack_frames(frames) + pack_frames(others)
    assert unpack_frames(together) == frames
    *first, rest = unpack_frames(together, remainder=True)
    *second, nothing = unpack_frames(rest, remainder=True)
    assert (first, second, nothing) == (frames, others, b"")


@hypothesis.given(frame_lists, st.data())
def test_what_ends_between_two_frames(frames, data):
    whole = pack_frames(frames)
    kept = data.draw(st.integers(0, len(frames)))
    short = pack_frames(frames)[: len(whole) - sum(map(len, frames[kept:]))]
    for remainder in (False, True):
        ours = unpack_frames(short, partial=True, remainder=remainder)
        theirs = dask.unpack_frames(short, partial=True, remainder=remainder)
        assert ours == (theirs[0], list(theirs[1]))
    if sum(map(len, frames[kept:])):
        with pytest.raises(ValueError):
            unpack_frames(short)


@hypothesis.given(st.binary(max_size=40))
def test_garbage_is_refused_or_read_as_dask_reads_it(garbage):
    try:
        expected = dask.unpack_frames(garbage)
    except (struct.error, AssertionError, OverflowError, MemoryError):
        with pytest.raises(ValueError):
            unpack_frames(garbage)
    else:
        try:
            assert unpack_frames(garbage) == expected
        except ValueError:
            # Dask looks at the end of the last frame alone, and its slices stop at the
            # end of the bytes.
            assert sum(map(len, expected)) < sum(dask_lengths(garbage))


def dask_lengths(data):
    (count,) = struct.unpack_from("<Q", data)
    return struct.unpack_from(f"<{count}Q", data, 8)


FRAMES = {
    "typed view": lambda: memoryview(numpy.arange(5.0)),
    "matrix": lambda: numpy.arange(6, dtype="i2").reshape(2, 3),
    "Fortran matrix": lambda: numpy.asfortranarray(numpy.ones((2, 3))),
    "strided view": lambda: memoryview(b"abcdefgh")[::-2],
    "array": lambda: array.array("q", [1, 2]),
    "number": lambda: memoryview(numpy.array(3.0)),
    "no items": lambda: memoryview(numpy.ones((2, 0))),
    "read-only": lambda: memoryview(bytearray(b"abc")).toreadonly(),
    "records": lambda: numpy.zeros(3, "i4,>f4"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_lengths_are_in_bytes(kind):
    frames = [b"x", FRAMES[kind](), b"", b"y"]
    expected = [memoryview(frame).tobytes() for frame in frames]
    assert list(map(bytes, unpack_frames(pack_frames(frames)))) == expected


@pytest.mark.parametrize("kind", ["B", "b", "c", "Q", "d"])
def test_packed_frames_may_be_of_any_format(kind):
    whole = pack_frames([b"12345678", b"", b"abcdefgh"])
    typed = memoryview(bytearray(whole)).cast(kind)
    assert unpack_frames(typed) == [b"12345678", b"", b"abcdefgh"]
    assert unpack_frames(typed, remainder=True)[-1] == b""


def test_frames_are_views():
    whole = bytearray(pack_frames([b"abc", b"defg"]))
    frames = unpack_frames(whole)
    frames[1][:2] = b"DE"
    assert whole.endswith(b"abcDEfg")
    assert all(frame.readonly for frame in unpack_frames(bytes(whole)))


BAD = {
    "nothing": b"",
    "half a count": b"\1\0\0\0",
    "lengths that are not there": packed(3, 1, 2),
    "a vast count": packed(2**64 - 1),
    "a count that wraps around": packed(2**61),
    "a frame that is not there": packed(1, 5),
    "a frame that ends early": packed(2, 3, 3, rest=b"abcde"),
    "a vast frame": packed(1, 2**64 - 1, rest=b"abc"),
    "lengths that wrap around": packed(2, 2**64 - 1, 2**64 - 1, rest=b"abc"),
    "a vast frame before an empty one": packed(2, 2**63, 0, rest=b"abc"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("partial", [False, True])
def test_what_is_malformed_is_refused(what, partial):
    if partial and what == "a frame that is not there":
        assert unpack_frames(BAD[what], partial=True) == ([], [5])
        return
    with pytest.raises(ValueError):
        unpack_frames(BAD[what], partial=partial)


def test_strides_are_refused():
    with pytest.raises(ValueError, match="not contiguous"):
        unpack_frames(memoryview(pack_frames([b"abc"]))[::-1])


def test_what_is_no_buffer_is_refused():
    with pytest.raises(TypeError):
        pack_frames([b"abc", "text"])
    with pytest.raises(TypeError):
        unpack_frames("text")


@pytest.mark.parametrize(
    "module", [spillway.packing, spillway.merging, spillway.dask], ids=repr
)
def test_the_examples_of_what_is_public(module):
    assert doctest.testmod(module).attempted
    assert not doctest.testmod(module).failed


PUBLIC = [
    getattr(module, name)
    for module in (spillway, spillway.dask)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
]


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__name__)
def test_type_hints_can_be_read_on_every_python(function):
    hints = typing.get_type_hints(function)
    assert hints.keys() == {*inspect.signature(function).parameters, "return"}
