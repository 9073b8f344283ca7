"""The handshake of accepted connections is begun by the library's threads, once, with
what the comm would have said; and what comes before Python hears of a connection is
received as if it had come later."""

import asyncio
import contextlib
import logging
import socket
import sys
import threading
import time

import dask
import pytest
from distributed.comm.core import CommClosedError, connect
from distributed.comm.registry import backends

import wire_oracle
from comm_pairs import OURS, STOCK, comms, exchanged, listening, soon
from message_shapes import MIB
from spillway import _native
from spillway.dask.backends import SpillwayBackend
from spillway.dask.comm import SpillwayComm
from spillway.dask.greeting import Greeting, greetings
from spillway.dask.listener import SpillwayListener

pytestmark = pytest.mark.usefixtures("nothing_is_left", "threads_are_on")

LOST_AFTER_S = 20
LATER_S = 0.01


@pytest.fixture
def without_threads(threads_are_on):
    """In spite of what the other tests of this file have."""
    with dask.config.set({"spillway.comm.threads": 0}):
        yield


@contextlib.contextmanager
def plain_socket(listener):
    with socket.create_connection(listener.get_host_port()) as raw:
        raw.settimeout(LOST_AFTER_S)
        yield raw


def message_from(raw):
    """The content of the next message."""
    data = b""
    while True:
        data += raw.recv(1 << 16)
        with contextlib.suppress(wire_oracle.Malformed):
            message, rest = wire_oracle.read_one(data)
            assert rest == b""
            return wire_oracle.content(message.frames)


def handshake():
    """What a peer that knows nothing of us says."""
    return wire_oracle.write_plain(
        {
            "compression": None,
            "python": tuple(sys.version_info)[:3],
            "pickle-protocol": 5,
        }
    )


def messages_received():
    return _native.figures()["messages_received"]


def wait_for_messages(count):
    """Without a turn for the loop, until that many messages have been received."""
    deadline = time.monotonic() + LOST_AFTER_S
    while messages_received() < count:
        assert time.monotonic() < deadline, "no thread received them"


# What is said


@pytest.mark.parametrize("compression", [False, "zlib"])
async def test_it_is_what_a_comm_says(compression):
    with dask.config.set({"distributed.comm.compression": compression}):
        prepared = greetings(SpillwayComm, "spillway://", asyncio.get_running_loop())
        async with comms(OURS, OURS) as (_, far):
            said = dict(far.local_info)
            assert said.pop("address") == far.local_address
            assert prepared[True].info == said == far.handshake_info()
        assert prepared[True].info["compression"] is None
        assert prepared[False].info["compression"] == (compression or None)


def test_what_is_no_plain_message_is_refused():
    with pytest.raises(ValueError, match="no plain message"):
        Greeting({"key": object()})


async def test_a_peer_is_greeted_while_the_loop_does_something_else():
    async with listening(OURS) as (listener, accepted):
        with plain_socket(listener) as raw:
            info = message_from(raw)  # blocks the loop
            assert info["spillway"]["wire"] == 1
            assert info["compression"] is None
            raw.sendall(handshake())
            served = await soon(accepted.get())
            assert await served.write("first") == Greeting("first").wire_bytes
            assert message_from(raw) == "first"  # and no handshake a second time
            assert served.remote_info["pickle-protocol"] == 5


async def test_a_stock_peer_of_another_address_is_told_the_compression():
    with dask.config.set({"distributed.comm.compression": "zlib"}):
        async with listening(OURS, host="0.0.0.0") as (listener, accepted):
            port = listener.get_host_port()[1]
            with socket.socket() as raw:
                raw.settimeout(LOST_AFTER_S)
                raw.bind(("127.0.0.2", 0))
                raw.connect(("127.0.0.1", port))
                assert message_from(raw)["compression"] == "zlib"
                raw.sendall(handshake())
                served = await soon(accepted.get())
                assert served.local_info["compression"] == "zlib"
                assert not served.same_host


@pytest.mark.usefixtures("without_threads")
async def test_without_threads_the_comm_says_it():
    async with listening(OURS) as (listener, _):
        with plain_socket(listener) as raw:
            raw.setblocking(False)
            with pytest.raises(BlockingIOError):
                raw.recv(1)
            data = await soon(asyncio.get_running_loop().sock_recv(raw, 1 << 16))
            assert wire_oracle.content(wire_oracle.read_all(data)[0].frames)
    async with comms(OURS, OURS) as (near, far):
        assert await exchanged(near, far, "hello") == "hello"


class _OwnHandshake(SpillwayListener):
    async def on_connection(self, comm, handshake_overrides=None):
        await super().on_connection(comm, {"pickle-protocol": 4})


async def test_a_handshake_of_ones_own_is_not_said_ahead(monkeypatch):
    monkeypatch.setattr(SpillwayBackend, "_listener_class", _OwnHandshake)
    monkeypatch.setitem(backends, OURS, SpillwayBackend())
    for near in (OURS, STOCK):
        async with comms(near, OURS) as (comm, served):
            assert comm.remote_info["pickle-protocol"] == 4
            assert served.handshake_options["pickle-protocol"] == 4
            assert await exchanged(comm, served, "hello") == "hello"


