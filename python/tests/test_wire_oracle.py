"""The oracle against Dask's own reader and writer: it is no use as a judge of the
library unless it is right about stock."""

import struct

import hypothesis
import hypothesis.strategies as st
import msgpack
import numpy
import pytest
from distributed.comm.tcp import _add_frames_header
from distributed.protocol import dumps, to_serialize
from distributed.protocol.utils import unpack_frames

import wire_oracle

some_frames = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


@hypothesis.given(some_frames)
def test_stock_reads_what_it_writes(frames):
    data = wire_oracle.write(frames)
    (first,) = struct.unpack_from("<Q", data)
    assert first == len(data) - 8
    assert [bytes(frame) for frame in unpack_frames(data[8:])] == frames


@hypothesis.given(some_frames, st.data())
def test_reads_what_it_writes(frames, data):
    first = data.draw(st.integers(0, len(frames)))
    message, rest = wire_oracle.read_one(wire_oracle.write(frames, first) + b"more")
    assert message.frames == frames
    assert rest == b"more"
    inside = sum(map(len, frames[: message.first_frames]))
    assert inside == sum(map(len, frames[:first]))


def stock_frames(message, shard=None):
    """As Dask makes them for a peer on the same host: nothing is compressed."""
    return list(dumps(message, context={"compression": None}, frame_split_size=shard))


MESSAGES = {
    "plain": {"op": "identity", "n": [1, 2, 3]},
    "array": {"x": to_serialize(numpy.arange(10_000))},
    "two arrays": [to_serialize(numpy.arange(9_000)), to_serialize(numpy.ones(7_000))],
    "two in a value": {"x": to_serialize({"a": numpy.ones(900), "b": numpy.ones(9)})},
    "large pickle": to_serialize(["x" * 100_000, numpy.ones(100)]),
    "empty array": {"x": to_serialize(numpy.ones(0)), "y": to_serialize(b"y")},
}


@pytest.mark.parametrize("shard", [1_000, 1 << 26])
@pytest.mark.parametrize("name", MESSAGES)
def test_reads_what_stock_writes(name, shard):
    frames = stock_frames(MESSAGES[name], shard)
    pieces, _, total = _add_frames_header(frames)
    data = b"".join(map(bytes, pieces))
    assert len(data) == total
    (message,) = wire_oracle.read_all(data)
    assert message.frames == [bytes(frame) for frame in frames]
    values = wire_oracle.values(message.frames)
    assert sum(value.end - value.index for value in values) == len(frames) - 1


def test_finds_the_shards_of_each_buffer():
    message = [to_serialize(numpy.zeros(1_000, "u1")), to_serialize(b"x" * 100)]
    first, second = wire_oracle.values(stock_frames(message, 300))
    assert first.buffers == [range(2, 6)]
    assert second.buffers == [range(7, 8)]


@pytest.mark.parametrize("shard", [1_000, 1 << 26])
@pytest.mark.parametrize("name", [m for m in MESSAGES if m != "empty array"])
def test_expects_the_first_segment_that_stock_writes(name, shard):
    pieces, _, _ = _add_frames_header(stock_frames(MESSAGES[name], shard))
    (message,) = wire_oracle.read_all(b"".join(map(bytes, pieces)))
    assert message.first_frames == wire_oracle.first_frames_expected(message.frames)


def test_boundaries_are_where_numbers_and_frames_end():
    frames = [b"abc", b"", b"defgh"]
    ends = wire_oracle.boundaries(frames)
    assert ends == [0, 8, 16, 24, 32, 40, 43, 48]
    assert ends[-1] == len(wire_oracle.write(frames))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack("<QQ", 8, 0), "without frames"),
        (struct.pack("<QQQ", 17, 1, 3) + b"abc", "inside a frame"),
        (struct.pack("<QQQ", 8, 1, 3) + b"abc", "inside a frame"),
        (struct.pack("<QQQ", 19, 1, 3) + b"ab", "2 of 3 bytes"),
        (struct.pack("<QQQ", 24, 2, 3), "inside the number"),
        (b"GET / HT", "inside the number"),
    ],
)
def test_refuses(data, reason):
    with pytest.raises(wire_oracle.Malformed, match=reason):
        wire_oracle.read_one(data)


@pytest.mark.parametrize(
    ("index", "header", "reason"),
    [
        (2, {"num-sub-frames": 0}, "expected at 1"),
        (1, {"num-sub-frames": 3}, "end at frame 5 of 4"),
        (1, {"num-sub-frames": 1}, "end at frame 3 of 4"),
        (
            1,
            {
                "num-sub-frames": 2,
                "split-num-sub-frames": [1, 1],
                "split-offsets": [0, 0],
            },
            "shards",
        ),
    ],
)
def test_refuses_values_that_do_not_follow_each_other(index, header, reason):
    frames = [msgpack.packb({"__Serialized__": index}), *[msgpack.packb(header)] * 3]
    with pytest.raises(wire_oracle.Malformed, match=reason):
        wire_oracle.values(frames)


def placed(total, cuts, frames):
    """Frames that lie in one aligned block, at the given offsets."""
    block = numpy.zeros(total + 64, "u1")
    shift = -block.ctypes.data % 64
    view = block.data[shift : shift + total]
    return [*frames, *(view[a:b] for a, b in cuts)]


def two_shards():
    header = {
        "num-sub-frames": 2,
        "split-num-sub-frames": [2],
        "split-offsets": [0],
    }
    return [msgpack.packb({"__Serialized__": 1}), msgpack.packb(header)]


def two_buffers():
    frames = [msgpack.packb({"__Serialized__": 1})]
    return [*frames, msgpack.packb({"num-sub-frames": 2})]


def test_accepts_shards_side_by_side():
    frames = placed(9_000, [(0, 6_000), (6_000, 9_000)], two_shards())
    assert wire_oracle.check_placement(frames) == 1


@pytest.mark.parametrize(
    ("cuts", "headers", "reason"),
    [
        ([(0, 6_000), (6_400, 9_000)], two_shards, "apart"),
        ([(1, 6_000), (6_000, 9_000)], two_shards, "at 0x"),
        ([(0, 6_400), (6_400, 9_000)], two_buffers, "share"),
        ([(0, 10), (10, 20)], two_buffers, "at 0x"),
    ],
)
def test_refuses_a_wrong_placement(cuts, headers, reason):
    with pytest.raises(AssertionError, match=reason):
        wire_oracle.check_placement(placed(9_000, cuts, headers()))
