"""Peers that go away, or were never peers, at every point of a message. Whatever they
do, the reader gets an error, and neither memory nor a comm to use again is left."""

import asyncio
import itertools

import msgpack
import numpy
import pytest
from distributed.comm.core import CommClosedError
from distributed.protocol import to_serialize

import wire_oracle
from comm_pairs import OURS, STOCK, charged, comms, exchanged, soon, with_raw_peer
from message_shapes import MIB, noise, table

pytestmark = pytest.mark.usefixtures("nothing_is_left")

SMALL = wire_oracle.write_plain({"op": "x", "data": b"d" * 250})


def with_values(*buffers, shards=1):
    """The frames of a message with an array for each buffer, cut into shards."""
    marks = []
    frames = [b""]
    for buffer in buffers:
        marks.append({"__Serialized__": len(frames)})
        size = -(-len(buffer) // shards)
        cut = [buffer[i * size : (i + 1) * size] for i in range(shards)]
        header = {
            "serializer": "dask",
            "type": None,
            "num-sub-frames": shards,
            "split-num-sub-frames": (shards,),
            "split-offsets": (0,),
            "compression": (None,) * shards,
            **numpy_header(len(buffer)),
        }
        frames += [msgpack.packb(header), *cut]
    frames[0] = msgpack.packb(marks)
    return frames


def numpy_header(size):
    """What Dask's own serialiser writes for an array of bytes."""
    from distributed.protocol.serialize import serialize

    header, _ = serialize(numpy.zeros(size, "u1"))
    return header


LARGE_FRAMES = with_values(bytes(noise(200_000)), bytes(noise(90_000)), shards=3)
LARGE = wire_oracle.write(LARGE_FRAMES, 5)

ENDS = ["close", "reset"]


def test_the_small_message_is_small():
    assert 270 <= len(SMALL) <= 310


async def check_cut(data, at, end):
    """The peer sends some bytes and goes."""
    before = charged()
    async with with_raw_peer() as (comm, peer):
        reading = asyncio.ensure_future(comm.read())
        await peer.send(data[:at])
        getattr(peer, end)()
        with pytest.raises(CommClosedError) as caught:
            await soon(reading)
        assert comm.closed()
        assert charged() == before
        with pytest.raises(CommClosedError):
            await soon(comm.read())
        with pytest.raises(CommClosedError):
            await soon(comm.write("again"))
    return caught.value.__cause__


@pytest.mark.parametrize("end", ENDS)
async def test_killed_at_each_byte_of_a_small_message(end):
    for at in range(len(SMALL)):
        why = await check_cut(SMALL, at, end)
        if end == "close":
            assert why.status == ("TRUNCATED" if at else "PEER_CLOSED")
        else:
            assert why.status in ("RESET", "TRUNCATED", "PEER_CLOSED")


def cuts_of_a_large_message():
    ends = wire_oracle.boundaries(LARGE_FRAMES)
    middles = [(a + b) // 2 for a, b in itertools.pairwise(ends)]
    around = [end + step for end in ends[1:-1] for step in (-1, 0, 1)]
    return sorted({*around, *middles} - {0, len(LARGE)})


@pytest.mark.parametrize("end", ENDS)
async def test_killed_at_each_boundary_of_a_large_message_and_in_its_bodies(end):
    for at in cuts_of_a_large_message():
        why = await check_cut(LARGE, at, end)
        assert why.status in ("TRUNCATED", "RESET")
        assert "127.0.0.1" in str(why)


async def test_killed_in_a_body_that_has_its_memory():
    """The region is reserved, half filled, and given back."""
    body = bytes(32 * MIB)
    data = wire_oracle.write(with_values(body))
    before = charged()
    async with with_raw_peer() as (comm, peer):
        reading = asyncio.ensure_future(comm.read())
        await peer.send(data[: len(data) // 2])
        assert charged()["in_flight"] >= len(body)
        peer.close()
        with pytest.raises(CommClosedError, match="TRUNCATED"):
            await soon(reading)
        assert charged() == before


async def test_a_whole_message_outlives_its_sender():
    for data in (SMALL, LARGE):
        async with with_raw_peer() as (comm, peer):
            await peer.send(data)
            peer.close()
            assert await soon(comm.read())
            with pytest.raises(CommClosedError, match="PEER_CLOSED"):
                await soon(comm.read())
            assert comm.closed()


async def test_several_whole_messages_outlive_their_sender():
    async with with_raw_peer() as (comm, peer):
        sizes = [10, 100_000, 10, 3 * MIB, 10]
        sending = asyncio.ensure_future(
            peer.send(b"".join(wire_oracle.write_plain(bytes(n)) for n in sizes))
        )
        sending.add_done_callback(lambda _: peer.close())
        for size in sizes:
            assert await soon(comm.read()) == bytes(size)
        with pytest.raises(CommClosedError, match="PEER_CLOSED"):
            await soon(comm.read())
        await sending


async def test_whole_messages_then_half_a_one():
    async with with_raw_peer() as (comm, peer):
        await peer.send(SMALL + LARGE + SMALL[:-1])
        peer.close()
        await soon(comm.read())
        await soon(comm.read())
        with pytest.raises(CommClosedError, match="TRUNCATED"):
            await soon(comm.read())


@pytest.mark.parametrize("pieces", [2, "bytes"])
async def test_a_message_in_pieces(pieces):
    """Each split in two of a small message, and one byte at a time."""
    async with with_raw_peer() as (comm, peer):
        expected = wire_oracle.content(wire_oracle.read_all(SMALL)[0].frames)
        if pieces == "bytes":
            splits = [[SMALL[i : i + 1] for i in range(len(SMALL))]]
        else:
            splits = list(wire_oracle.cuts(SMALL))
        for split in splits:
            reading = asyncio.ensure_future(comm.read())
            for piece in split:
                assert not reading.done()
                await peer.send(piece)
                await asyncio.sleep(0)  # read each by itself
                await asyncio.sleep(0)
            assert await soon(reading) == expected


async def test_a_large_message_cut_at_each_boundary():
    async with with_raw_peer() as (comm, peer):
        for at in cuts_of_a_large_message():
            reading = asyncio.ensure_future(comm.read())
            await peer.send(LARGE[:at])
            await asyncio.sleep(0)
            assert not reading.done()
            await peer.send(LARGE[at:])
            one, other = await soon(reading)
            assert (one == noise(200_000)).all()
            assert (other == noise(90_000)).all()


@pytest.mark.parametrize(
    ("message", "count"),
    [
        ({"op": "small"}, 0),
        ({"x": to_serialize(noise(70_000))}, 1),
        ([to_serialize(noise(200_000)), to_serialize(noise(10))], 2),
        (to_serialize([b"x" * 9_000, noise(10)]), 1),
        (to_serialize(table(9_000)), 1),
        (to_serialize({"a": "x" * 99_000, "b": table(9_000)}), 1),
    ],
    ids=["plain", "array", "arrays", "bytes", "table", "large pickle and table"],
)
async def test_what_is_written_is_what_the_oracle_reads(message, count):
    async with with_raw_peer() as (comm, peer):
        size = await comm.write(message)
        data = await peer.receive(size)
        (read,) = wire_oracle.read_all(data)
        values = wire_oracle.values(read.frames)
        assert len(values) == count
        assert read.first_frames == wire_oracle.first_frames_expected(read.frames)
        await soon(comm.close())
        assert await peer.receive_rest() == b""


EMPTY_PICKLE = msgpack.packb({"num-sub-frames": 0, "pickled-obj": b""})

GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    "ones": b"\xff" * 64,
    "no frames": wire_oracle.write([])[:16],
    "first segment too short": b"\x08" + bytes(7) + b"\1" + bytes(7) + bytes(8),
    "first segment inside a frame": b"\x11"
    + bytes(7)
    + b"\1"
    + bytes(7)
    + b"\3"
    + bytes(7)
    + b"abc",
    "too many frames": b"\xff" * 7 + b"\0" + b"\0" * 4 + b"\1" + bytes(3),
    "a frame without end": b"\x10" + bytes(7) + b"\1" + bytes(7) + b"\xff" * 8,
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_ends_the_comm(name):
    before = charged()
    async with with_raw_peer() as (comm, peer):
        await peer.send(GARBAGE[name])
        with pytest.raises(CommClosedError, match=r"PROTOCOL|LIMIT_EXCEEDED") as caught:
            await soon(comm.read())
        assert "127.0.0.1" in str(caught.value)
        assert comm.closed()
        assert charged() == before


@pytest.mark.parametrize(
    "frames",
    [
        [b"\xc1"],
        [b""],
        [msgpack.packb({"__Serialized__": 1})],
        [msgpack.packb({"__Serialized__": 1}), b"\xc1"],
        [msgpack.packb({"__Serialized__": 1}), msgpack.packb({"num-sub-frames": 9})],
        [msgpack.packb({"__Pickled__": 1}), msgpack.packb({"num-sub-frames": 0})],
        [msgpack.packb({"__Serialized__": 7})],
        [msgpack.packb({"__Pickled__": 1}), EMPTY_PICKLE],
    ],
    ids=range(8),
)
async def test_frames_that_do_not_decode_fail_as_in_stock(frames, caplog):
    """The framing is whole, so the comm goes on, except when pickle wants more."""

    async def outcome(kind):
        async with comms(OURS, kind) as (near, far):
            near._stream.send(frames)
            with pytest.raises(Exception) as caught:
                await soon(far.read())
            if not far.closed():
                assert await exchanged(near, far, "next") == "next"
            return type(caught.value), far.closed()

    assert await outcome(OURS) == await outcome(STOCK)
    caplog.clear()  # it holds the tracebacks, and so the frames


async def test_writing_to_a_dead_peer_fails_soon():
    async with with_raw_peer() as (comm, peer):
        peer.reset()
        with pytest.raises(CommClosedError):
            await soon(write_until_it_fails(comm))
        assert comm.closed()


async def write_until_it_fails(comm):
    while True:
        await comm.write({"x": b"x" * 1000})
        await asyncio.sleep(0)


async def test_a_peer_that_dies_while_much_is_queued():
    async with with_raw_peer() as (comm, peer):
        await comm.write(to_serialize(noise(32 * MIB)))
        assert charged()["queued"]
        closing = asyncio.ensure_future(comm.close())
        peer.reset()
        await soon(closing)
        assert charged()["queued"] == 0
        assert comm.closed()


async def test_a_killed_stock_peer():
    async with comms(OURS, STOCK) as (near, far):
        reading = asyncio.ensure_future(near.read())
        await far.write(to_serialize(noise(64 * MIB)))  # queued, not yet sent whole
        far.abort()
        with pytest.raises(CommClosedError, match=r"TRUNCATED|RESET"):
            await soon(reading)
        assert near.closed()
