"""What the library has cached goes back, by the loops that have connections."""

import asyncio
import subprocess
import sys

import pytest
from distributed import Client, LocalCluster, system

from spillway import _native
from spillway.dask import enable, pool_trimmer
from spillway.dask.pool_trimmer import PoolTrimmer, trimmer_of

GIVE_BACK = """
import asyncio, os, sys, time
import numpy as np
from distributed.comm import connect, listen
from distributed.protocol import to_serialize
from spillway import stats
from spillway.dask import enable, pool_trimmer

MIB = 2**20
SIZES = [512 * MIB, *[MIB] * 64, *[64 * 1024] * 1024]

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

async def main():
    enable()
    pool_trimmer.limit_memory("test", 6400 * MIB)
    received = asyncio.Queue()

    async def serve(comm):
        received.put_nowait(await comm.read())

    listener = await listen("tcp://127.0.0.1:0", serve)
    comm = await connect(listener.contact_address)
    arrays = [np.ones(size, "u1") for size in SIZES]
    before = resident()
    await comm.write([to_serialize(array) for array in arrays])
    message = await received.get()
    assert sum(int(array.sum()) for array in message) == sum(SIZES)
    assert resident() > before + sum(SIZES)
    message = None
    assert stats()["budget"]["pooled"] >= sum(SIZES)
    assert resident() > before + sum(SIZES)
    left = before + 0.05 * 6400 * MIB + 32 * MIB
    deadline = time.monotonic() + 2
    while resident() > left:
        assert time.monotonic() < deadline, (resident() - before) / MIB
        await asyncio.sleep(0.05)
    assert stats()["budget"]["pooled"] <= 0.05 * 6400 * MIB
    await comm.close()
    listener.stop()

asyncio.run(main())
"""


def test_idle_memory_goes_back_within_two_seconds():
    subprocess.run([sys.executable, "-c", GIVE_BACK], check=True, timeout=60)


class FakeLibrary:
    """Answers trim() in turn, and keeps what it was asked."""

    def __init__(self, monkeypatch, answers):
        self.answers = list(answers)
        self.asked = []
        self.is_done = asyncio.Event()
        monkeypatch.setattr(_native, "trim", self.trim)

    def trim(self, keep_bytes, older_than_ms):
        self.asked.append((keep_bytes, older_than_ms))
        if len(self.asked) == len(self.answers):
            self.is_done.set()
        return self.answers[len(self.asked) - 1]


async def test_timer_runs_while_there_is_something_and_no_longer(monkeypatch):
    monkeypatch.setattr(pool_trimmer, "IDLE_MS", 1)
    monkeypatch.setattr(pool_trimmer, "LONG_IDLE_MS", 50)
    pool_trimmer.limit_memory("test", 1000)
    loop = asyncio.get_running_loop()
    armed = []
    call_later = loop.call_later
    monkeypatch.setattr(
        loop, "call_later", lambda *arguments: armed.append(call_later(*arguments))
    )
    library = FakeLibrary(monkeypatch, [1, 50, 3, 2, None, None, None, None])
    try:
        trimmer = PoolTrimmer()
        for _ in range(5):
            trimmer.watch()
        assert len(armed) == 1
        while len(library.asked) < 6:
            await asyncio.sleep(0)
        assert library.asked == [(50, 1), (0, 50)] * 3
        assert len(armed) == 3
        trimmer.watch()
        await library.is_done.wait()
        assert len(armed) == 4
    finally:
        pool_trimmer.forget_limit("test")


async def test_each_loop_has_one_trimmer():
    loop = asyncio.get_running_loop()
    assert trimmer_of(loop) is trimmer_of(loop)

    async def of_its_own():
        return trimmer_of(asyncio.get_running_loop())

    other = await asyncio.to_thread(asyncio.run, of_its_own())
    assert other is not trimmer_of(loop)


def test_the_least_limit_counts(monkeypatch):
    told = []
    monkeypatch.setattr(_native, "limit_resident", lambda *both: told.append(both))
    assert pool_trimmer.memory_limit() == system.MEMORY_LIMIT
    pool_trimmer.limit_memory("one", 2000)
    pool_trimmer.limit_memory("other", 1000)
    assert pool_trimmer.memory_limit() == 1000
    pool_trimmer.forget_limit("other")
    assert pool_trimmer.memory_limit() == 2000
    pool_trimmer.forget_limit("one")
    pool_trimmer.forget_limit("one")
    assert pool_trimmer.memory_limit() == system.MEMORY_LIMIT
    pool_trimmer.limit_memory("early", 2000, full_bytes=900)
    pool_trimmer.limit_memory("late", 2000, full_bytes=1900)
    pool_trimmer.forget_limit("early")
    pool_trimmer.forget_limit("late")
    whole = int(0.6 * system.MEMORY_LIMIT), int(0.125 * system.MEMORY_LIMIT)
    least = [(1200, 250), (600, 125), (1200, 250), whole, whole]
    assert told == [*least, (900, 250), (900, 250), (1200, 250), whole]


OUTLIVED = """
import asyncio, time
import numpy as np
from distributed.comm import connect, listen
from distributed.protocol import to_serialize
from spillway import stats
from spillway.dask import enable, pool_trimmer

async def main():
    received = asyncio.Queue()

    async def serve(comm):
        received.put_nowait(await comm.read())

    async with listen("tcp://127.0.0.1:0", serve) as listener:
        comm = await connect(listener.contact_address)
        await comm.write(to_serialize(np.ones(256 << 20, "u1")))
        value = await received.get()
        await comm.close()
    return value

enable()
pool_trimmer.limit_memory("test", 1 << 30)
value = asyncio.run(main())
assert stats()["budget"]["held"] >= 256 << 20
del value
end = time.monotonic() + 20
while stats()["budget"]["pooled"] > 0.05 * 2**30:
    assert time.monotonic() < end, stats()["budget"]
    time.sleep(0.05)
"""


def test_values_that_outlive_their_loop_are_given_back():
    subprocess.run([sys.executable, "-c", OUTLIVED], check=True, timeout=60)


@pytest.mark.timeout(60)
async def test_workers_obey_their_own_limit():
    enable()
    async with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            memory_limit="1GiB",
            dashboard_address=":0",
            asynchronous=True,
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        (limit,) = (await client.run(pool_trimmer.memory_limit)).values()
    assert limit == 2**30
