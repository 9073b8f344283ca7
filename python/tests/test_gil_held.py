"""A process whose GIL is held answers who connects, and receives what they send."""

import asyncio
import contextlib
import select
import socket
import subprocess
import sys
import zlib

from distributed.comm.core import connect

from comm_pairs import OURS, soon
from message_shapes import MIB, noise

HELD_S = 5
SERVER = """
import asyncio, ctypes, sys, zlib

from distributed.comm.core import listen
from distributed.comm.registry import backends
from spillway import _native
from spillway.dask.backends import SpillwayBackend

backends["spillway"] = SpillwayBackend()


async def main():
    accepted = asyncio.Queue()

    async def keep(comm):
        accepted.put_nowait(comm)

    async with listen("spillway://127.0.0.1:0", keep) as listener:
        before = _native.figures()["messages_received"]
        # From here on the loop has no turn, and no Python code runs elsewhere, until
        # the last line is out; so what it counts was received meanwhile.
        print(listener.contact_address, flush=True)
        ctypes.PyDLL(None).usleep(int(float(sys.argv[1]) * 1e6))
        print(_native.figures()["messages_received"] - before, flush=True)
        comm = await accepted.get()
        print(zlib.crc32(await comm.read()), flush=True)
        comm.abort()


asyncio.run(main())
"""


@contextlib.contextmanager
def holder(seconds):
    """A process that listens, and holds its GIL from when it has said where."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(seconds)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def line_of(process):
    return process.stdout.readline().strip()


def has_keep_alive(local, peer):
    """Whether the kernel has a keep-alive timer for a connection of this machine."""

    def text(address):
        host, port = address
        return f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"

    with open("/proc/net/tcp") as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == [text(local), text(peer)]:
                return fields[5].startswith("02:")
    raise AssertionError("there is no such connection")


def address_of(text):
    host, _, port = text.partition("://")[2].rpartition(":")
    return host, int(port)


async def test_who_connects_is_answered_and_heard():
    data = bytes(noise(3 * MIB))
    with holder(HELD_S) as process:
        address = line_of(process)
        assert address.startswith(f"{OURS}://")
        comm = await connect(address)
        assert comm.remote_info["spillway"]["wire"] == 1
        await comm.write(data)
        while comm._stream.queued_bytes():
            await asyncio.sleep(0)
        ends = address_of(comm.peer_address), address_of(comm.local_address)
        while not has_keep_alive(*ends):
            await asyncio.sleep(0)
        readable, _, _ = select.select([process.stdout], [], [], 0)
        assert not readable, "the GIL was free before everything had been sent"
        # The handshake, and the message.
        assert await soon(asyncio.to_thread(line_of, process)) == "2"
        assert await soon(asyncio.to_thread(line_of, process)) == str(zlib.crc32(data))
        comm.abort()
