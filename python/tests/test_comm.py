"""Comms, connectors and listeners as Dask sees them."""

import asyncio
import errno
import gc
import logging
import os
import socket
import weakref

import pytest
from distributed.comm.core import CommClosedError, connect, listen
from distributed.comm.registry import backends, get_backend
from distributed.comm.tcp import TCPBackend
from distributed.protocol import to_serialize

import wire_oracle
from comm_pairs import (
    EVERY_PAIR,
    OURS,
    STOCK,
    charged,
    comms,
    exchanged,
    listening,
    soon,
    until,
    with_raw_peer,
)
from message_shapes import MIB, noise
from spillway.dask.comm import SpillwayBackend, SpillwayComm, TakeoverBackend

pytestmark = pytest.mark.usefixtures("nothing_is_left")

every_pair = pytest.mark.parametrize("pair", EVERY_PAIR, ids="-".join)
KINDS = [OURS, STOCK]
HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def open_descriptors():
    return set(os.listdir("/proc/self/fd"))


# The handshake


async def test_two_spillway_peers_find_each_other():
    async with comms(OURS, OURS) as (near, far):
        assert near.peer_features == far.peer_features == {"unsplit"}
        told = near.remote_info["spillway"]
        assert (told["wire"], told["features"]) == (1, ("unsplit",))


@pytest.mark.parametrize("pair", [(OURS, STOCK), (STOCK, OURS)], ids="-".join)
async def test_a_stock_peer_has_no_features(pair):
    async with comms(*pair) as ends:
        (ours,) = [end for end in ends if isinstance(end, SpillwayComm)]
        assert ours.peer_features == frozenset()


@pytest.mark.parametrize(
    "theirs",
    [
        {"wire": 2, "features": ["unsplit"]},
        {"wire": 1},
        {"wire": 1, "features": []},
        {"wire": 1, "features": ["later"]},
        {"features": ["unsplit"]},
        {"wire": 1, "features": None},
        {"wire": 1, "features": 3},
        {"wire": 1, "features": [[1], {"a": 1}]},
        {"wire": [1], "features": "unsplit"},
        {},
        None,
        7,
        "unsplit",
        ["unsplit"],
    ],
    ids=repr,
)
async def test_another_wire_version_or_garbage_is_treated_as_stock(theirs, monkeypatch):
    monkeypatch.setattr(SpillwayComm, "max_shard_size", 100_000)
    array = noise(MIB)
    options = {"handshake_overrides": {"spillway": theirs}}
    async with comms(OURS, OURS, connect_options=options) as (near, far):
        assert far.peer_features == frozenset()
        assert near.peer_features == {"unsplit"}
        assert await shards_of(far, near, array) == 11
        assert await shards_of(near, far, array) == 1


async def shards_of(near, far, array):
    """In how many shards an array goes."""
    far.deserialize = False
    held = await exchanged(near, far, to_serialize(array))
    assert b"".join(held.frames) == array.tobytes()
    return len(held.frames)


# Addresses


@pytest.mark.parametrize(
    ("host", "default_host"),
    [
        ("127.0.0.1", None),
        ("::1", None),
        ("localhost", None),
        ("", None),
        ("", "localhost"),
        ("0.0.0.0", None),
        ("0.0.0.0", "localhost"),
        ("::", "::1"),
        ("127.0.0.1", "::1"),
    ],
)
async def test_listens_where_stock_does(host, default_host):
    def text(listener):
        return [
            address.split("://")[1].rpartition(":")[0]
            for address in (listener.listen_address, listener.contact_address)
        ]

    options = {"host": host, "default_host": default_host}
    async with listening(OURS, **options) as (ours, accepted):
        async with listening(STOCK, **options) as (stock, _):
            assert text(ours) == text(stock)
        for address in (ours.listen_address, ours.contact_address):
            assert address.startswith("spillway://")
            assert address.endswith(f":{ours.get_host_port()[1]}")
        comm = await connect(ours.contact_address)
        served = await soon(accepted.get())
        assert comm.peer_address == ours.contact_address
        assert comm.local_address == served.peer_address
        assert await exchanged(comm, served, "hello") == "hello"
        comm.abort()
        served.abort()


async def test_a_wildcard_is_reached_by_every_family():
    async with listening(OURS, host="") as (listener, accepted):
        port = listener.get_host_port()[1]
        for host in ("127.0.0.1", "[::1]", "localhost"):
            comm = await connect(f"{OURS}://{host}:{port}")
            served = await soon(accepted.get())
            assert await exchanged(served, comm, host) == host
            comm.abort()
            served.abort()


async def test_the_takeover_writes_tcp_addresses(monkeypatch):
    monkeypatch.setitem(backends, "tcp", TakeoverBackend())
    async with comms("tcp", "tcp") as (near, far):
        assert isinstance(near, SpillwayComm)
        assert isinstance(far, SpillwayComm)
        for end in (near, far):
            assert end.local_address.startswith("tcp://127.0.0.1:")
            assert end.peer_address.startswith("tcp://127.0.0.1:")


@pytest.mark.parametrize(
    "location", ["127.0.0.1:80", "[::1]:80", "localhost:80", "127.0.0.1"]
)
def test_address_methods_are_those_of_stock(location):
    ours, stock = SpillwayBackend(), TCPBackend()
    for method in (
        "get_address_host",
        "get_address_host_port",
        "resolve_address",
        "get_local_address_for",
    ):
        assert outcome(ours, method, location) == outcome(stock, method, location)


def outcome(backend, method, location):
    try:
        return getattr(backend, method)(location)
    except ValueError as error:
        return str(error)


