"""What passes over the partitions of a shuffle cost where they lie, beside the same
bytes on huge pages and on small ones that never moved: processor time, in turns, in the
worker.

    python benchmarks/shuffled_passes.py [--gb 1] [--shuffles 2] [--turns 7]

Prints for each shuffle, by pass, the median over partitions of the microseconds on huge
pages, and the quartiles of what the others take of that. `on_huge_pages` is how much of
a partition lies on such.
"""

import argparse
import json
import mmap
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
from shuffled import FRAMES, OUTPUTS, part
from spilling_cluster import cluster

HUGE = 2 << 20
Pass = Callable[[pd.DataFrame, np.ndarray], Any]


def lay(values: np.ndarray, advice: int) -> np.ndarray:
    """A copy in a mapping of its own."""
    size = (values.nbytes // HUGE + 2) * HUGE
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    raw = np.frombuffer(memory, dtype="u1")
    begin = -raw.ctypes.data % HUGE
    copy = raw[begin : begin + values.nbytes].view(values.dtype)
    copy = copy.reshape(values.shape)
    copy[:] = values
    return copy


def on_huge_pages(values: np.ndarray) -> float:
    """The share of it, from what Linux says of each mapping."""
    begin, end = values.ctypes.data, values.ctypes.data + values.nbytes
    kilobytes, is_there = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            low, high = (int(address, 16) for address in name.split("-"))
            is_there = low < end and high > begin
        elif is_there and name == "AnonHugePages:":
            kilobytes += int(rest.split()[0])
    return min(kilobytes * 1024 / values.nbytes, 1.0)


def passes_over(rows: int, size: int) -> dict[str, Pass]:
    random = np.random.default_rng(1)
    order, keys = random.permutation(rows), random.integers(0, 1000, rows)
    places = random.integers(0, size, 200_000)
    return {
        "sum": lambda frame, values: values.sum(),
        "gather": lambda frame, values: values.reshape(-1)[places],
        "sort": lambda frame, values: frame.sort_values(3),
        "groupby": lambda frame, values: frame.groupby(keys).sum(),
        "take": lambda frame, values: frame.take(order),
        "add": lambda frame, values: frame + 1,
        "write": lambda frame, values: np.multiply(values, 1.0, out=values),
    }


def measure(partition: pd.DataFrame, turns: int) -> dict[str, float]:
    """Of one partition's floats."""
    blocks = [block.values for block in partition._mgr.blocks]
    values = max(blocks, key=lambda block: block.nbytes)
    arrays = [
        lay(values, mmap.MADV_HUGEPAGE),
        values,
        lay(values, mmap.MADV_NOHUGEPAGE),
    ]
    frames = [pd.DataFrame(array.T, copy=False) for array in arrays]
    assert on_huge_pages(arrays[0]) > 0.8, "there are no huge pages"
    found = {"on_huge_pages": on_huge_pages(values)}
    for name, go in passes_over(len(partition), values.size).items():
        taken: list[list[int]] = [[], [], []]
        for turn in range(turns * 3):
            which = (turn + turn // 3) % 3
            start = time.thread_time_ns()
            go(frames[which], arrays[which])
            taken[which].append(time.thread_time_ns() - start)
        huge, lying, small = map(statistics.median, taken)
        found[f"{name} us"] = huge / 1e3
        found[f"{name} where it lies"] = lying / huge
        found[f"{name} on small pages"] = small / huge
    return found


def summed_up(found: pd.DataFrame) -> dict[str, Any]:
    quartiles = found.quantile([0.25, 0.5, 0.75]).round(3)
    return {
        name: float(column.iloc[1]) if name.endswith("us") else column.tolist()
        for name, column in quartiles.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--shuffles", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    import dask.dataframe as dd
    from distributed import futures_of, wait

    row = part(0, 10_000, "numeric").memory_usage(index=False, deep=True).sum()
    rows = int(options.gb * 1e9 / FRAMES / row * 10_000)
    with (
        dask.config.set({"dataframe.shuffle.method": "p2p"}),
        cluster("spillway", n_workers=2, memory_limit="6GiB") as client,
    ):
        meta = part(0, 1, "numeric")
        frames = dd.from_map(
            part, range(FRAMES), rows=rows, data="numeric", meta=meta
        ).persist()
        wait(frames)
        for number in range(options.shuffles):
            shuffled = frames.shuffle("key", npartitions=OUTPUTS + number).persist()
            wait(shuffled)
            found = client.map(measure, futures_of(shuffled), turns=options.turns)
            print(json.dumps(summed_up(pd.DataFrame(client.gather(found)))), flush=True)
            del shuffled, found


if __name__ == "__main__":
    main()
