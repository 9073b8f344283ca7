"""How long the GIL is held to take a frame of 13 columns apart for a shuffle, by the
thread's CPU time, of frames that were just unpickled, as a worker has them.

    python benchmarks/frames_apart.py [--rows 20000] [--frames 300]

Prints the median, in us, of frames of numbers and of frames of many types. The program
runs on Spillway alone.
"""

import argparse
import json
import pickle
import statistics
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa

from spillway.dask.shuffle_split import Splitter

IDS, PARTITIONS = "_partitions", 64


def numbers(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(0)
    columns = {f"v{number}": random.random(rows) for number in range(12)}
    return pd.DataFrame({**columns, IDS: random.integers(0, PARTITIONS, rows)})


def many_types(rows: int) -> pd.DataFrame:
    frame = numbers(rows)[["v0", "v1", IDS]]
    when = pd.Series(pd.date_range("2026", periods=rows, freq="s"))
    words = pd.Series(pd.array(["north", "south-east", "west"], dtype="str"))
    words = words.take(np.arange(rows) % 3).reset_index(drop=True)
    whole = np.arange(rows)
    return frame.assign(
        count=whole,
        text=words,
        other_text=words,
        kind=words.astype("category"),
        time=when,
        zoned=when.dt.tz_localize("Europe/Berlin", ambiguous=True, nonexistent="NaT"),
        flag=whole % 2 == 0,
        masked=pd.array(whole, dtype="Int64"),
        masked_flag=pd.array(whole % 3 == 0, dtype="boolean"),
        stamp=when.astype(pd.ArrowDtype(pa.timestamp("us"))),
    )


def median_us(frame: pd.DataFrame, count: int) -> float:
    spec = SimpleNamespace(
        column=IDS, meta=frame.iloc[:0], drop_column=True, npartitions=PARTITIONS
    )
    workers = {number: f"w{number % 2}" for number in range(PARTITIONS)}
    splitter, pickled = Splitter(spec, workers), pickle.dumps(frame, protocol=5)
    found = []
    for number in range(count):
        _, _, apart_ns = splitter.split(pickle.loads(pickled), number)
        found.append(apart_ns / 1e3)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--frames", type=int, default=300)
    options = parser.parse_args()
    figures = {}
    for kind in (numbers, many_types):
        frame = kind(options.rows)
        assert frame.shape[1] == 13
        figures[f"{kind.__name__}_us"] = median_us(frame, options.frames)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
