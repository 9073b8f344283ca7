"""Listeners as Dask sees them: where they listen, and who is served."""

import asyncio
import errno
import os
import socket

import pytest
from distributed.comm.core import CommClosedError, connect, listen

import wire_oracle
from comm_pairs import HTTP_REQUEST, OURS, STOCK, exchanged, listening, soon

pytestmark = pytest.mark.usefixtures("nothing_is_left")

KINDS = [OURS, STOCK]


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
