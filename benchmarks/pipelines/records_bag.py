"""Records as a log has them, lines of JSON: parsed, chosen, counted by key, brought
together by session, and made a table.

    python benchmarks/pipelines/records_bag.py [--gb 0.06] [--check]

The records that go between workers are plain dicts. Bag.groupby moves them by tasks,
which is all that Dask has for bags. Lines are made in tasks, under a tenth of the work.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

import dask.bag as db
import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

LINE_BYTES = 194
PARTITION_BYTES = 4e6
RECORDS = 30
"""Of a session, about."""
LEVELS = ["debug", "info", "warning", "error"]
SERVICES = [f"service-{number:02d}" for number in range(24)]
LINE = (
    '{"id": %d, "session": "s%08d", "level": "%s", "service": "%s", '
    '"took_us": %d, "bytes": %d, "tags": ["v%d", "%s"], '
    '"request": {"path": "/api/v1/items/%d", "status": %d}}'
)


def sizes(options: argparse.Namespace) -> tuple[int, int, int]:
    """Partitions, lines of each, and sessions."""
    partitions = max(4, round(options.gb * 1e9 / PARTITION_BYTES))
    count = round(options.gb * 1e9 / LINE_BYTES / partitions)
    return partitions, count, max(partitions * count // RECORDS, 1)


def lines(number: int, count: int, sessions: int) -> list[str]:
    random = np.random.default_rng(number)

    def below(limit: int) -> list[int]:
        return random.integers(0, limit, count).tolist()

    columns = zip(
        range(number * count, (number + 1) * count),
        below(sessions),
        (LEVELS[code] for code in below(len(LEVELS))),
        (SERVICES[code] for code in below(len(SERVICES))),
        below(1_000_000),
        below(100_000),
        below(9),
        ("eu" if code else "us" for code in below(2)),
        below(10_000),
        random.choice([200, 200, 200, 404, 500], count).tolist(),
        strict=True,
    )
    return [LINE % row for row in columns]


def is_told(record: dict) -> bool:
    return record["level"] != "debug"


def key_of(record: dict) -> tuple[str, int]:
    return record["service"], record["request"]["status"]


def add_bytes(total: int, record: dict) -> int:
    return total + record["bytes"]


def is_followed(record: dict) -> bool:
    return record["level"] in ("warning", "error")


def summary(group: tuple[str, Iterable[dict]]) -> dict:
    """Of one session's records."""
    session, records = group
    records = sorted(records, key=itemgetter("id"))
    services = Counter(record["service"] for record in records)
    most = max(services.values())
    return {
        "session": session,
        "records": len(records),
        "span": records[-1]["id"] - records[0]["id"],
        "service": min(name for name, count in services.items() if count == most),
        "failed": sum(record["request"]["status"] == 500 for record in records),
        "took_us": max(record["took_us"] for record in records),
    }


SUMMARY = {
    "session": "str",
    "records": "int64",
    "span": "int64",
    "service": "str",
    "failed": "int64",
    "took_us": "int64",
}
AGGREGATES = {"records": "sum", "span": "sum", "failed": "sum", "took_us": "max"}


def answered(sent: Iterable, sessions: pd.DataFrame) -> pd.DataFrame:
    """Bytes by service and status, and what sessions were like by their service."""
    counted = pd.DataFrame(
        [(*key, "bytes", total) for key, total in sorted(sent)],
        columns=["service", "status", "of", "value"],
    )
    spread = sessions.sort_index().rename_axis("service").reset_index()
    spread = spread.melt("service", var_name="of").assign(status=0)
    whole = pd.concat([counted, spread[list(counted)]], ignore_index=True)
    return whole.astype({"service": "str", "status": "int64", "value": "int64"})


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    partitions, count, sessions = sizes(options)
    numbers = db.from_sequence(range(partitions), npartitions=partitions)
    text = numbers.map(lines, count=count, sessions=sessions).flatten()
    # Held, since they are used twice.
    records = text.map(json.loads).filter(is_told).persist()
    sent = records.foldby(key_of, add_bytes, 0, combine=sum_of, combine_initial=0)
    followed = records.filter(is_followed)
    groups = followed.groupby(itemgetter("session"), npartitions=partitions)
    table = groups.map(summary).to_dataframe(meta=SUMMARY)
    by_service = table.groupby("service").agg(AGGREGATES)
    return answered(sent.compute(), by_service.compute())


def sum_of(one: int, other: int) -> int:
    return one + other


def expected(options: argparse.Namespace) -> pd.DataFrame:
    """By pandas, but for the parsing."""
    partitions, count, sessions = sizes(options)
    table = pd.json_normalize(
        [
            json.loads(line)
            for number in range(partitions)
            for line in lines(number, count, sessions)
        ]
    )
    table = table[table["level"] != "debug"]
    sent = table.groupby(["service", "request.status"])["bytes"].sum()
    table = table[table["level"].isin(["warning", "error"])]
    groups = table.groupby("session")
    by_session = pd.DataFrame(
        {
            "records": groups.size(),
            "span": groups["id"].max() - groups["id"].min(),
            "failed": (table["request.status"] == 500).groupby(table["session"]).sum(),
            "took_us": groups["took_us"].max(),
        }
    )
    counts = table.groupby(["session", "service"]).size().reset_index(name="n")
    counts = counts.sort_values(["session", "n", "service"], ascending=[1, 0, 1])
    by_session["service"] = counts.groupby("session")["service"].first()
    return answered(sent.items(), by_session.groupby("service").agg(AGGREGATES))


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.06).main()
