"""Tasks each of which needs one value that is on disk, with reading ahead and without.

    python benchmarks/read_ahead.py [COUNT [MIB [THREADS]]]

A worker with a memory limit of 20 values and THREADS (1) threads has COUNT (24) arrays
of MIB (48) on disk, and a task for each, that goes through it a few times. In turn,
with the files in the system's cache and without: with reading ahead, and with none (a
share of 0). Prints the time, for how long of it the tasks (all together) waited for
their values, and how many bytes were read, read ahead, used of that, and dropped.
"""

import asyncio
import logging
import os
import sys
import time
from pathlib import Path

import dask
import numpy
from distributed import Client, Scheduler, Worker, wait

from spillway.dask import enable, hook_store

MIB = 1 << 20
VALUES_IN_MEMORY = 20
BY_WEIGHT_ALONE = {
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.spill-compression": False,
}


def made(number, size):
    return numpy.full(size, number, "u1")


def work(value, number):
    """Goes through it a few times, mostly without Python's lock."""
    for _ in range(4):
        assert int(value.sum(dtype="u8")) == number * value.size
    return number


def drop_from_cache():
    """Have the system forget what it has of the files that this process has open."""
    os.sync()
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if Path(path).is_file() and "spillway-store" in os.readlink(path):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


async def spill_all(store, keys):
    for key in keys:
        await asyncio.to_thread(store.entry(key).spill)
    while store.figures()["live"]["count"]:
        store._native.evict(1 << 40)
        await asyncio.sleep(0.01)


async def run(share, is_cold, count, size, threads):
    hook_store.READ_AHEAD_SHARE = share
    async with (
        Scheduler(dashboard_address=":0", port=0, host="127.0.0.1") as scheduler,
        Worker(
            scheduler.address, nthreads=threads, memory_limit=VALUES_IN_MEMORY * size
        ) as worker,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        store = worker.data
        values = client.map(made, range(count), size=size)
        await wait(values)
        await spill_all(store, [value.key for value in values])
        if is_cold:
            drop_from_cache()
        before = store.figures()
        start = time.perf_counter()
        users = [client.submit(work, value, n) for n, value in enumerate(values)]
        del values
        await wait(users)
        took = time.perf_counter() - start
        after = store.figures()
        waited = sum(
            one["stop"] - one["start"]
            for user in users
            for one in worker.state.tasks[user.key].startstops
            if one["action"] == "disk-read"
        )
        names = ("read", "ahead", "ahead_used", "ahead_dropped")
        parts = [
            f"{name} {(after[f'{name}_bytes'] - before[f'{name}_bytes']) / MIB:6.0f}"
            for name in names
        ]
        print(
            f"{'cold' if is_cold else 'warm'}  {'ahead' if share else 'none ':5}  "
            f"{took:6.2f} s, waited {waited:5.2f} s   {'   '.join(parts)} MiB",
            flush=True,
        )


async def main(arguments):
    count, mib, threads = [*map(int, arguments), *(24, 48, 1)[len(arguments) :]]
    share = hook_store.READ_AHEAD_SHARE
    dask.config.set(BY_WEIGHT_ALONE)
    enable()
    logging.getLogger("distributed").setLevel(logging.ERROR)
    for is_cold in (False, True):
        for one in (share, 0, share, 0):
            await run(one, is_cold, count, mib * MIB, threads)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
