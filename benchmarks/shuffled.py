"""Shuffles a DataFrame that workers have, and checks every row: the first shuffle in
fresh workers, and later ones.

    python benchmarks/shuffled.py --plane stock|spillway [--data numeric|text]
        [--buffer auto|memory|disk] [--stock-method p2p|tasks] [--gb 1] [--later 3]
        [--more-gb 4] [--stream --frames 128 --outputs 256]

`--stream` keeps neither the input nor the output, for data larger than memory: its time
includes making the data and reducing it.
`--more-gb` shuffles so much instead, once, beside `--gb`: what a GB more takes.
Stock's P2P always keeps rows on disk. `--stock-method tasks` has stock use Dask's older
shuffle.
"""

import argparse
import json
import statistics
import time
from typing import Any

import dask
import numpy as np
import pandas as pd
from spilling_cluster import (
    cluster,
    cpu_seconds,
    forget_peak,
    memory_bytes,
    processes,
    written_bytes,
)

WORDS = 5000
MASK = (1 << 48) - 1


def part(number: int, rows: int, data: str) -> pd.DataFrame:
    """Keys, and twelve columns of floats; or text, times, booleans and floats."""
    random = np.random.default_rng(number)
    columns: dict[str, Any] = {"key": random.integers(0, 1 << 40, rows)}
    if data == "text":
        words = np.array([f"name-{k:06d}" for k in range(WORDS)], dtype=object)
        for name in ("city", "note"):
            chosen = words[random.integers(0, WORDS, rows)]
            columns[name] = pd.array(chosen, dtype="str")
        microseconds = pd.to_timedelta(random.integers(0, 10**9, rows), unit="us")
        columns["when"] = pd.Timestamp("2026-01-01") + microseconds
        columns["ok"] = random.random(rows) < 0.5
    floats = 12 if data == "numeric" else 4
    columns.update({f"v{i}": random.random(rows) for i in range(floats)})
    return pd.DataFrame(columns)


def digest(frame: pd.DataFrame) -> pd.DataFrame:
    """How many rows it has, and what is the same in whatever order they are."""
    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    return pd.DataFrame({"rows": [len(frame)], "sum": [int(rows.sum() & MASK)]})


def digest_of(frames: Any) -> tuple[int, int]:
    """Of all partitions together."""
    meta = {"rows": "i8", "sum": "i8"}
    found = frames.map_partitions(digest, meta=meta).compute()
    return int(found["rows"].sum()), int(found["sum"].sum()) & MASK


def assert_engine(client: Any, plane: str, runs: int) -> None:
    """Every worker ran as many shuffles on our engine."""
    if plane == "stock":
        return
    import spillway

    for address, figures in client.run(spillway.stats).items():
        assert figures["shuffle"]["runs"] == runs, f"{address}: {figures['shuffle']}"


def marginal(options: argparse.Namespace) -> dict[str, float]:
    """Seconds that each GB above the first ones takes, in fresh workers."""
    options.later = 0
    less = measure(options)["seconds"], options.gb
    options.gb = options.more_gb
    more = measure(options)["seconds"], options.gb
    return {"s_per_gb": (more[0] - less[0]) / (more[1] - less[1])}


def frames_of(options: argparse.Namespace) -> Any:
    """A collection of as many bytes as are asked for."""
    import dask.dataframe as dd

    row = part(0, 10_000, options.data).memory_usage(index=False, deep=True).sum()
    return dd.from_map(
        part,
        range(options.frames),
        rows=int(options.gb * 1e9 / options.frames / row * 10_000),
        data=options.data,
        meta=part(0, 1, options.data),
    )


def streamed(options: argparse.Namespace) -> dict[str, float]:
    """One shuffle of what is made as it is read, and kept by nobody."""
    with cluster(options.plane, n_workers=2, memory_limit=options.memory) as client:
        frames = frames_of(options)
        before = digest_of(frames)
        workers = processes(client).values()
        written = sum(map(written_bytes, workers))
        start = time.perf_counter()
        after = digest_of(frames.shuffle("key", npartitions=options.outputs))
        seconds = time.perf_counter() - start
        written = sum(map(written_bytes, workers)) - written
        assert after == before, "rows are not what they were"
        assert_engine(client, options.plane, 1)
    return {
        "seconds": seconds,
        "written_over_data": written / (options.gb * 1e9),
    }


def measure(options: argparse.Namespace) -> dict[str, float]:
    from distributed import wait

    with cluster(options.plane, n_workers=2, memory_limit=options.memory) as client:
        frames = frames_of(options).persist()
        wait(frames)
        before = digest_of(frames)
        workers = processes(client).values()
        resident = sum(map(forget_peak, workers))
        cpu, seconds = sum(map(cpu_seconds, workers)), []
        for number in range(options.later + 1):
            start = time.perf_counter()
            # Each has another number of outputs, so that none is the one before.
            shuffled = frames.shuffle("key", npartitions=options.outputs + number)
            shuffled = shuffled.persist()
            wait(shuffled)
            seconds.append(time.perf_counter() - start)
            if number == 0:
                cpu = sum(map(cpu_seconds, workers)) - cpu
                peaks = [memory_bytes(worker, "VmHWM") for worker in workers]
                growth = sum(peaks) - resident
            assert digest_of(shuffled) == before, "rows are not what they were"
            del shuffled
        assert_engine(client, options.plane, options.later + 1)
    size = options.gb * 1e9
    figures = {
        "seconds": seconds[0],
        "cpu_s_per_gb": cpu / options.gb,
        "growth_over_data": growth / size,
    }
    if options.later:
        figures["later_seconds"] = statistics.median(seconds[1:])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--data", choices=["numeric", "text"], default="numeric")
    parser.add_argument("--buffer", choices=["auto", "memory", "disk"], default="auto")
    parser.add_argument("--stock-method", choices=["p2p", "tasks"], default="p2p")
    parser.add_argument("--gb", type=float, default=1.0)
    parser.add_argument("--later", type=int, default=3)
    parser.add_argument("--more-gb", type=float)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--outputs", type=int, default=64)
    parser.add_argument("--memory", default="6GiB")
    options = parser.parse_args()
    settings = {
        "dataframe.shuffle.method": (
            options.stock_method if options.plane == "stock" else "p2p"
        ),
        "spillway.shuffle.buffer": options.buffer,
    }
    work = streamed if options.stream else marginal if options.more_gb else measure
    with dask.config.set(settings):
        print(json.dumps(work(options)))


if __name__ == "__main__":
    main()
