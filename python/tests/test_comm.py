"""Comms as Dask sees them, and how they end."""

import asyncio
import gc
import logging
import socket
import weakref

import pytest
from distributed.comm.core import CommClosedError, connect
from distributed.protocol import to_serialize

import wire_oracle
from comm_pairs import (
    EVERY_PAIR,
    HTTP_REQUEST,
    OURS,
    STOCK,
    charged,
    comms,
    connector_of,
    exchanged,
    listening,
    open_descriptors,
    soon,
    until,
    with_raw_peer,
)
from message_shapes import MIB, noise

pytestmark = pytest.mark.usefixtures("nothing_is_left")

every_pair = pytest.mark.parametrize("pair", EVERY_PAIR, ids="-".join)
KINDS = [OURS, STOCK]


async def test_addresses_stay_after_the_end():
    async with comms(OURS, OURS) as (near, far):
        before = near.local_address, near.peer_address, repr(near)
        near.abort()
        assert (near.local_address, near.peer_address) == before[:2]
        assert "(closed)" in repr(near)
        assert far.local_address in repr(near)


async def test_an_http_request_is_named_in_the_error():
    async with with_raw_peer() as (comm, peer):
        await peer.send(HTTP_REQUEST)
        with pytest.raises(CommClosedError) as caught:
            await soon(comm.read())
        assert caught.value.__cause__.status in ("PROTOCOL", "LIMIT_EXCEEDED")
        assert comm.peer_address.partition("://")[2] in str(caught.value)
        assert comm.closed()


# Ends


@every_pair
async def test_close_flushes_what_is_queued(pair):
    array = noise(40 * MIB)
    async with comms(*pair) as (near, far):
        await near.write(to_serialize(array))
        closing = asyncio.ensure_future(near.close())
        assert (await soon(far.read()) == array).all()
        await soon(closing)
        assert near.closed()
        with pytest.raises(CommClosedError):
            await soon(far.read())
        assert far.closed()


async def test_close_without_waiting_closes():
    async with comms(OURS, OURS) as (near, far):
        near.close()
        assert near.closed()
        with pytest.raises(CommClosedError):
            await soon(far.read())


async def test_an_idle_comm_learns_that_its_peer_has_gone():
    async with comms(OURS, OURS) as (near, far):
        closed = asyncio.get_running_loop().create_future()
        reading = asyncio.ensure_future(near.read())
        reading.add_done_callback(lambda _: closed.set_result(near.closed()))
        far.abort()
        assert await soon(closed)
        assert isinstance(reading.exception(), CommClosedError)


@pytest.mark.parametrize("end", ["abort", "close"])
async def test_the_waiting_reader_is_woken(end):
    async with comms(OURS, OURS) as (near, _):
        reading = asyncio.ensure_future(near.read())
        await asyncio.sleep(0)
        ended = getattr(near, end)()
        with pytest.raises(CommClosedError, match="closed"):
            await soon(reading)
        if ended is not None:
            await soon(ended)
        assert near.closed()
        with pytest.raises(CommClosedError):
            await near.write(1)
        with pytest.raises(CommClosedError):
            await near.read()


async def test_ends_may_come_again_and_together():
    async with comms(OURS, OURS) as (near, _):
        near.abort()
        near.abort()
        await soon(near.close())
        near.abort()


async def large_write_to_a_stopped_peer(comm):
    """Queue an array that the peer does not read; only a weak reference is left."""
    array = noise(64 * MIB)
    dropped = weakref.ref(array)
    await comm.write(to_serialize(array))
    return dropped


@pytest.mark.parametrize("end", ["abort", "close and cancel", "peer resets"])
async def test_queued_arrays_are_let_go(end):
    async with with_raw_peer() as (comm, peer):
        dropped = await large_write_to_a_stopped_peer(comm)
        gc.collect()
        assert dropped() is not None
        assert charged()["queued"] > 32 * MIB
        if end == "abort":
            comm.abort()
        elif end == "close and cancel":
            closing = asyncio.ensure_future(comm.close())
            await asyncio.sleep(0)
            assert not closing.done()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(closing)
        else:
            peer.reset()
            with pytest.raises(CommClosedError):
                await soon(comm.read())
        assert comm.closed()
        assert charged()["queued"] == 0
        await until(lambda: dropped() is None)  # the offloading thread too


