"""What it costs a worker to receive values for which it has no room: growth of its
memory, and the time until all of them are on its disk.

    python benchmarks/receive_to_disk.py [COUNT [MIB]]

A worker with COUNT (40) arrays of MIB (32) each in memory is asked for all of them by
one whose target is four of them. In turn: by our store, and by Dask's SpillBuffer, both
with our comms.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

import dask
import numpy as np
from distributed import Client, Nanny, Scheduler, wait

import spillway.dask

MIB = 1 << 20
MEMORY = 4 << 30
SETTINGS = {
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.memory.spill-compression": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}
WAYS = {"our store": "", "Dask's": "store"}


def resident_bytes(process):
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def array(number, size):
    return np.random.default_rng(number).integers(0, 256, size, "u1")


async def worker(scheduler, target):
    with dask.config.set({"distributed.worker.memory.target": target}):
        return await Nanny(
            scheduler.address,
            memory_limit=MEMORY,
            nthreads=1,
            config=dask.config.config,
        )


async def until_on_disk(client, receiver, count):
    def on_disk(dask_worker):
        return len(dask_worker.data.slow)

    address = receiver.worker_address
    while (await client.run(on_disk, workers=[address]))[address] < count:
        await asyncio.sleep(0.01)


async def receive(count, size):
    async with Scheduler(dashboard_address=":0", port=0, host="127.0.0.1") as scheduler:
        sender = await worker(scheduler, 0.9)
        receiver = await worker(scheduler, 4.5 * size / MEMORY)
        async with Client(scheduler.address, asynchronous=True) as client:
            futures = [
                client.submit(array, number, size, workers=[sender.worker_address])
                for number in range(count)
            ]
            await wait(futures)
            before = peak = resident_bytes(receiver.pid)
            start = time.perf_counter()
            moving = asyncio.ensure_future(
                client.replicate(futures, workers=[receiver.worker_address], n=2)
            )
            while not moving.done():
                peak = max(peak, resident_bytes(receiver.pid))
                await asyncio.sleep(0.005)
            await moving
            await until_on_disk(client, receiver, count - 4)
            took = time.perf_counter() - start
        await asyncio.gather(sender.close(), receiver.close())
    return (peak - before) / MIB, took


async def main(count=40, mebibytes=32):
    print(f"{'':12} growth, MiB    seconds")
    for name, os.environ["SPILLWAY_DISABLE"] in WAYS.items():
        with dask.config.set(SETTINGS):
            spillway.dask.enable()
            growth, took = await receive(count, mebibytes * MIB)
            spillway.dask.disable()
        print(f"{name:12} {growth:11.0f} {took:10.1f}")


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
