"""Sales merged with what they sold, where few things are most of what is sold; put in
the order of time; and one pass along it.

    python benchmarks/pipelines/skewed_merge.py [--gb 0.25] [--check]

Things are sold by Zipf's law, the first of them about every seventh time. The other
table has a row for each thing, and is too large to go to all workers. Both are made in
the tasks that the merge reads from, under a tenth of it.
"""

import argparse

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

ROW_BYTES = 52
"""Of a sale, with the things' share."""
PARTITION_BYTES = 32e6
SALES = 20
"""To one thing, on average."""
EXPONENT = 1.07
START = np.datetime64("2025-01-01", "us")
SECONDS = 365 * 86_400

BRANDS = [f"Brand {number}" for number in range(40)]
NOTES = [f"made in {number:04d}, by hand, and sold as it is" for number in range(2000)]
SHOPS = [f"shop-{number:03d}" for number in range(300)]


def sizes(options: argparse.Namespace) -> tuple[int, int, int]:
    """Partitions, rows of each, and things."""
    partitions = max(4, round(options.gb * 1e9 / PARTITION_BYTES))
    rows = round(options.gb * 1e9 / ROW_BYTES / partitions)
    return partitions, rows, max(partitions * rows // SALES, 1)


def stock_parts(partitions: int) -> int:
    return max(partitions // 2, 3)


def text(words: list[str], codes: np.ndarray) -> pd.Series:
    return pd.Series(pd.array(words, dtype="str").take(codes))


def zipf(random: np.random.Generator, count: int, rows: int) -> np.ndarray:
    """Numbers below count, each by its rank to the power of -EXPONENT."""
    weights = np.cumsum(np.arange(1, count + 1) ** -EXPONENT)
    return np.searchsorted(weights, random.random(rows) * weights[-1])


def key_of(rank: np.ndarray) -> np.ndarray:
    """Keys have nothing to do with how often they are sold."""
    return rank * 1_000_003 % 2_147_483_647


def sales(number: int, rows: int, things: int) -> pd.DataFrame:
    random = np.random.default_rng([1, number])
    ranks = np.minimum(zipf(random, things, rows), things - 1)
    seconds = random.integers(0, SECONDS, rows).astype("timedelta64[s]")
    return pd.DataFrame(
        {
            "thing": key_of(ranks),
            "when": START + seconds,
            "shop": text(SHOPS, random.integers(0, len(SHOPS), rows)),
            "pieces": random.integers(1, 10, rows),
            "discount": random.integers(0, 500, rows),
        }
    )


def stock(number: int, parts: int, things: int) -> pd.DataFrame:
    """A part of the things that there are."""
    random = np.random.default_rng([2, number])
    keys = key_of(np.arange(number, things, parts))
    return pd.DataFrame(
        {
            "thing": random.permutation(keys),
            "brand": text(BRANDS, random.integers(0, len(BRANDS), len(keys))),
            "note": text(NOTES, random.integers(0, len(NOTES), len(keys))),
            "price": random.integers(1000, 100_000, len(keys)),
        }
    )


def passed(frame: pd.DataFrame) -> pd.DataFrame:
    """What is known of a stretch of time: its ends, whether it is in order, the longest
    that nothing was sold, and the takings."""
    gaps = np.diff(frame.index.to_numpy())
    return pd.DataFrame(
        {
            "first": frame.index[:1],
            "last": frame.index[-1:],
            "ordered": [frame.index.is_monotonic_increasing],
            "gap": [gaps.max() if len(gaps) else np.timedelta64(0, "us")],
            "rows": [len(frame)],
            "takings": [(frame.pieces * frame.price - frame.discount).sum()],
            "letters": [frame.note.str.len().sum() + frame.shop.str.len().sum()],
        }
    )


def together(stretches: pd.DataFrame) -> pd.DataFrame:
    """Of stretches that follow each other."""
    first, last = stretches["first"], stretches["last"]
    between = first.iloc[1:].to_numpy() - last.iloc[:-1].to_numpy()
    ordered = stretches["ordered"].all() and (between >= np.timedelta64(0)).all()
    gap = max([stretches["gap"].max(), *map(pd.Timedelta, between)])
    found = {
        "first": str(first.iloc[0]),
        "last": str(last.iloc[-1]),
        "ordered": str(ordered),
        "longest gap": str(gap),
        "rows": str(stretches["rows"].sum()),
        "takings": str(stretches["takings"].sum()),
        "letters": str(stretches["letters"].sum()),
    }
    return pd.DataFrame({"of": list(found), "value": list(found.values())})


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    partitions, rows, things = sizes(options)
    parts = stock_parts(partitions)
    sold = dd.from_map(sales, range(partitions), rows=rows, things=things)
    there = dd.from_map(stock, range(parts), parts=parts, things=things)
    # Held, since set_index looks at it twice: for its divisions, and to move the rows.
    merged = sold.merge(there, on="thing").persist()
    by_time = merged.set_index("when")
    return together(by_time.map_partitions(passed).compute())


def expected(options: argparse.Namespace) -> pd.DataFrame:
    partitions, rows, things = sizes(options)
    parts = stock_parts(partitions)
    sold = pd.concat([sales(number, rows, things) for number in range(partitions)])
    there = pd.concat([stock(number, parts, things) for number in range(parts)])
    merged = sold.merge(there, on="thing")
    return together(passed(merged.set_index("when").sort_index()))


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.25).main()
