"""Sessions of users: a function of pandas applied to all events of each user, which a
shuffle by the user's name brings together.

    python benchmarks/pipelines/groupby_apply.py [--gb 0.5] [--check]

Events have text, whole numbers and floats (quarters, so that sums are exact), in no
order. They are made in the tasks that the shuffle reads from, under a tenth of it.
"""

import argparse

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

ROW_BYTES = 116
PARTITION_BYTES = 32e6
EVENTS = 2000
"""Of a user, about."""
GAP = pd.Timedelta("30min")
"""A session ends where a user does nothing for so long."""
START = np.datetime64("2026-01-01", "us")
DAYS = 60

CITIES = [f"{name} {part}" for name in ("Riverton", "Lakeside") for part in range(200)]
PAGES = [
    f"/shop/{section}/item-{item:04d}?from=search"
    for section in ("books", "garden", "music", "toys")
    for item in range(1000)
]
ANSWER = {
    "events": "int64",
    "sessions": "int64",
    "longest": "int64",
    "spent": "float64",
    "city": "str",
}


def sizes(options: argparse.Namespace) -> tuple[int, int, int]:
    """Partitions, rows of each, and users."""
    partitions = max(4, round(options.gb * 1e9 / PARTITION_BYTES))
    rows = round(options.gb * 1e9 / ROW_BYTES / partitions)
    return partitions, rows, max(partitions * rows // EVENTS, 1)


def text(words: list[str], codes: np.ndarray) -> pd.Series:
    return pd.Series(pd.array(words, dtype="str").take(codes))


def events(number: int, rows: int, users: int) -> pd.DataFrame:
    random = np.random.default_rng(number)
    names = [f"user-{user:06d}@example.com" for user in range(users)]
    seconds = random.integers(0, DAYS * 86_400, rows).astype("timedelta64[s]")
    return pd.DataFrame(
        {
            "user": text(names, random.integers(0, users, rows)),
            "when": START + seconds,
            "city": text(CITIES, random.integers(0, len(CITIES), rows)),
            "page": text(PAGES, random.integers(0, len(PAGES), rows)),
            "milliseconds": random.integers(0, 5000, rows),
            "price": random.integers(0, 4000, rows) / 4,
        }
    )


def sessions(own: pd.DataFrame) -> pd.Series:
    """Of one user's events: how many sessions, the longest, and the city of most."""
    own = own.sort_values("when")
    number = (own["when"].diff() > GAP).cumsum()
    cities = own["city"].value_counts()
    return pd.Series(
        {
            "events": len(own),
            "sessions": int(number.iloc[-1]) + 1,
            "longest": int(number.value_counts().iloc[0]),
            "spent": own["price"].where(own["milliseconds"] > 1000, 0).sum(),
            "city": min(cities.index[cities == cities.iloc[0]]),
        }
    )


def in_order(found: pd.DataFrame) -> pd.DataFrame:
    found = found.rename_axis("user").sort_index().reset_index()
    return found.astype({"user": "str", **ANSWER})


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    partitions, rows, users = sizes(options)
    frames = dd.from_map(events, range(partitions), rows=rows, users=users)
    return in_order(frames.groupby("user").apply(sessions, meta=ANSWER).compute())


def expected(options: argparse.Namespace) -> pd.DataFrame:
    partitions, rows, users = sizes(options)
    whole = pd.concat([events(number, rows, users) for number in range(partitions)])
    return in_order(whole.groupby("user").apply(sessions))


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.5).main()
