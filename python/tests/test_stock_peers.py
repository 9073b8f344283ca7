"""Every shape of message between our comms and Dask's own, in both directions."""

import asyncio
import contextlib
import os
import sys

import dask
import numpy
import pytest
from distributed.comm.core import connect
from distributed.comm.tcp import TCP
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Serialized, ToPickle

import spillway
import wire_oracle
from comm_pairs import EVERY_PAIR, OURS, STOCK, comms, exchanged, soon
from message_shapes import MIB, SHAPES, Plain, bare, check_same, noise
from spillway.dask.comm import SpillwayComm

CODECS = ["lz4", "zstd", "snappy", "zlib"]

every_pair = pytest.mark.parametrize("pair", EVERY_PAIR, ids="-".join)
every_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.fixture
def small_shards(monkeypatch):
    """Buffers go in many shards, from stock and from us."""
    for kind in (TCP, SpillwayComm):
        monkeypatch.setattr(kind, "max_shard_size", 10_000)


@pytest.fixture(params=CODECS)
def codec(request, monkeypatch):
    """Both sides name a codec in the handshake, as peers on two hosts do."""
    for kind in (TCP, SpillwayComm):
        monkeypatch.setattr(kind, "same_host", False)
    with dask.config.set({"distributed.comm.compression": request.param}):
        yield request.param


async def check_shape(pair, shape):
    async with comms(*pair) as (near, far):
        for one, other in ((near, far), (far, near)):
            message = SHAPES[shape]()
            received = await exchanged(one, other, message)
            check_same(received, bare(SHAPES[shape]()))


@every_shape
@every_pair
async def test_arrives_as_it_was_sent(pair, shape):
    await check_shape(pair, shape)


@every_shape
@every_pair
async def test_arrives_in_shards(pair, shape, small_shards):
    await check_shape(pair, shape)


@pytest.mark.parametrize(
    "shape",
    ["compressible", "arrays", "collections", "tables", "to pickle, large", "nested"],
)
@every_pair
async def test_arrives_compressed(pair, shape, codec):
    await check_shape(pair, shape)


@every_pair
async def test_arrives_compressed_in_shards(pair, codec, small_shards):
    await check_shape(pair, "compressible")


@pytest.mark.parametrize("pair", [(STOCK, OURS), (OURS, OURS)], ids="-".join)
async def test_compressed_arrays_are_decompressed_once_and_aligned(pair, codec):
    async with comms(*pair) as (near, far):
        assert near.handshake_options["compression"] == codec
        before = spillway.stats()["copies"]["decompressed"]["bytes"]
        zeros = numpy.zeros(3 * MIB, "u1")
        received = await exchanged(near, far, to_serialize(zeros))
        assert (received == zeros).all()
        assert received.flags.writeable
        assert received.ctypes.data % 64 == 0
        after = spillway.stats()["copies"]["decompressed"]["bytes"]
        assert after - before == zeros.nbytes


@every_pair
async def test_5000_tiny_frames(pair):
    async with comms(*pair) as (near, far):
        message = {"x": [to_serialize(i) for i in range(2_500)]}
        received = await exchanged(near, far, message)
        assert received == {"x": tuple(range(2_500))}


@every_pair
async def test_a_hundred_megabytes(pair):
    sent = [noise(70 * MIB), noise(30 * MIB)]
    async with comms(*pair) as (near, far):
        for one, other in ((near, far), (far, near)):
            received = await exchanged(one, other, [to_serialize(x) for x in sent])
            for array, expected in zip(received, sent, strict=True):
                assert (array == expected).all()
                assert array.flags.writeable


@every_pair
async def test_messages_keep_their_order(pair):
    messages = [
        to_serialize(noise(3 * MIB)) if i % 50 == 7 else {"i": i} for i in range(300)
    ]
    async with comms(*pair) as (near, far):

        async def write_all():
            for message in messages:
                await near.write(message)

        writing = asyncio.ensure_future(write_all())
        for message in messages:
            check_same(await soon(far.read()), bare(message))
        await writing


@every_pair
async def test_both_directions_at_once(pair):
    sent = noise(20 * MIB)
    async with comms(*pair) as (near, far):
        _, _, one, other = await soon(
            asyncio.gather(
                near.write(to_serialize(sent)),
                far.write(to_serialize(sent)),
                near.read(),
                far.read(),
            )
        )
        assert (one == sent).all()
        assert (other == sent).all()


@pytest.mark.parametrize("middle", [OURS, STOCK])
@pytest.mark.parametrize("pair", EVERY_PAIR, ids="-".join)
async def test_relay_passes_on_what_it_does_not_open(pair, middle):
    """As the scheduler does: a comm with deserialize=False between the two ends."""
    first, last = pair
    sent = {"x": to_serialize(noise(2 * MIB)), "t": to_serialize({"a": noise(9_000)})}
    inward = comms(first, middle, deserialize=False)
    outward = comms(middle, last)
    async with inward as (near, relay_in), outward as (relay_out, far):
        held = await exchanged(near, relay_in, sent)
        assert isinstance(held["x"], Serialized)
        check_same(await exchanged(relay_out, far, held), bare(sent))


