"""Streams over real sockets: what the loop watches, and how one is opened."""

import asyncio
import contextlib
import errno
import gc
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
from spillway.dask.loop_bridge import THREADS_KEY, bridge_of
from spillway.dask.stream import COMPLETION, READ, WRITE, open_stream, resolve

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


def open_descriptors():
    """All that are open, with those of the loop's bridge, which the first stream of a
    loop would open, and without those of earlier loops that are still in cycles."""
    gc.collect()
    bridge_of(asyncio.get_running_loop())
    return set(os.listdir("/proc/self/fd"))


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


# Opening


def listening():
    return socket.create_server(("127.0.0.1", 0), backlog=8)


@contextlib.contextmanager
def closed_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


@contextlib.contextmanager
def silent_port():
    """An address that answers nothing: its backlog is full."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()


async def test_the_first_address_that_answers_is_taken():
    with closed_port() as closed, listening() as first, listening() as second:
        addresses = [closed, first.getsockname(), second.getsockname()]
        stream = await soon(open_stream(addresses))
        assert stream.peer() == first.getsockname()
        stream.abort()


async def test_a_silent_address_does_not_cost_a_timeout():
    with silent_port() as silent, listening() as second:
        before = open_descriptors()
        addresses = [silent, second.getsockname()]
        stream = await soon(open_stream(addresses))
        assert stream.peer() == second.getsockname()
        stream.abort()
        while set(os.listdir("/proc/self/fd")) != before:
            await soon(asyncio.sleep(0))  # the other attempt is being cancelled


async def test_the_error_is_that_of_the_first_address():
    with closed_port() as one, closed_port() as other:
        with pytest.raises(_native.SpillwayError) as caught:
            await soon(open_stream([one, other]))
        assert caught.value.status == "REFUSED"
        assert caught.value.errno == errno.ECONNREFUSED
        assert f"127.0.0.1:{one[1]}" in str(caught.value)


async def test_no_address():
    with pytest.raises(OSError, match="no address"):
        await open_stream([])


async def test_cancelling_closes_what_has_begun():
    with silent_port() as silent:
        before = open_descriptors()
        opening = asyncio.ensure_future(open_stream([silent]))
        while set(os.listdir("/proc/self/fd")) == before:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(opening)
        while set(os.listdir("/proc/self/fd")) != before:
            await soon(asyncio.sleep(0))


# Names


async def test_numbers_need_no_look_up(monkeypatch):
    async def never(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    assert await resolve("127.0.0.1", 80) == [("127.0.0.1", 80)]
    assert await resolve("::1", 80) == [("::1", 80)]


async def test_names_are_looked_up():
    assert ("127.0.0.1", 80) in await resolve("localhost", 80)


async def test_unknown_names():
    with pytest.raises(socket.gaierror):
        await resolve("no.such.host.invalid", 80)


async def test_a_name_with_several_addresses_gives_each_once(monkeypatch):
    async def found(*arguments, **options):
        family, kind = socket.AF_INET6, socket.SOCK_STREAM
        return [
            (family, kind, 6, "", ("fe80::1", 80, 0, 0)),
            (family, kind, 6, "", ("fe80::1", 80, 0, 3)),
            (family, kind, 6, "", ("fe80::1%lo", 80, 0, 1)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", 80)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", 80)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    assert await resolve("a.name", 80) == [
        ("fe80::1", 80),
        ("fe80::1%3", 80),
        ("fe80::1%lo", 80),
        ("127.0.0.1", 80),
    ]