async def test_what_has_been_said_cannot_be_said_differently(caplog):
    async with listening(OURS) as (listener, _):
        on_connection = listener.on_connection
        listener.on_connection = lambda comm: on_connection(comm, {"compression": "x"})
        with plain_socket(listener) as raw:
            assert message_from(raw)["compression"] is None
            while "cannot be replaced" not in caplog.text:
                await asyncio.sleep(0)
            assert raw.recv(1) == b""


# What has come


async def test_messages_of_a_peer_that_is_gone_by_then():
    async with listening(OURS) as (listener, accepted):
        before = messages_received()
        with plain_socket(listener) as raw:
            message_from(raw)
            raw.sendall(handshake() + wire_oracle.write_plain({"op": "last words"}))
        wait_for_messages(before + 2)
        served = await soon(accepted.get())
        assert not served.closed()
        assert await soon(served.read()) == {"op": "last words"}
        with pytest.raises(CommClosedError, match="closed the connection"):
            await soon(served.read())
        assert served.closed()


async def test_a_large_message_waits_whole():
    body = bytes(8 * MIB)
    async with listening(OURS) as (listener, accepted):
        before = messages_received()
        with plain_socket(listener) as raw:
            raw.sendall(handshake() + wire_oracle.write_plain(body))
            wait_for_messages(before + 2)
            served = await soon(accepted.get())
            assert await soon(served.read()) == body


async def test_more_than_waits_comes_later():
    numbers = list(range(40))
    async with listening(OURS) as (listener, accepted):
        before = messages_received()
        with plain_socket(listener) as raw:
            raw.sendall(handshake() + b"".join(map(wire_oracle.write_plain, numbers)))
            wait_for_messages(before + 16)
            served = await soon(accepted.get())
            assert [await soon(served.read()) for _ in numbers] == numbers


async def test_a_peer_that_breaks_off_in_the_handshake(caplog):
    caplog.set_level(logging.INFO, "spillway")
    async with listening(OURS) as (listener, accepted):
        for piece in (b"", handshake()[:40], b"\xff" * 64):
            with plain_socket(listener) as raw:
                message_from(raw)
                raw.sendall(piece)
        while caplog.text.count("closed before handshake completed") < 3:
            await asyncio.sleep(LATER_S)
        comm = await connect(listener.contact_address)
        served = await soon(accepted.get())
        assert await exchanged(comm, served, "hello") == "hello"
        comm.abort()
        served.abort()


async def test_many_peers_at_once():
    async with listening(OURS) as (listener, accepted):
        near = await soon(
            asyncio.gather(*(connect(listener.contact_address) for _ in range(200)))
        )
        for comm in near:
            await comm.write(comm.local_address)
        for _ in near:
            served = await soon(accepted.get())
            assert await soon(served.read()) == served.peer_address
            served.abort()
        for comm in near:
            comm.abort()


async def test_who_was_greeted_is_served_after_the_listener_was_stopped():
    async with listening(OURS) as (listener, accepted):
        with plain_socket(listener) as raw:
            message_from(raw)  # the loop has not heard of it
            raw.sendall(handshake() + wire_oracle.write_plain("hello"))
            listener.stop()
            served = await soon(accepted.get())
            assert await soon(served.read()) == "hello"
            await served.write("there")
            assert message_from(raw) == "there"
            served.abort()


async def test_who_was_greeted_is_closed_when_handshakes_are_aborted():
    async with listening(OURS) as (listener, accepted):
        with plain_socket(listener) as raw:
            message_from(raw)
            raw.sendall(handshake())
            listener.stop()
            listener.abort_handshaking_comms()
            loop = asyncio.get_running_loop()
            raw.setblocking(False)
            assert await soon(loop.sock_recv(raw, 1)) == b""
        assert accepted.empty()


async def test_a_listener_without_its_loop_closes_whom_it_has_greeted():
    async with listening(OURS) as (listener, accepted):
        with plain_socket(listener) as raw:
            message_from(raw)
            stop = threading.Thread(target=listener.stop)
            stop.start()
            stop.join()
            assert raw.recv(1) == b""
        assert accepted.empty()


# What fails


class _Fails:
    """In the place of a native listener: one call of it raises an error."""

    def __init__(self, listener, method):
        self._listener = listener
        self._failing = {method}

    def __getattr__(self, name):
        if name in self._failing:
            return self._fail
        return getattr(self._listener, name)

    def _fail(self, *args, **kwargs):
        self._failing.clear()
        raise OSError("out of something")


@pytest.fixture
def failing(monkeypatch):
    """Make native listeners of which a method fails once."""

    def fail(method):
        make = _native.Listener
        monkeypatch.setattr(
            _native, "Listener", lambda *args: _Fails(make(*args), method)
        )

    return fail


async def test_a_listener_that_cannot_serve_accepts_on_its_loop(failing, caplog):
    failing("serve")
    async with comms(OURS, OURS) as (near, far):
        assert await exchanged(near, far, "hello") == "hello"
    assert "by their event loop alone: out of something" in caplog.text


@pytest.mark.parametrize("threads", ["auto", 0])
async def test_accepting_goes_on_after_an_error(failing, caplog, threads):
    failing("accept")
    with dask.config.set({"spillway.comm.threads": threads}):
        async with comms(OURS, OURS) as (near, far):
            assert await exchanged(near, far, "hello") == "hello"
    assert caplog.text.count("cannot accept a connection: out of something") == 1
