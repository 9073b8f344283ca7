"""Joins and aggregations in the manner of TPC-H: three of its queries over generated
tables, which the workers hold as they would after read_parquet(...).persist().

    python benchmarks/pipelines/tpch_joins.py [--gb 0.4] [--check]

Revenue by nation (Q5 over all regions), shipping priority (Q3), and orders by priority
that were delivered late (Q4, a semi-join). Money is in cents and discounts in percent,
so sums are exact. Tables are made in tasks, once, under a tenth of the work.
"""

import argparse

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

ORDER_BYTES = 355
"""Of an order with its lines, four on average."""
PARTITION_BYTES = 32e6
FIRST_DAY = np.datetime64("1992-01-01", "s")
DAYS = 2400

NATIONS = (
    "ALGERIA ARGENTINA BRAZIL CANADA EGYPT ETHIOPIA FRANCE GERMANY INDIA INDONESIA "
    "IRAN IRAQ JAPAN JORDAN KENYA MOROCCO MOZAMBIQUE PERU CHINA ROMANIA ARABIA "
    "VIETNAM RUSSIA ENGLAND AMERICA"
).split()
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]


def sizes(options: argparse.Namespace) -> dict[str, int]:
    partitions = max(4, round(options.gb * 1e9 / PARTITION_BYTES))
    orders = round(options.gb * 1e9 / ORDER_BYTES / partitions)
    customers = partitions * orders // 10
    return {
        "partitions": partitions,
        "orders": orders,  # of a partition
        "customers": customers,
        "suppliers": max(customers // 15, 1),
    }


def text(words: list[str], codes: np.ndarray) -> pd.Series:
    return pd.Series(pd.array(words, dtype="str").take(codes))


def days(numbers: np.ndarray) -> np.ndarray:
    return FIRST_DAY + numbers.astype("timedelta64[D]")


def ordered(number: int, size: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The keys of one partition's orders, and the days on which they were placed."""
    keys = np.arange(number * size["orders"], (number + 1) * size["orders"])
    return keys, np.random.default_rng([1, number]).integers(0, DAYS, len(keys))


def orders(number: int, size: dict[str, int]) -> pd.DataFrame:
    random = np.random.default_rng([2, number])
    keys, day = ordered(number, size)
    return pd.DataFrame(
        {
            "o_orderkey": keys,
            "o_custkey": random.integers(0, size["customers"], len(keys)),
            "o_orderdate": days(day),
            "o_orderpriority": text(PRIORITIES, random.integers(0, 5, len(keys))),
            "o_shippriority": np.zeros(len(keys), "int64"),
        }
    )


def lineitem(number: int, size: dict[str, int]) -> pd.DataFrame:
    random = np.random.default_rng([3, number])
    keys, day = ordered(number, size)
    lines = random.integers(1, 8, len(keys))
    keys, day = np.repeat(keys, lines), np.repeat(day, lines)
    rows = len(keys)
    shipped = day + random.integers(1, 122, rows)
    quantity = random.integers(1, 51, rows)
    return pd.DataFrame(
        {
            "l_orderkey": keys,
            "l_suppkey": random.integers(0, size["suppliers"], rows),
            "l_quantity": quantity,
            "l_extendedprice": quantity * random.integers(90_000, 200_000, rows),
            "l_discount": random.integers(0, 11, rows),
            "l_shipdate": days(shipped),
            "l_commitdate": days(day + random.integers(30, 91, rows)),
            "l_receiptdate": days(shipped + random.integers(1, 31, rows)),
            "l_shipmode": text(MODES, random.integers(0, 7, rows)),
        }
    )


def customer(number: int, parts: int, size: dict[str, int]) -> pd.DataFrame:
    random = np.random.default_rng([4, number])
    keys = np.arange(number, size["customers"], parts)
    return pd.DataFrame(
        {
            "c_custkey": keys,
            "c_nation": text(NATIONS, random.integers(0, 25, len(keys))),
            "c_mktsegment": text(SEGMENTS, random.integers(0, 5, len(keys))),
        }
    )


def supplier(size: dict[str, int]) -> pd.DataFrame:
    random = np.random.default_rng(5)
    keys = np.arange(size["suppliers"])
    nations = text(NATIONS, random.integers(0, 25, len(keys)))
    return pd.DataFrame({"s_suppkey": keys, "s_nation": nations})


def customer_parts(size: dict[str, int]) -> int:
    return max(size["partitions"] // 8, 3)


def with_revenue(joined: dd.DataFrame) -> dd.DataFrame:
    revenue = joined.l_extendedprice * (100 - joined.l_discount)
    return joined.assign(revenue=revenue)


def revenue_by_nation(line, order, customers, suppliers) -> pd.DataFrame:
    start, end = pd.Timestamp("1994-01-01"), pd.Timestamp("1997-01-01")
    order = order[(order.o_orderdate >= start) & (order.o_orderdate < end)]
    joined = (
        order.merge(customers, left_on="o_custkey", right_on="c_custkey")
        .merge(line, left_on="o_orderkey", right_on="l_orderkey")
        .merge(suppliers, left_on="l_suppkey", right_on="s_suppkey")
    )
    local = with_revenue(joined[joined.c_nation == joined.s_nation])
    found = local.groupby("c_nation").revenue.sum().compute().sort_index()
    return answered("nation", found.index, found)


def shipping_priority(line, order, customers) -> pd.DataFrame:
    day = pd.Timestamp("1995-03-15")
    customers = customers[customers.c_mktsegment == "BUILDING"]
    joined = (
        order[order.o_orderdate < day]
        .merge(customers, left_on="o_custkey", right_on="c_custkey")
        .merge(line[line.l_shipdate > day], left_on="o_orderkey", right_on="l_orderkey")
    )
    keys = ["l_orderkey", "o_orderdate", "o_shippriority"]
    found = with_revenue(joined).groupby(keys).revenue.sum().reset_index()
    top = found.nlargest(20, "revenue").compute()
    top = top.sort_values(["revenue", "l_orderkey"], ascending=[False, True])[:10]
    return answered("order", top.l_orderkey, top.revenue)


def late_by_priority(line, order) -> pd.DataFrame:
    start, end = pd.Timestamp("1993-07-01"), pd.Timestamp("1994-07-01")
    order = order[(order.o_orderdate >= start) & (order.o_orderdate < end)]
    late = line[line.l_commitdate < line.l_receiptdate]
    found = order.merge(
        late, left_on="o_orderkey", right_on="l_orderkey", how="leftsemi"
    )
    counts = found.groupby("o_orderpriority").o_orderkey.count().compute().sort_index()
    return answered("priority", counts.index, counts)


def answered(query: str, keys, values) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "query": [query] * len(keys),
            "key": [str(key) for key in keys],
            "value": np.asarray(values, "int64"),
        }
    )


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    size = sizes(options)
    parts = customer_parts(size)
    line, order, customers, suppliers = dask.persist(
        dd.from_map(lineitem, range(size["partitions"]), size=size),
        dd.from_map(orders, range(size["partitions"]), size=size),
        dd.from_map(customer, range(parts), parts=parts, size=size),
        dd.from_map(supplier, [size]),
    )
    return pd.concat(
        [
            revenue_by_nation(line, order, customers, suppliers),
            shipping_priority(line, order, customers),
            late_by_priority(line, order),
        ],
        ignore_index=True,
    )


NATION_SQL = """
    SELECT 'nation' AS query, c_nation AS key,
        sum(l_extendedprice * (100 - l_discount))::BIGINT AS value
    FROM orders, customer, lineitem, supplier
    WHERE o_custkey = c_custkey AND o_orderkey = l_orderkey AND l_suppkey = s_suppkey
        AND c_nation = s_nation
        AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1997-01-01'
    GROUP BY c_nation ORDER BY c_nation
"""
ORDER_SQL = """
    SELECT 'order' AS query, l_orderkey::VARCHAR AS key,
        sum(l_extendedprice * (100 - l_discount))::BIGINT AS value
    FROM orders, customer, lineitem
    WHERE o_custkey = c_custkey AND o_orderkey = l_orderkey
        AND c_mktsegment = 'BUILDING'
        AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
    GROUP BY l_orderkey, o_orderdate, o_shippriority
    ORDER BY value DESC, l_orderkey LIMIT 10
"""
PRIORITY_SQL = """
    SELECT 'priority' AS query, o_orderpriority AS key, count(*) AS value
    FROM orders
    WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1994-07-01'
        AND EXISTS (
            SELECT * FROM lineitem
            WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate
        )
    GROUP BY o_orderpriority ORDER BY o_orderpriority
"""


def expected(options: argparse.Namespace) -> pd.DataFrame:
    import duckdb

    size = sizes(options)
    parts = customer_parts(size)
    numbers = range(size["partitions"])
    tables = {
        "lineitem": pd.concat([lineitem(n, size) for n in numbers]),
        "orders": pd.concat([orders(n, size) for n in numbers]),
        "customer": pd.concat([customer(n, parts, size) for n in range(parts)]),
        "supplier": supplier(size),
    }
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        answers = [
            database.execute(query).df()
            for query in (NATION_SQL, ORDER_SQL, PRIORITY_SQL)
        ]
    return pd.concat(answers, ignore_index=True)


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.4).main()
