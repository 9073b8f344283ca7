"""Comms of both kinds in one process: Dask's own behind tcp://, ours behind
spillway://. The bytes do not say which scheme they came by, so each kind can connect to
the other."""

import asyncio
import contextlib
import os
import socket

from distributed.comm.core import connect, listen
from distributed.comm.registry import get_backend

from spillway import stats
from spillway.dask.backends import SpillwayBackend

STOCK, OURS = "tcp", "spillway"
EVERY_PAIR = [(OURS, OURS), (OURS, STOCK), (STOCK, OURS)]
PATIENCE_S = 30
HTTP_REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.asynccontextmanager
async def listening(kind, host="127.0.0.1", handle=None, **options):
    """A listener, and a queue of the comms that it accepted."""
    accepted = asyncio.Queue()

    async def keep(comm):
        accepted.put_nowait(comm)

    location = f"[{host}]" if ":" in host else host
    listener = listen(f"{kind}://{location}:0", handle or keep, **options)
    await listener.start()
    try:
        yield listener, accepted
    finally:
        listener.stop()
        listener.abort_handshaking_comms()
        while not accepted.empty():
            accepted.get_nowait().abort()


@contextlib.asynccontextmanager
async def comms(near, far, *, connect_options=None, **listen_options):
    """A connected pair after the handshake, the near one being who connected."""
    async with listening(far, **listen_options) as (listener, accepted):
        address = listener.contact_address.replace(f"{far}://", f"{near}://")
        ours = await connect(address, **(connect_options or {}))
        theirs = await soon(accepted.get())
        try:
            yield ours, theirs
        finally:
            ours.abort()
            theirs.abort()


def connector_of(kind):
    return get_backend(kind).get_connector()


async def soon(awaitable):
    """The result, or an error where a test would otherwise hang."""
    return await asyncio.wait_for(awaitable, PATIENCE_S)


async def until(condition):
    """Let the loop turn until something has happened."""

    async def turn():
        while not condition():
            await asyncio.sleep(0)

    await soon(turn())


async def exchanged(near, far, message, **write_options):
    """A message as it is after the way from near to far."""
    _, received = await soon(
        asyncio.gather(near.write(message, **write_options), far.read())
    )
    return received


class RawPeer:
    """A plain socket that speaks whatever a test makes it say."""

    def __init__(self, connection):
        self.socket = connection

    async def send(self, data):
        loop = asyncio.get_running_loop()
        await soon(loop.sock_sendall(self.socket, data))

    async def receive(self, size):
        loop = asyncio.get_running_loop()
        data = b""
        while len(data) < size:
            piece = await soon(loop.sock_recv(self.socket, size - len(data)))
            if not piece:
                raise EOFError(f"{len(data)} of {size} bytes")
            data += piece
        return data

    async def receive_rest(self):
        loop = asyncio.get_running_loop()
        pieces = []
        while piece := await soon(loop.sock_recv(self.socket, 1 << 20)):
            pieces.append(piece)
        return b"".join(pieces)

    def reset(self):
        """Close so that the other side gets a reset."""
        linger = b"\1\0\0\0\0\0\0\0"
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()

    def close(self):
        self.socket.close()


@contextlib.asynccontextmanager
async def with_raw_peer():
    """A comm of ours that has connected to a plain socket, without a handshake. It does
    not compress, as between peers on one host."""
    connector = SpillwayBackend().get_connector()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        loop = asyncio.get_running_loop()
        host, port = server.getsockname()
        comm = await connector.connect(f"{host}:{port}")
        accepted, _ = await soon(loop.sock_accept(server))
    comm.handshake_options["compression"] = None
    accepted.setblocking(False)
    peer = RawPeer(accepted)
    try:
        yield comm, peer
    finally:
        comm.abort()
        peer.close()


def charged():
    """The bytes that the budget has charged now, by account."""
    budget = stats()["budget"]
    return {account: budget[account] for account in ("held", "queued", "in_flight")}


def open_descriptors():
    """Those of this process."""
    return set(os.listdir("/proc/self/fd"))
