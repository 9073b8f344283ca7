"""Group-bys and joins in the manner of h2o.ai's db-benchmark: few groups and many, by
words and by numbers, and joins with tables of two sizes.

    python benchmarks/pipelines/h2o_groupby_join.py [--gb 0.3] [--check]

Where a query has many groups its answer is spread over partitions (`split_out`), and
each query is told by sums over its groups. Values are whole numbers. The tables are
made in tasks, once, under a tenth of the work, and held as by persist().
"""

import argparse
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

ROW_BYTES = 112
"""Of the table that is grouped, with what the joined ones have beside it."""
PARTITION_BYTES = 32e6
FEW = 100
"""Groups of the columns that have few; the others have a FEWth of the rows."""
JOINED = 4
"""One row of the joined table to so many of the grouped one."""


def sizes(options: argparse.Namespace) -> dict[str, int]:
    partitions = max(4, round(options.gb * 1e9 / PARTITION_BYTES))
    rows = round(options.gb * 1e9 / ROW_BYTES / partitions)
    return {
        "partitions": partitions,
        "rows": rows,  # of a partition
        "many": max(partitions * rows // FEW, 1),
    }


def named(numbers: np.ndarray, digits: int) -> pd.Series:
    """Words like id0000012345."""
    return "id" + pd.Series(10**digits + numbers).astype("str").str[1:]


def few_names(numbers: np.ndarray) -> pd.Series:
    """Words like id042."""
    words = pd.array([f"id{number:03d}" for number in range(FEW)], dtype="str")
    return pd.Series(words.take(numbers))


def grouped(number: int, size: dict[str, int]) -> pd.DataFrame:
    random = np.random.default_rng([1, number])
    rows, many = size["rows"], size["many"]
    return pd.DataFrame(
        {
            "id1": few_names(random.integers(0, FEW, rows)),
            "id2": few_names(random.integers(0, FEW, rows)),
            "id3": named(random.integers(0, many, rows), 10),
            "id4": random.integers(0, FEW, rows),
            "id5": random.integers(0, FEW, rows),
            "id6": random.integers(0, many, rows),
            "v1": random.integers(1, 6, rows),
            "v2": random.integers(1, 16, rows),
            "v3": random.integers(0, 100_000_000, rows),
        }
    )


def left(number: int, size: dict[str, int]) -> pd.DataFrame:
    random = np.random.default_rng([2, number])
    rows = size["rows"] // JOINED
    keys = size["partitions"] * rows
    return pd.DataFrame(
        {
            "id2": random.integers(0, max(keys // 1000, 1), rows),
            "id3": random.integers(0, keys, rows),
            "id5": few_names(random.integers(0, FEW, rows)),
            "v1": random.integers(0, 10_000, rows),
        }
    )


def medium(size: dict[str, int]) -> pd.DataFrame:
    """With nine of ten keys of id2, each once."""
    random = np.random.default_rng(3)
    rows = max(size["partitions"] * (size["rows"] // JOINED) // 1000, 1)
    keys = np.arange(rows)
    keys = keys[keys % 10 != 9]
    return pd.DataFrame({"id2": keys, "v2": random.integers(0, 10_000, len(keys))})


def big(number: int, size: dict[str, int]) -> pd.DataFrame:
    """A part of a table with nine of ten keys of id3, each once."""
    random = np.random.default_rng([4, number])
    rows = size["rows"] // JOINED
    keys = np.arange(number, size["partitions"] * rows, size["partitions"])
    keys = random.permutation(keys[keys % 10 != 9])
    return pd.DataFrame(
        {
            "id3": keys,
            "id6": named(keys, 10),
            "v2": random.integers(0, 10_000, len(keys)),
        }
    )


GROUPED_BY = {
    "few words": (["id1"], {"v1": "sum"}),
    "two words": (["id1", "id2"], {"v1": "sum"}),
    "numbers": (["id4"], {"v1": "sum", "v2": "sum", "v3": "sum"}),
    "many words": (["id3"], {"v1": "max", "v2": "min", "v3": "sum"}),
    "many numbers": (["id6"], {"v1": "sum", "v2": "sum", "v3": "sum"}),
    "all": (["id1", "id2", "id3", "id4", "id5", "id6"], {"v3": "sum", "v1": "count"}),
}
SPREAD = {"many words", "many numbers", "all"}


def told(query: str, groups: int, sums: dict[str, Any]) -> pd.DataFrame:
    """A row for each column of an answer."""
    return pd.DataFrame(
        {
            "query": [query] * len(sums),
            "rows": [int(groups)] * len(sums),
            "column": list(sums),
            "sum": [int(one) for one in sums.values()],
        }
    )


def grouping(table: dd.DataFrame, query: str) -> pd.DataFrame:
    """By the sums of each value, and of the squares of v1, which a group that is two
    would change."""
    keys, values = GROUPED_BY[query]
    spread = {"split_out": table.npartitions} if query in SPREAD else {}
    found = table.groupby(keys).agg(values, **spread)
    found = found.assign(squares=found.v1**2)
    groups, sums = dask.compute(found.v1.count(), found.sum())
    return told(query, groups, sums.to_dict())


def joining(query: str, joined: dd.DataFrame) -> pd.DataFrame:
    """By the products of one side's values and the other's."""
    products = joined.v1 * joined.v2
    rows, v1, v2, both = dask.compute(
        joined.v1.count(), joined.v1.sum(), joined.v2.sum(), products.sum()
    )
    return told(query, rows, {"v1": v1, "v2": v2, "products": both})


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    size = sizes(options)
    numbers = range(size["partitions"])
    table, x, y, z = dask.persist(
        dd.from_map(grouped, numbers, size=size),
        dd.from_map(left, numbers, size=size),
        dd.from_map(medium, [size]),
        dd.from_map(big, numbers, size=size),
    )
    answers = [grouping(table, query) for query in GROUPED_BY]
    answers.append(joining("medium", x.merge(y, on="id2")))
    answers.append(joining("big", x.merge(z, on="id3")))
    return pd.concat(answers, ignore_index=True)


def expected(options: argparse.Namespace) -> pd.DataFrame:
    import duckdb

    size = sizes(options)
    numbers = range(size["partitions"])
    tables = {
        "grouped": pd.concat([grouped(n, size) for n in numbers]),
        "x": pd.concat([left(n, size) for n in numbers]),
        "medium": medium(size),
        "big": pd.concat([big(n, size) for n in numbers]),
    }
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        answers = [
            sums_of(database, query, grouping_sql(*how), [*how[1], "squares"])
            for query, how in GROUPED_BY.items()
        ]
        for query, key in (("medium", "id2"), ("big", "id3")):
            sql = f"""
                SELECT x.v1, r.v2, x.v1 * r.v2 AS products
                FROM x JOIN {query} AS r ON x.{key} = r.{key}
            """
            answers.append(sums_of(database, query, sql, ["v1", "v2", "products"]))
    return pd.concat(answers, ignore_index=True)


def grouping_sql(keys: list[str], values: dict[str, str]) -> str:
    columns = ", ".join(f"{how}({name}) AS {name}" for name, how in values.items())
    by = ", ".join(keys)
    return f"""
        SELECT *, v1 * v1 AS squares
        FROM (SELECT {by}, {columns} FROM grouped GROUP BY {by})
    """


def sums_of(database, query: str, sql: str, columns: list[str]) -> pd.DataFrame:
    sums = ", ".join(f"sum({name})" for name in columns)
    rows, *found = database.execute(f"SELECT count(*), {sums} FROM ({sql})").fetchone()
    return told(query, rows, dict(zip(columns, found, strict=True)))


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.3).main()
