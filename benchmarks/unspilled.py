"""Jobs for which memory suffices, so that nothing leaves it: what a store costs those
who have no use for it."""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from spilling_cluster import assert_used, cluster, cpu_seconds, processes

FRAMES, OUTPUTS = 32, 64

Job = Callable[[], tuple[float, Any]]
"""Answers how much was done, and what of it the workers still have."""


def increment(x: int) -> int:
    return x + 1


def total(*numbers: int) -> int:
    return sum(numbers)


def tasks(client: Any) -> Job:
    """Many small tasks, and a tree that sums them up. Tasks a second."""
    from distributed import wait

    count = 10_000

    def run() -> tuple[float, Any]:
        values = client.map(increment, range(count), pure=False)
        wait(values)
        level, done = values, count
        while len(level) > 1:
            level = [
                client.submit(total, *level[i : i + 8], pure=False)
                for i in range(0, len(level), 8)
            ]
            done += len(level)
        assert level[0].result() == sum(range(1, count + 1))
        return done, values

    return run


def part(number: int, rows: int) -> pd.DataFrame:
    """Keys, and twelve columns of floats: 104 bytes a row."""
    random = np.random.default_rng(number)
    columns = {f"v{i}": random.random(rows) for i in range(12)}
    return pd.DataFrame({"key": random.integers(0, 1 << 40, rows), **columns})


def frames(parts: int, rows: int) -> Any:
    """A DataFrame of many parts, in memory."""
    import dask.dataframe as dd
    from distributed import wait

    made = dd.from_map(part, range(parts), rows=rows, meta=part(0, 1)).persist()
    wait(made)
    return made


def shuffle(client: Any) -> Job:
    """A DataFrame of 1 GB shuffled by its key. GB a second."""
    from distributed import wait

    rows = 300_000
    made = frames(FRAMES, rows)

    def run() -> tuple[float, Any]:
        shuffled = made.shuffle("key", npartitions=OUTPUTS).persist()
        wait(shuffled)
        assert len(shuffled) == FRAMES * rows
        return FRAMES * rows * 104 / 1e9, shuffled

    return run


def merge(client: Any) -> Job:
    """Two DataFrames, of 0.5 and 0.1 GB, joined by a key. GB a second."""
    from distributed import wait

    large, small = frames(FRAMES, 150_000), frames(FRAMES // 4, 120_000)
    large["key"] = large["key"] % 1_000_003
    small["key"] = small["key"] % 1_000_003
    rows = (len(large), len(small))

    def run() -> tuple[float, Any]:
        joined = large.merge(small[["key", "v0", "v1"]], on="key").persist()
        wait(joined)
        expected = rows[0] * rows[1] / 1_000_003
        assert abs(len(joined) / expected - 1) < 0.05, len(joined)
        return sum(rows) * 104 / 1e9, joined

    return run


JOBS = {job.__name__: job for job in (tasks, shuffle, merge)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--job", choices=JOBS, required=True)
    arguments = parser.parse_args()
    with cluster(arguments.plane, n_workers=2, memory_limit="6GiB") as client:
        client.gather(client.map(increment, range(-200, 0)))
        workers = list(processes(client).values())
        run = JOBS[arguments.job](client)
        cpu, start = sum(map(cpu_seconds, workers)), time.perf_counter()
        done, held = run()
        seconds = time.perf_counter() - start
        cpu = sum(map(cpu_seconds, workers)) - cpu
        assert_used(client, arguments.plane)
        assert not any(client.run(on_disk).values()), "something was spilled"
        del held
    print(json.dumps({"done_per_s": done / seconds, "cpu_s": cpu}))


def on_disk(dask_worker: Any) -> int:
    return dask_worker.data.spilled_total.disk


if __name__ == "__main__":
    main()
