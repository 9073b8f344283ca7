"""Programs for processes of their own, whose end is what is tested: each has a transfer
under way, both ways and by threads, when something happens to it.

    python thread_scripts.py NAME

A program prints `ready` once the transfer is under way. Dask's offload thread must be
off (DASK_DISTRIBUTED__COMM__OFFLOAD=False), since a forked child has no copy of it."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import zlib

from distributed.protocol import to_serialize

from comm_pairs import OURS, comms, exchanged, soon
from spillway import stats

BODY = os.urandom(1 << 20) * 48
SUM = zlib.crc32(BODY)


def threads_of_process():
    """Threads of the library in this process, as the system sees them."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(f"/proc/self/task/{thread}/comm") as file:
                names.append(file.read().strip())
    return names.count("spillway-io")


def body(data):
    return {"data": to_serialize(data)}


def sum_of(message):
    value = message["data"]
    while hasattr(value, "data"):
        value = value.data
    return zlib.crc32(value)


async def both_ways(near, far):
    """Both ends send and receive at once. Returns whether all of it was right."""
    received = await soon(
        asyncio.gather(
            near.write(body(BODY)), far.write(body(BODY)), near.read(), far.read()
        )
    )
    return [sum_of(message) for message in received[2:]] == [SUM, SUM]


@contextlib.asynccontextmanager
async def under_way():
    """Comms whose one end sends and whose other end has begun to receive, and has yet
    to hear of the rest."""
    async with comms(OURS, OURS) as (near, far):
        assert await exchanged(near, far, "small") == "small"
        await near.write(body(BODY))
        reading = asyncio.ensure_future(far.read())
        while not stats()["budget"]["in_flight"]:
            await asyncio.sleep(0)
        yield near, far, reading


async def an_exit():
    async with under_way():
        print("ready", flush=True)
        sys.exit(0)


async def an_exception():
    async with under_way():
        print("ready", flush=True)
        raise RuntimeError("a user's mistake")


async def an_exit_without_a_word():
    async with under_way():
        print("ready", flush=True)
        os._exit(0)


def an_exit_beside_a_loop():
    """The loop runs in a daemon thread, as that of a client of Dask does."""
    ready = threading.Event()

    async def forever():
        async with under_way():
            ready.set()
            await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(forever()), daemon=True).start()
    assert ready.wait(30)
    print("ready", flush=True)


async def termination():
    async with under_way():
        print("ready", flush=True)
        await asyncio.Event().wait()


async def termination_with_a_handler():
    """As nannies and workers do it: the loop hears of it, and closes in order."""
    async with under_way() as (near, _, reading):
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        print("ready", flush=True)
        await asked.wait()
        assert sum_of(await soon(reading)) == SUM
        await soon(near.close())
        print("closed", flush=True)


async def own_comms():
    async with comms(OURS, OURS) as (near, far):
        assert await both_ways(near, far)
        assert threads_of_process() > 0


def in_the_child():
    asyncio.run(own_comms())


def fork_by_hand():
    """In the thread of a worker that runs the task."""
    child = os.fork()
    if child == 0:
        try:
            in_the_child()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def forked_by_hand():
    async with under_way() as (near, far, reading):
        code = asyncio.get_running_loop().run_in_executor(None, fork_by_hand)
        await goes_on(near, far, reading)
        assert await soon(code) == 0
        assert await both_ways(near, far)
    print("ready", flush=True)


async def forked_by_multiprocessing():
    """In the loop's own thread: in another the child would meet a fault of Python's own
    when it ends. It goes through the interpreter's cleaning up."""
    async with under_way() as (near, far, reading):
        child = multiprocessing.get_context("fork").Process(target=in_the_child)
        child.start()
        await goes_on(near, far, reading)
        await soon(asyncio.get_running_loop().run_in_executor(None, child.join))
        assert child.exitcode == 0
        assert await both_ways(near, far)
    print("ready", flush=True)


async def goes_on(near, far, reading):
    assert sum_of(await soon(reading)) == SUM
    assert await both_ways(near, far)


PROGRAMS = {
    "exit": lambda: asyncio.run(an_exit()),
    "exception": lambda: asyncio.run(an_exception()),
    "exit without a word": lambda: asyncio.run(an_exit_without_a_word()),
    "exit beside a loop": an_exit_beside_a_loop,
    "termination": lambda: asyncio.run(termination()),
    "termination with a handler": lambda: asyncio.run(termination_with_a_handler()),
    "fork by hand": lambda: asyncio.run(forked_by_hand()),
    "fork by multiprocessing": lambda: asyncio.run(forked_by_multiprocessing()),
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
