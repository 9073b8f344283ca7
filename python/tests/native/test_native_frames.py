"""Frames in and out: what goes in comes out, lies where it should, and is copied only
where it must be."""

import array
import ctypes
import itertools
import mmap
import os
import pickle
import socket
import struct

import pytest
from loopback import (
    HOSTS,
    budget,
    connected,
    transfer,
    with_raw_peer,
)
from samples import KIB, MIB, some_bytes, value

from spillway import _native


def address(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0


def raw(frame):
    """The bytes that a frame stands for, by Python's own means."""
    view = memoryview(frame)
    if view.contiguous and view.nbytes:
        return bytes(pickle.PickleBuffer(frame).raw())
    return view.tobytes()


def mapped(size):
    memory = mmap.mmap(-1, size)
    memory[:] = some_bytes(size)
    return memory


def matrix(order):
    numpy = pytest.importorskip("numpy")
    return numpy.asarray(numpy.arange(300_000.0).reshape(600, 500), order=order)


MESSAGES = {
    "one frame": lambda: [b"x"],
    "one empty frame": lambda: [b""],
    "empty frames only": lambda: [b"", bytearray(), memoryview(b""), b""],
    "empty frames between": lambda: [b"head", b"", some_bytes(5000), b"", b"tail", b""],
    "5,000 tiny frames": lambda: [b"%d" % i for i in range(5000)],
    "200,000 tiny frames": lambda: [b"head"] + [b"ab", b"cde"] * 100_000,
    "5,000 frames of all kinds": lambda: [
        bytearray(some_bytes(i)) if i % 3 else some_bytes(i) for i in range(5000)
    ],
    "large first frame": lambda: [some_bytes(MIB), b"tail"],
    "100 MB": lambda: [b"head", bytearray(100_000_000)],
    "several large": lambda: [b"h", *(some_bytes(n * MIB + n) for n in range(1, 6))],
    "read-only view": lambda: [b"h", memoryview(some_bytes(100_000))],
    "strided view": lambda: [b"h", memoryview(some_bytes(100_000))[::2]],
    "backward view": lambda: [b"h", memoryview(some_bytes(100_000))[::-1]],
    "typed view": lambda: [b"h", memoryview(some_bytes(80_000)).cast("d")],
    "matrix view": lambda: [b"h", memoryview(some_bytes(800)).cast("d", [10, 10])],
    "array": lambda: [b"h", array.array("d", range(10_000))],
    "ctypes array": lambda: [b"h", (ctypes.c_int32 * 30_000)(*range(30_000))],
    "mmap": lambda: [b"h", mapped(MIB)],
    "pickle buffer": lambda: [b"h", pickle.PickleBuffer(bytearray(70_000))],
    "C matrix": lambda: [b"h", matrix("C")],
    "Fortran matrix": lambda: [b"h", matrix("F")],
    "transposed slice": lambda: [b"h", matrix("C").T[3:, ::2]],
    "read-only matrix": lambda: [b"h", memoryview(matrix("C")).toreadonly()],
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("shape", MESSAGES)
def test_round_trip(host, shape):
    frames = MESSAGES[shape]()
    expected = [raw(frame) for frame in frames]
    near, far = connected(host)
    there = transfer(near, far, frames)
    assert list(map(bytes, there)) == expected
    back = transfer(far, near, there)
    assert list(map(bytes, back)) == expected
    assert all(not view.readonly and view.format == "B" for view in back[1:])


@pytest.mark.skipif(
    not os.environ.get("SPILLWAY_TEST_HUGE"),
    reason="needs 9 GB of memory; set SPILLWAY_TEST_HUGE=1",
)
def test_frame_over_4_gib(pair):
    frame = bytearray((4 << 30) + 12345)
    frame[-8:] = b"the end."
    _, received = transfer(*pair, [b"head", frame])
    assert len(received) == len(frame)
    assert received[-8:] == b"the end."


def test_send_says_what_goes_over_the_wire():
    end, peer = with_raw_peer()
    with peer:
        size = end.connection.send([b"abc", b"", bytearray(b"de")])
        prelude = struct.pack("<QQQQ", 3, 3, 0, 2)
        assert size == 8 + len(prelude) + 5
        assert peer.recv(size, socket.MSG_WAITALL)[8:] == prelude + b"abcde"


def test_pickles_that_come_as_views_do_not_end_the_first_segment():
    """Dask hands on pickles as views of bytes; a stock reader then merges the shards of
    the buffer behind them without a copy, since all are in the first segment."""
    memory = bytearray(some_bytes(8 * MIB))
    shards = [memoryview(memory)[: 4 * MIB], memoryview(memory)[4 * MIB :]]
    frames = [b"message", b"header", memoryview(b"pickle"), *shards, bytearray(5 * KIB)]
    end, peer = with_raw_peer()
    with peer:
        end.connection.send(frames)
        (first_segment,) = struct.unpack("<Q", peer.recv(8, socket.MSG_WAITALL))
        end.connection.close()
    in_first = sum(len(frame) for frame in frames[:-1])
    assert first_segment == 8 + 8 * len(frames) + in_first


@pytest.mark.parametrize("size, kind", [(64 * KIB, bytes), (64 * KIB + 1, memoryview)])
def test_only_a_small_first_frame_is_bytes(pair, size, kind):
    before = _native.figures()["copies"]["metadata"]
    head, tail = transfer(*pair, [some_bytes(size), b"tail"])
    assert type(head) is kind
    assert type(tail) is memoryview
    after = _native.figures()["copies"]["metadata"]
    copied = size if kind is bytes else 0
    assert after["bytes"] - before["bytes"] == copied
    assert after["count"] - before["count"] == bool(copied)


@pytest.mark.parametrize("size", [4 * KIB, 100_001, 3 * MIB])
def test_every_large_frame_is_aligned_and_has_a_life_of_its_own(pair, size):
    before = budget()["held"]
    _, *views = transfer(*pair, [b"head", *[some_bytes(size)] * 5])
    assert [address(view) % 64 for view in views] == [0] * 5
    assert len({id(view.obj) for view in views}) == 5
    assert budget()["held"] - before == 5 * size
    del views[1:4]
    assert budget()["held"] - before == 2 * size
    views[0][:3] = b"new"
    assert views[0][:3] == b"new"


def test_shards_of_one_buffer_are_one_object_side_by_side(pair):
    sizes = [[70_000, 70_000, 10], [70_000, 70_000, 10], [300], [0], [50, 40]]
    buffers = [[some_bytes(size) for size in shards] for shards in sizes]
    message = transfer(*pair, [b"head", *value(*buffers), *value([b"other"])])
    frames = iter(message[2:])
    views = [[next(frames) for _ in shards] for shards in sizes]
    for shards, sent in zip(views, buffers, strict=True):
        assert b"".join(shards) == b"".join(sent)
        assert len({id(shard.obj) for shard in shards}) == 1
        for left, right in itertools.pairwise(shards):
            assert address(right) - address(left) == len(left)
        assert address(shards[0]) % 64 == 0
    assert views[0][0].obj is not views[1][0].obj


def test_an_empty_frame_pins_nothing(pair):
    before = budget()["held"]
    message = transfer(*pair, [b"h", some_bytes(MIB), b""])
    empty = message.pop()
    message.clear()
    assert budget()["held"] == before
    assert len(empty) == 0
    assert not empty.readonly


def test_send_takes_all_frames_or_none(pair):
    near, far = pair
    good, locked = bytearray(10), memoryview(bytearray(10))
    locked.release()
    for bad in (1, "text", None, locked):
        with pytest.raises((TypeError, ValueError)):
            near.connection.send([b"head", good, bad])
        good.append(1)
    with pytest.raises(TypeError, match="list"):
        near.connection.send((b"head",))
    with pytest.raises(ValueError, match="frame"):
        near.connection.send([])
    assert near.connection.queued_bytes() == 0
    assert transfer(near, far, [b"still works"]) == [b"still works"]


def test_noncontiguous_frames_are_copied_once_and_counted(pair):
    frame = memoryview(some_bytes(200_000))[::2]
    before = _native.figures()["copies"]["noncontiguous"]
    transfer(*pair, [b"head", frame])
    after = _native.figures()["copies"]["noncontiguous"]
    assert after["count"] - before["count"] == 1
    assert after["bytes"] - before["bytes"] == 100_000
