"""What it costs a worker to send values that are on disk: growth of its memory, the
longest time in which its loop was away, and the time.

    python benchmarks/send_from_disk.py [COUNT [MIB]]

A worker has COUNT (64) arrays of MIB (32) each on disk, and another process asks for
one after the other. In turn: Dask's SpillBuffer and comms; our store and comms; the
same to a peer that has Dask's comms; our store with Dask's comms. Each once with the
files in the system's cache, and once without.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

MIB = 1 << 20
WAYS = {
    "stock": ("stock", "stock"),
    "ours": ("ours", "ours"),
    "ours, to a stock peer": ("ours", "stock"),
    "our store, stock comms": ("store", "stock"),
}


def resident_bytes(name):
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024


def drop_from_cache(directory):
    """Have the system forget what it has of the files that this process has on disk."""
    os.sync()
    names = [f"/proc/self/fd/{one}" for one in os.listdir("/proc/self/fd")]
    names += map(str, Path(directory).rglob("*"))
    for name in names:
        if Path(name).is_file():
            descriptor = os.open(name, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


async def measure_lag(worst):
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        worst[0] = max(worst[0], time.perf_counter() - before - 0.001)


async def send(kind, count, size):
    """The worker's process."""
    import dask
    import numpy
    from distributed import Scheduler, Worker

    if kind == "ours":
        from spillway.dask import enable

        enable()
    dask.config.set({"distributed.logging": {"distributed": "error"}})
    options = {"dashboard_address": ":0", "protocol": "tcp"}
    async with (
        Scheduler(**options) as scheduler,
        Worker(
            scheduler.address, memory_limit="64GiB", nthreads=1, dashboard_address=":0"
        ) as worker,
    ):
        closing = None
        if kind != "stock":
            sys.path.insert(0, str(Path(__file__).parents[1] / "python" / "tests"))
            from spillway.dask import store_get_data
            from stored_values import mini_store

            closing = mini_store()
            store = closing.__enter__()
            worker.memory_manager.data = worker.state.data = store
            worker.handlers["get_data"] = store_get_data.handler_for(worker, store)
        for number in range(count):
            worker.update_data({number: numpy.full(size, number, "u1")})
            if closing is not None:
                store.entry(number).spill()
            else:
                spill_all(worker)
        await measured(worker)
        if closing is not None:
            await asyncio.sleep(0)
            closing.__exit__(None, None, None)


def spill_all(worker):
    """Of Dask's, which has in memory what it has sent."""
    while getattr(worker.data, "fast", None):
        worker.data.evict()


async def measured(worker):
    loop, worst = asyncio.get_running_loop(), [0.0]
    lag = asyncio.create_task(measure_lag(worst))
    while True:
        print(worker.address, flush=True)
        how = (await loop.run_in_executor(None, sys.stdin.readline)).strip()
        if not how:
            break
        spill_all(worker)
        if how == "cold":
            drop_from_cache(worker.local_directory)
        gc.collect()
        await asyncio.sleep(0.1)  # the lag of that is nobody's
        before, worst[0] = resident_bytes("VmRSS"), 0.0
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
        print("go", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        growth = resident_bytes("VmHWM") - before
        print(json.dumps({"growth": growth, "lag": worst[0]}), flush=True)
    lag.cancel()


async def ask(kind, address, count):
    """The process that asks. Prints how long it took."""
    if kind == "ours":
        from spillway.dask import enable

        enable()
    from distributed.core import ConnectionPool
    from distributed.worker import get_data_from_worker

    pool = await ConnectionPool()
    start = time.perf_counter()
    for number in range(count):
        reply = await get_data_from_worker(pool, [number], address)
        assert (reply["data"][number][:: 1 << 20] == number).all()
        del reply
    print(time.perf_counter() - start, flush=True)
    await pool.close()


def run(way, count, size):
    sender, asker = WAYS[way]
    environment = {**os.environ, "SPILLWAY_DISABLE": ""}
    command = [sys.executable, __file__, "--send", sender, str(count), str(size)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:

        def say(what):
            process.stdin.write(f"{what}\n")
            process.stdin.flush()

        for how in ("warm", "cold"):
            address = process.stdout.readline().strip()
            say(how)
            process.stdout.readline()
            seconds = subprocess.run(
                [sys.executable, __file__, "--ask", asker, address, str(count)],
                env=environment,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout
            say("done")
            result = json.loads(process.stdout.readline())
            print(
                f"{way:24} {how:5} growth {result['growth'] / MIB:7.1f} MiB   longest "
                f"lag {result['lag'] * 1e3:7.1f} ms   {float(seconds):6.2f} s",
                flush=True,
            )
        process.stdout.readline()
        say("")


def main(arguments):
    if arguments[:1] == ["--send"]:
        asyncio.run(send(arguments[1], *map(int, arguments[2:])))
    elif arguments[:1] == ["--ask"]:
        asyncio.run(ask(arguments[1], arguments[2], int(arguments[3])))
    else:
        count, mib = [*map(int, arguments), *(64, 32)[len(arguments) :]]
        for way in WAYS:
            run(way, count, mib * MIB)


if __name__ == "__main__":
    main(sys.argv[1:])