async def test_close_waits_for_a_peer_that_starts_to_read():
    async with with_raw_peer() as (comm, peer):
        array = noise(64 * MIB)
        size = await comm.write(to_serialize(array))
        closing = asyncio.ensure_future(comm.close())
        await asyncio.sleep(0)
        assert not closing.done()
        (message,) = wire_oracle.read_all(await peer.receive_rest())
        await soon(closing)
        assert len(wire_oracle.write(message.frames)) == size
        assert b"".join(message.frames[2:]) == array.tobytes()


async def test_a_second_close_does_not_disturb_the_first():
    async with with_raw_peer() as (comm, peer):
        await large_write_to_a_stopped_peer(comm)
        closing = asyncio.ensure_future(comm.close())
        await asyncio.sleep(0)
        await soon(comm.close())
        assert comm.closed() and not closing.done()
        with pytest.raises(CommClosedError, match="closed"):
            await comm.write("late")
        (message,) = wire_oracle.read_all(await peer.receive_rest())
        await soon(closing)
        assert sum(map(len, message.frames)) > 64 * MIB


@pytest.mark.parametrize("queued", [0, 64 * MIB])
def test_a_comm_that_outlived_its_loop_can_be_closed(queued):
    async def left_open(port):
        comm = await connector_of(OURS).connect(f"127.0.0.1:{port}")
        await comm.write(to_serialize(noise(queued)))
        return comm

    async def closed(comm):
        await soon(comm.close())

    with socket.create_server(("127.0.0.1", 0)) as server:
        comm = asyncio.run(left_open(server.getsockname()[1]))
        assert not comm.closed()
        asyncio.run(closed(comm))
        comm.close()
    assert comm.closed()
    assert charged()["queued"] == 0


async def test_abort_ends_a_close_that_is_under_way():
    async with with_raw_peer() as (comm, _):
        await large_write_to_a_stopped_peer(comm)
        closing = asyncio.ensure_future(comm.close())
        comm.abort()
        await soon(closing)
        with pytest.raises(CommClosedError):
            await comm.write("late")


async def test_cancelling_a_read_ends_the_comm():
    async with comms(OURS, OURS) as (near, far):
        reading = asyncio.ensure_future(near.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert near.closed()
        with pytest.raises(CommClosedError):
            await soon(far.read())


async def test_cancelling_a_read_in_the_middle_of_a_body_lets_it_go():
    async with with_raw_peer() as (comm, peer):
        before = charged()
        reading = asyncio.ensure_future(comm.read())
        data = wire_oracle.write([b"\xc0", b"\x80", bytes(8 * MIB)])
        await peer.send(data[: 4 * MIB])
        await until(lambda: charged()["in_flight"] >= 8 * MIB)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert comm.closed()
        assert charged() == before


async def test_cancelling_an_offloaded_write_does_not_break_the_comm():
    async with comms(OURS, OURS) as (near, far):
        message = {"x": [to_serialize(noise(12 * MIB)), object]}
        writing = asyncio.ensure_future(near.write(message))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        if not near.closed():
            assert await exchanged(near, far, "next") == "next"


async def test_one_reader_at_a_time():
    async with comms(OURS, OURS) as (near, _):
        reading = asyncio.ensure_future(near.read())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already being read"):
            await near.read()
        reading.cancel()
        with pytest.raises((asyncio.CancelledError, CommClosedError)):
            await reading


async def test_a_dropped_comm_is_closed_with_a_warning(caplog):
    async with comms(OURS, OURS):
        pass
    before = open_descriptors()
    async with listening(OURS) as (listener, accepted):
        comm = await connect(listener.contact_address)
        text = repr(comm)
        served = await soon(accepted.get())
        with caplog.at_level(logging.WARNING):
            del comm
            gc.collect()
        with pytest.raises(CommClosedError):
            await soon(served.read())
        assert f"Closing dangling connection in {text}" in caplog.text
        served.abort()
    assert open_descriptors() == before


async def test_a_closed_comm_is_dropped_in_silence(caplog):
    async with comms(OURS, OURS) as (near, far):
        near.abort()
        with pytest.raises(CommClosedError):
            await soon(far.read())
        del near, far
        gc.collect()
    assert "dangling" not in caplog.text


async def test_no_descriptor_is_left():
    async with comms(OURS, OURS):
        pass
    before = open_descriptors()
    for _ in range(20):
        async with comms(OURS, OURS) as (near, far):
            await exchanged(near, far, {"x": 1})
            await soon(near.close())
    assert open_descriptors() == before
