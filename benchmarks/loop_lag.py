"""How late a worker's event loop is at worst while large values are made and spilled,
read back, and deleted, and how long all of that takes.

Every few milliseconds the loop is asked to call back. How late it does is its lag, less
what the garbage collector took meanwhile, which is no part of a data plane.

Of a bare loop (``--plane none``) it is how late a loop is that has nothing to do, in a
process of which one other thread makes the same values, writes them past the system's
cache and reads them back: what the machine does to any loop beside such work.
"""

import argparse
import asyncio
import json
import mmap
import os
import tempfile
import time
from typing import Any

import counted_values
from spilling_cluster import (
    Process,
    assert_used,
    cluster,
    memory_bytes,
    processes,
    wait_until_still,
    wait_until_written,
    written_bytes,
)

PERIOD_S = 0.005
STEP_BYTES = 32 << 20
"""Memory that a worker needs by itself comes and goes by less."""


class Probe:
    """Measures the lag of the loop in which it is started."""

    def __init__(self) -> None:
        import asyncio
        import gc

        self.lags: list[float] = []
        self._collecting = self._collected = 0.0
        gc.callbacks.append(self._on_collection)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        import asyncio

        while True:
            before, collected = time.perf_counter(), self._collected
            await asyncio.sleep(PERIOD_S)
            late = time.perf_counter() - before - PERIOD_S
            self.lags.append(late - (self._collected - collected))

    def _on_collection(self, phase: str, info: Any) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._collected += time.perf_counter() - self._collecting

    def stop(self) -> list[float]:
        """All lags, in order of size."""
        import gc

        gc.callbacks.remove(self._on_collection)
        self._task.cancel()
        return sorted(self.lags)


async def start_probe(dask_worker: Any) -> None:
    dask_worker.lag_probe = Probe()


async def stop_probe(dask_worker: Any) -> list[float]:
    return dask_worker.lag_probe.stop()


PIECE_BYTES = 4 << 20
"""Written and read at once."""


def make_write_and_read(count: int, size: int) -> None:
    """What one thread does beside a bare loop."""
    with tempfile.TemporaryFile() as file, mmap.mmap(-1, PIECE_BYTES) as through:
        direct = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDWR | os.O_DIRECT)
        try:
            for number in range(count):
                value = counted_values.make_plain(number, size)
                for start in range(0, size, PIECE_BYTES):
                    through[:] = value[start : start + PIECE_BYTES].data
                    os.pwrite(direct, through, start)
            for _ in range(count):
                for start in range(0, size, PIECE_BYTES):
                    os.preadv(direct, [through], start)
        finally:
            os.close(direct)


async def beside_a_bare_loop(count: int, size: int) -> list[float]:
    """All lags of a loop beside that, in order of size."""
    probe = Probe()
    await asyncio.to_thread(make_write_and_read, count, size)
    return probe.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway", "none"], required=True)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--mib", type=int, default=256)
    arguments = parser.parse_args()
    size = arguments.mib << 20
    if arguments.plane == "none":
        lags = asyncio.run(beside_a_bare_loop(arguments.count, size))
        print(json.dumps({"worst_s": lags[-1], "p99_s": lags[int(len(lags) * 0.99)]}))
        return
    with cluster(arguments.plane, n_workers=1, memory_limit="2GiB") as client:
        from distributed import wait

        (process,) = processes(client).values()
        client.run(start_probe)
        start = time.perf_counter()
        values = client.map(
            counted_values.make_plain, range(arguments.count), size=size, pure=False
        )
        wait(values)
        seconds = wait_until_written([process]) - start
        start = time.perf_counter()
        sums = client.gather(client.map(counted_values.look, values, pure=False))
        seconds += wait_until_written([process]) - start
        assert_used(client, arguments.plane)
        start = time.perf_counter()
        del values
        seconds += wait_until_given_back(process) - start
        (lags,) = client.run(stop_probe).values()
        written = written_bytes(process)
    for number, found in enumerate(sums):
        assert found == counted_values.look(counted_values.make_plain(number, size))
    print(
        json.dumps(
            {
                "worst_s": lags[-1],
                "p99_s": lags[int(len(lags) * 0.99)],
                "seconds": seconds,
                "written_bytes": written,
            }
        )
    )


def wait_until_given_back(process: Process) -> float:
    """Until its memory shrinks no more. When it did last."""
    return wait_until_still(lambda: memory_bytes(process, "VmRSS") // STEP_BYTES)


if __name__ == "__main__":
    main()
