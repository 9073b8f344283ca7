"""A process of its own to talk to, on this very host.

    python host_peer.py [WHAT ...]

It listens, prints its address, and does with each comm what the messages say. WHAT
happens before: `refuse-reads` (nothing may read another process's memory),
`busy` (a thread that never gives the GIL away of itself)."""

import asyncio
import contextlib
import ctypes
import os
import platform
import signal
import subprocess
import sys
import threading

import numpy
from distributed.comm.core import connect, listen
from distributed.protocol import to_serialize

from comm_pairs import soon
from spillway import stats

HOSTS = "spillway://127.0.0.1:0"
LARGE = 3_000_001  # bytes: more than goes by the loop's thread, and no round number


def array(size=LARGE, seed=1):
    return numpy.random.default_rng(seed).integers(0, 256, size, "u1")


async def ask(comm, **message):
    await comm.write(message)
    return await soon(comm.read())


async def exchange_large(comm, times=3, size=LARGE):
    """Have arrays sent back; every byte is compared."""
    for seed in range(times):
        sent = array(size, seed)
        got = await ask(comm, op="echo", data=to_serialize(sent))
        assert numpy.array_equal(got, sent)


def of_host(before, after):
    """What changed in the figures of same_host."""
    return {key: after[key] - before[key] for key in after}


@contextlib.asynccontextmanager
async def peer(*what, stderr=None, **environment):
    """The process, and a comm to it."""
    process = subprocess.Popen(
        [sys.executable, __file__, *what],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **environment},
        text=True,
    )
    try:
        address = await asyncio.to_thread(process.stdout.readline)
        comm = await connect(address.strip())
        try:
            yield process, comm
        finally:
            comm.abort()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# ---- in the process ----


class Filter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    )


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter)))


def refuse_reads():
    """process_vm_readv answers EPERM from now on, by seccomp."""
    number = {"x86_64": 310, "aarch64": 270}[platform.machine()]
    steps = (Filter * 4)(
        Filter(0x20, 0, 0, 0),  # load the number of the call
        Filter(0x15, 0, 1, number),  # if it is this one
        Filter(0x06, 0, 0, 0x00050000 | 1),  # answer EPERM
        Filter(0x06, 0, 0, 0x7FFF0000),  # else allow it
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(steps), steps)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp here")


def keep_busy():
    def run():
        while True:
            sum(range(10_000))

    sys.setswitchinterval(0.05)
    threading.Thread(target=run, daemon=True).start()


async def serve(comm):
    with contextlib.suppress(OSError):
        while True:
            message = await comm.read()
            op = message["op"]
            if op == "echo":
                await comm.write(to_serialize(message["data"].data))
            elif op == "stats":
                await comm.write(stats())
            elif op == "descriptors":
                await comm.write(len(os.listdir("/proc/self/fd")))
            elif op == "pause":  # and never read again
                await comm.write("paused")
                await asyncio.Event().wait()
            elif op == "send":  # something large, and then come to some end
                await comm.write(to_serialize(array(message["size"], 7)))
                await END[message["end"]](comm)
                return


async def close(comm):
    await comm.close()


async def drop(comm):
    comm.abort()


async def kill(comm):
    os.kill(os.getpid(), signal.SIGKILL)


async def leave(comm):
    """The interpreter ends once the comm is closed."""
    await comm.close()
    stopping.set()


END = {"close": close, "abort": drop, "kill": kill, "leave": leave}


async def main(what):
    global stopping
    stopping = asyncio.Event()
    if "refuse-reads" in what:
        refuse_reads()
    if "busy" in what:
        keep_busy()
    async with await listen(HOSTS, serve, deserialize=True) as listener:
        print(listener.contact_address, flush=True)
        await stopping.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