@pytest.mark.parametrize("first", [OURS, STOCK])
async def test_relay_of_compressed_frames_keeps_them(first, codec, small_shards):
    inward = comms(first, OURS, deserialize=False)
    outward = comms(OURS, STOCK)
    async with inward as (near, relay_in), outward as (relay_out, far):
        zeros = numpy.zeros(MIB, "u1")
        held = await exchanged(near, relay_in, {"x": to_serialize(zeros)})
        assert codec in held["x"].header["compression"]
        received = await exchanged(relay_out, far, held)
        check_same(received["x"], zeros)


class CannotPickle:
    def __reduce__(self):
        raise TypeError("not to be pickled")


@every_pair
async def test_unserialisable_value_tells_the_receiver(pair):
    async with comms(*pair) as (near, far):
        writing = near.write({"x": to_serialize(CannotPickle())}, on_error="message")
        with pytest.raises(TypeError, match="Could not serialize object"):
            await soon(asyncio.gather(writing, far.read()))
        check_same(await exchanged(near, far, {"still": "there"}), {"still": "there"})


@every_pair
async def test_unserialisable_value_raises_for_the_sender(pair):
    async with comms(*pair) as (near, far):
        message = {"x": to_serialize(CannotPickle())}
        with pytest.raises(TypeError, match="Could not serialize object"):
            await soon(near.write(message, on_error="raise"))
        check_same(await exchanged(near, far, {"still": "there"}), {"still": "there"})


@every_pair
async def test_unpicklable_message_leaves_the_comm_usable(pair):
    async with comms(*pair) as (near, far):
        with pytest.raises(TypeError, match="not to be pickled"):
            await soon(near.write({"x": ToPickle(CannotPickle())}))
        check_same(await exchanged(near, far, [1]), (1,))


@every_pair
async def test_serializers_and_deserializers_are_obeyed(pair):
    async with comms(*pair) as (near, far):
        writing = near.write(
            {"x": to_serialize(Plain(1))}, serializers=["msgpack"], on_error="raise"
        )
        with pytest.raises(TypeError, match="Could not serialize"):
            await soon(writing)
        writing = near.write({"x": to_serialize(Plain(1))}, serializers=["pickle"])
        with pytest.raises(TypeError, match="serialized with pickle"):
            await soon(asyncio.gather(writing, far.read(deserializers=["msgpack"])))


@contextlib.asynccontextmanager
async def stock_process():
    """A process with Dask's own transport that sends back what it reads, and says
    what its stats are when it is asked."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        STOCK_PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "SPILLWAY_DISABLE": "all", "PYTHONPATH": _python_path()},
    )
    try:
        address = (await soon(process.stdout.readline())).decode().strip()
        yield address
    finally:
        process.stdin.close()
        await soon(process.wait())
    assert process.returncode == 0


def _python_path():
    return os.pathsep.join(filter(None, sys.path))


STOCK_PROGRAM = """
import asyncio, sys
import spillway, spillway.dask
from distributed.comm.core import listen
from distributed.protocol import to_serialize
from message_shapes import SHAPES

async def serve(comm):
    assert type(comm).__module__ == "distributed.comm.tcp"
    while (message := await comm.read()) is not None:
        if type(message) is str and message == "stats":
            await comm.write(spillway.stats())
        elif type(message) is str and message in SHAPES:
            await comm.write(SHAPES[message]())
        else:
            await comm.write(to_serialize(message))
    await comm.close()

async def main():
    spillway.dask.enable()
    async with await listen("tcp://127.0.0.1:0", serve) as listener:
        print(listener.contact_address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


async def test_every_shape_with_a_stock_process():
    async with stock_process() as address:
        comm = await connect(address.replace(STOCK, OURS))
        for shape, make in SHAPES.items():
            await comm.write(shape)
            check_same(await soon(comm.read()), bare(make()))
            await comm.write(make())
            check_same(await soon(comm.read()), bare(make()))
        await comm.write("stats")
        stats = await soon(comm.read())
        assert stats["messages"] == {"sent": 0, "received": 0}
        assert stats["parts"]["transport"]["why_off"] == "SPILLWAY_DISABLE=all"
        await comm.write(None)
        await comm.close()


@every_shape
@pytest.mark.parametrize("sender", [OURS, STOCK])
async def test_what_is_received_lies_where_it_should(
    sender, shape, small_shards, monkeypatch
):
    """Frames before decoding, by the oracle's rules of placement."""
    seen = []
    loads = spillway.dask.comm.loads

    def look(frames, *options):
        seen.append(wire_oracle.check_placement(frames))
        return loads(frames, *options)

    async with comms(sender, OURS) as (near, far):
        near.remote_info.pop("spillway", None)  # shards also from us
        monkeypatch.setattr("spillway.dask.comm.loads", look)
        await exchanged(near, far, SHAPES[shape]())
    assert len(seen) == 1
    if shape in ("array", "arrays", "compressible", "large bytes"):
        assert seen[0] > 0 or shape == "large bytes"
