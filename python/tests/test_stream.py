"""Streams over real sockets: what the loop watches, and who is woken."""

import asyncio
import contextlib
import os
import select
import selectors
import socket

import dask
import pytest

import wire_oracle
from comm_pairs import RawPeer, soon
from message_shapes import MIB
from spillway import _native
from spillway.dask.connector import open_stream
from spillway.dask.loop_bridge import THREADS_KEY
from spillway.dask.stream import COMPLETION, READ, WRITE

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@contextlib.asynccontextmanager
async def streams():
    """A stream of ours and the plain socket that it has connected to."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        stream = await open_stream([server.getsockname()])
        accepted, _ = await soon(loop.sock_accept(server))
    peer = RawPeer(accepted)
    peer.socket.setblocking(False)
    try:
        yield stream, peer
    finally:
        stream.abort()
        peer.close()


def watched(stream):
    """What the loop's own selector has for a stream's descriptor."""
    try:
        key = asyncio.get_running_loop()._selector.get_key(stream._fd)
    except KeyError:
        return 0
    events = {selectors.EVENT_READ: READ, selectors.EVENT_WRITE: WRITE}
    return sum(ours for theirs, ours in events.items() if key.events & theirs)


def fill(stream):
    """Queue more than a socket takes."""
    stream.send([bytes(64 * MIB)])
    assert stream.queued_bytes()


@pytest.mark.parametrize("threads", [0, 2])
async def test_the_loop_watches_what_is_waited_for(threads):
    with dask.config.set({THREADS_KEY: threads}):
        await watches_what_is_waited_for(WRITE if threads == 0 else COMPLETION)


async def watches_what_is_waited_for(sending):
    async with streams() as (stream, peer):
        assert watched(stream) == READ
        fill(stream)
        assert stream._watched == READ | sending
        assert watched(stream) == (READ | sending) & ~COMPLETION
        receiving = asyncio.ensure_future(peer.receive(24 + 64 * MIB))
        await soon(stream.flush())
        assert watched(stream) == READ
        await soon(receiving)
        stream.abort()
        assert watched(stream) == 0


async def test_a_message_that_nobody_reads_is_not_watched_for():
    """A level-triggered loop would spin on it."""
    async with streams() as (stream, peer):
        await peer.send(wire_oracle.write([b"one"]) + wire_oracle.write([b"two"]))
        while watched(stream):
            await asyncio.sleep(0)
        assert stream.receive() == [b"one"]
        assert stream.receive() == [b"two"]
        assert stream.receive() is None
        assert watched(stream) == READ


@pytest.mark.parametrize("filled", [False, True], ids=["idle", "sending"])
@pytest.mark.parametrize("end", ["abort", "reset", "close", "garbage"])
async def test_an_end_takes_the_descriptor_out_of_the_loop(end, filled):
    async with streams() as (stream, peer):
        if filled:
            fill(stream)
        waiting = asyncio.ensure_future(stream.wait_message())
        flushing = asyncio.ensure_future(stream.flush())
        await asyncio.sleep(0)
        if end == "abort":
            stream.abort()
        elif end == "reset":
            peer.reset()
        elif end == "close":
            peer.close()
        else:
            await peer.send(b"\xff" * 64)
        with pytest.raises(_native.SpillwayError):
            await soon(waiting)
        await soon(flushing)
        assert not stream.is_open()
        assert watched(stream) == 0
        assert not os.path.exists(f"/proc/self/fd/{stream._fd}")


@pytest.mark.parametrize("filled", [False, True], ids=["idle", "sending"])
async def test_a_descriptor_number_can_be_used_again_at_once(filled):
    async with streams() as (stream, _):
        if filled:
            fill(stream)
        stream.abort()
        with socket.socket() as other:
            loop = asyncio.get_running_loop()
            other.setblocking(False)
            os.dup2(other.fileno(), stream._fd)
            loop.add_reader(stream._fd, lambda: None)
            assert loop.remove_reader(stream._fd)
            os.close(stream._fd)


async def test_an_end_leaves_no_watch_behind_when_a_forked_child_holds_the_socket():
    """An epoll watch belongs to the socket, not to its number: it would go on telling
    of the end, and the loop would spin."""
    async with streams() as (stream, peer):
        hold, release = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(release)
            os.close(peer.socket.fileno())
            os.read(hold, 1)  # until the parent is done
            os._exit(0)
        try:
            peer.close()
            with pytest.raises(_native.SpillwayError, match="closed the connection"):
                await soon(stream.wait_message())
            epoll = asyncio.get_running_loop()._selector.fileno()
            ready, _, _ = select.select([epoll], [], [], 0)
            assert not ready
        finally:
            os.close(release)
            os.close(hold)
            os.waitpid(child, 0)


def arrives(stream, event):
    """Wait for something at the socket, while the loop stands still."""
    poll = select.poll()
    poll.register(stream._fd, event)
    assert poll.poll(30_000)


async def test_a_message_right_behind_another_is_received_in_the_same_turn():
    async with streams() as (stream, peer):
        peer.socket.sendall(wire_oracle.write([b"one"]))
        arrives(stream, select.POLLIN)
        stream._on_readable()
        assert stream.receive() == [b"one"]
        assert stream.receive() is None
        peer.socket.sendall(wire_oracle.write([b"two"]))
        arrives(stream, select.POLLIN)
        with pytest.raises(StopIteration) as ended:
            stream.wait_message().send(None)
        assert ended.value.value == [b"two"]
        assert watched(stream) == READ


async def test_an_end_right_behind_a_message_is_met_in_the_same_turn():
    """A read that the message filled has not met it."""
    async with streams() as (stream, peer):
        peer.socket.sendall(wire_oracle.write([b"last"]))
        peer.close()
        arrives(stream, select.POLLRDHUP)
        stream._on_readable()
        assert stream.receive() == [b"last"]
        assert stream.receive() is None
        with pytest.raises(_native.SpillwayError) as raised:
            stream.wait_message().send(None)
        assert raised.value.status == "PEER_CLOSED"
        assert watched(stream) == 0


async def test_only_one_waits_for_a_message():
    async with streams() as (stream, _):
        waiting = asyncio.ensure_future(stream.wait_message())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="already being read"):
            await stream.wait_message()
        stream.abort()
        with pytest.raises(_native.SpillwayError) as caught:
            await soon(waiting)
        assert caught.value.status == "CLOSED"


async def test_sending_on_an_ended_stream_says_why_it_ended():
    async with streams() as (stream, peer):
        peer.reset()
        with pytest.raises(_native.SpillwayError):
            await soon(stream.wait_message())
        with pytest.raises(_native.SpillwayError) as caught:
            stream.send([b"late"])
        assert caught.value.status in ("RESET", "PEER_CLOSED")