async def test_addresses_stay_after_the_end():
    async with comms(OURS, OURS) as (near, far):
        before = near.local_address, near.peer_address, repr(near)
        near.abort()
        assert (near.local_address, near.peer_address) == before[:2]
        assert "(closed)" in repr(near)
        assert far.local_address in repr(near)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_port_in_use(kind):
    async with listening(STOCK) as (other, _):
        port = other.get_host_port()[1]
        with pytest.raises(OSError) as caught:
            await listen(f"{kind}://127.0.0.1:{port}", lambda comm: None)
        assert caught.value.errno == errno.EADDRINUSE


@pytest.mark.parametrize("kind", KINDS)
async def test_an_address_that_is_not_ours(kind):
    with pytest.raises(OSError) as caught:
        await listen(f"{kind}://192.0.2.1:0", lambda comm: None)
    assert caught.value.errno == errno.EADDRNOTAVAIL


async def test_a_listener_that_has_not_been_started_has_no_address():
    listener = listen(f"{OURS}://127.0.0.1:0", lambda comm: None)
    with pytest.raises(ValueError, match="not been started"):
        listener.get_host_port()


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_host(kind):
    with pytest.raises(socket.gaierror):
        await connector(kind).connect("no.such.host.invalid:80")


def connector(kind):
    return get_backend(kind).get_connector()


@pytest.fixture
def closed_port():
    """A port at which nobody answers, and nobody else can come to listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_connection(kind, closed_port):
    with pytest.raises(CommClosedError, match=r"refused|Refused") as caught:
        await connector(kind).connect(f"127.0.0.1:{closed_port}")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("kind", KINDS)
async def test_connect_gives_up_with_the_cause(kind, closed_port):
    with pytest.raises(OSError, match="Timed out trying to connect") as caught:
        await connect(f"{kind}://127.0.0.1:{closed_port}", timeout=0.2)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("kind", KINDS)
async def test_encryption_that_is_required_is_refused(kind):
    message = "encryption required by Dask configuration, refusing communication"
    with pytest.raises(RuntimeError, match=message):
        await connector(kind).connect("127.0.0.1:1", require_encryption=True)
    with pytest.raises(RuntimeError, match=message):
        listen(f"{kind}://127.0.0.1:0", lambda comm: None, require_encryption=True)


# Listening


async def test_what_is_not_dask_does_not_stop_the_others(caplog):
    """Another protocol on the port ends its own connection and no other."""
    async with listening(OURS) as (listener, accepted):
        host, port = listener.get_host_port()
        loop = asyncio.get_running_loop()
        for words in (HTTP_REQUEST, os.urandom(4096), b"\xff" * 64):
            stranger = socket.create_connection((host, port))
            stranger.setblocking(False)
            await loop.sock_sendall(stranger, words)
            answer = b""
            try:
                while piece := await soon(loop.sock_recv(stranger, 4096)):
                    answer += piece
            except ConnectionResetError:
                pass
            stranger.close()
            assert wire_oracle.content(wire_oracle.read_all(answer)[0].frames)
        comm = await connect(listener.contact_address)
        served = await soon(accepted.get())
        assert accepted.empty()
        assert await exchanged(comm, served, [1]) == (1,)
        comm.abort()
        served.abort()


async def test_an_http_request_is_named_in_the_error():
    async with with_raw_peer() as (comm, peer):
        await peer.send(HTTP_REQUEST)
        with pytest.raises(CommClosedError) as caught:
            await soon(comm.read())
        assert caught.value.__cause__.status in ("PROTOCOL", "LIMIT_EXCEEDED")
        assert comm.peer_address.partition("://")[2] in str(caught.value)
        assert comm.closed()


async def test_stopped_listener_accepts_no_more():
    async with listening(OURS) as (listener, _):
        address = listener.contact_address
    with pytest.raises(OSError):
        await connect(address, timeout=0.2)


async def test_stopping_leaves_what_is_connected():
    async with listening(OURS) as (listener, accepted):
        comm = await connect(listener.contact_address)
        served = await soon(accepted.get())
        listener.stop()
        assert await exchanged(comm, served, "still") == "still"
        comm.abort()
        served.abort()


async def test_a_peer_that_never_shakes_hands_is_aborted_with_the_listener():
    async with listening(OURS) as (listener, accepted):
        loop = asyncio.get_running_loop()
        stranger = socket.create_connection(listener.get_host_port())
        stranger.setblocking(False)
        assert await soon(loop.sock_recv(stranger, 1 << 16))  # ours has begun
        listener.stop()
        listener.abort_handshaking_comms()
        assert await soon(loop.sock_recv(stranger, 1)) == b""
        stranger.close()
        assert accepted.empty()


async def test_a_failing_handler_is_reported(caplog):
    async def fail(comm):
        comm.abort()
        raise ZeroDivisionError("in the handler")

    async with listening(OURS, handle=fail) as (listener, _):
        comm = await connect(listener.contact_address)
        with pytest.raises(CommClosedError):
            await soon(comm.read())
        comm.abort()
        assert "in the handler" in caplog.text
        again = await connect(listener.contact_address)
        again.abort()


async def test_a_plain_function_can_be_the_handler():
    served = asyncio.get_running_loop().create_future()
    async with listening(OURS, handle=served.set_result) as (listener, _):
        comm = await connect(listener.contact_address)
        (await soon(served)).abort()
        comm.abort()


async def test_many_connections_at_once():
    async with listening(OURS) as (listener, accepted):
        near = await soon(
            asyncio.gather(*(connect(listener.contact_address) for _ in range(100)))
        )
        far = {}
        for _ in near:
            comm = await soon(accepted.get())
            far[comm.peer_address] = comm
        for number, comm in enumerate(near):
            other = far[comm.local_address]
            assert await exchanged(comm, other, number) == number
            comm.abort()
            other.abort()


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
        comm = await connector(OURS).connect(f"127.0.0.1:{port}")
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
