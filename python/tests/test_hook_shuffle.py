"""Dask's P2P shuffle on our engine, on clusters."""

import contextlib
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster, Scheduler, Worker
from distributed.shuffle._exceptions import P2PConsistencyError

import spillway
from frame_oracle import assert_same
from spillway.dask import enable, shuffle_memory
from spillway.dask.shuffle_run import DataFrameRun

pytestmark = pytest.mark.timeout(120)

PARTS, ROWS = 6, 500
CONFIG = {"dataframe.shuffle.method": "p2p", "dataframe.convert-string": False}
SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


def part(number, rows=ROWS):
    rng = np.random.default_rng(number)
    words = np.array(["", "a", "bc", "déf", None], dtype=object)
    return pd.DataFrame(
        {
            "key": rng.integers(0, 200, rows),
            "value": rng.random(rows),
            "text": pd.array(words[rng.integers(0, 5, rows)], dtype="str"),
            "object": [(number, i) if i % 3 else None for i in range(rows)],
            "when": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(rows), "h"),
            "flag": pd.array(rng.random(rows) < 0.5, dtype="boolean"),
        },
        index=pd.Index(np.arange(rows) + number * rows, name="row"),
    )


def whole():
    return pd.concat([part(number) for number in range(PARTS)])


def frame():
    return dd.from_map(part, range(PARTS), meta=part(0).iloc[:0])


@contextlib.asynccontextmanager
async def cluster(workers=2, **options):
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        contextlib.AsyncExitStack() as stack,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        started = [
            await stack.enter_async_context(
                Worker(scheduler.address, nthreads=1, **options)
            )
            for _ in range(workers)
        ]
        with dask.config.set(CONFIG):
            yield client, started


class Counted:
    """What the shuffles within did in this process."""

    def __enter__(self):
        self._before = spillway.stats()["shuffle"]
        return self

    def __exit__(self, *_):
        after = spillway.stats()["shuffle"]
        for name, number in after.items():
            setattr(self, name, number - self._before[name])


def sorted_rows(frame):
    return frame.sort_index()


async def partitions_of(client, collection):
    futures = client.compute(collection.to_delayed())
    return await client.gather(futures)


async def test_rows_come_out_as_they_went_in_each_key_in_one_partition():
    async with cluster() as (client, _):
        with Counted() as did:
            out = await partitions_of(client, frame().shuffle("key", npartitions=9))
    assert len(out) == 9
    pd.testing.assert_frame_equal(sorted_rows(pd.concat(out)), whole())
    keys = [set(partition.key) for partition in out]
    assert sum(map(len, keys)) == len(set().union(*keys))
    assert did.rows_in == did.rows_out == PARTS * ROWS
    assert (did.inputs, did.runs, did.open_runs, did.memory_bytes) == (PARTS, 2, 0, 0)
    assert did.sent_bytes > 0 and did.kept_bytes > 0 and did.repeats == 0
    # pandas 2 has text for objects.
    objects = sum(map(pd.api.types.is_object_dtype, part(0).dtypes))
    assert objects > 0 and did.opaque_columns == PARTS * objects


def nested_part(number, rows=60):
    """Arrow's nested types, and dictionaries of which each input has its own."""
    n = np.arange(rows)
    words = [[None, f"{number}", "b"][i % 3] for i in n]
    lists = [None if i % 4 == 1 else [[i], [], None][: i % 4] for i in n]
    structs = [{"a": None, "b": [f"{i}"] * (i % 3)} if i % 5 else None for i in n]
    maps = [[(f"{i}", number)] * (i % 3) for i in n]
    fixed = [[i, None] if i % 7 else None for i in n]
    columns = {
        "lists": pa.array(lists, pa.list_(pa.large_list(pa.int16()))),
        "structs": pa.array(structs),
        "maps": pa.array(maps, pa.map_(pa.string(), pa.int8())),
        "fixed": pa.array(fixed, pa.list_(pa.float32(), 2)),
        "words": pa.array(words).dictionary_encode(),
    }
    arrays = {name: pd.arrays.ArrowExtensionArray(c) for name, c in columns.items()}
    index = pd.Index(n + number * rows, name="row")
    return pd.DataFrame({"key": n % 11, **arrays}, index=index)


@pytest.mark.parametrize("memory", [1 << 30, 1_000])
async def test_nested_columns_are_not_pickled(memory, monkeypatch):
    monkeypatch.setattr(shuffle_memory, "memory_bytes", lambda worker, spec: memory)
    parts = [nested_part(number) for number in range(4)]
    data = dd.from_map(nested_part, range(4), meta=parts[0].iloc[:0])
    async with cluster() as (client, _):
        with Counted() as did:
            out = await partitions_of(client, data.shuffle("key", npartitions=3))
    assert_same(pd.concat(out).sort_index(), pd.concat(parts))
    assert (did.rows_in, did.inputs, did.opaque_columns) == (4 * 60, 4, 0)
    assert did.sent_bytes > 0 and did.kept_bytes > 0
    assert (did.written_bytes > 0) == (memory < 1 << 30)


LIMITS = {"memory": None, "disk": 0, "auto": 1 << 30}


@pytest.mark.parametrize("buffer", LIMITS)
async def test_the_graph_says_how_much_is_in_memory(buffer, monkeypatch):
    said = []
    open_partitions = shuffle_memory.open_partitions

    def note(worker, count, limit):
        said.append(limit)
        return open_partitions(worker, count, limit)

    monkeypatch.setattr(shuffle_memory, "open_partitions", note)
    async with cluster(memory_limit="4GiB") as (client, _):
        with dask.annotate(spillway_shuffle_buffer=buffer):
            shuffled = frame().shuffle("key", npartitions=5)
        out = await client.compute(shuffled)
    pd.testing.assert_frame_equal(sorted_rows(out), whole())
    assert said == [LIMITS[buffer]] * 2


async def test_what_is_above_the_limit_comes_back_from_disk(monkeypatch):
    monkeypatch.setattr(shuffle_memory, "memory_bytes", lambda worker, spec: 50_000)
    async with cluster() as (client, _):
        with Counted() as did:
            out = await partitions_of(client, frame().shuffle("key", npartitions=5))
    for partition in out:
        assert partition.index.is_monotonic_increasing
    pd.testing.assert_frame_equal(sorted_rows(pd.concat(out)), whole())
    assert did.written_bytes == did.read_bytes > did.rows_in * 8
    assert did.disk_bytes == did.memory_bytes == 0


def test_merges_indexes_sorts_and_groups_run_on_it():
    enable()
    data = whole()
    other = data[["key", "value"]].drop_duplicates("key")
    right = dd.from_pandas(other, npartitions=3)
    with (
        dask.config.set(CONFIG),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as local,
        Client(local),
        Counted() as did,
    ):
        merged = frame().merge(right, on="key", shuffle_method="p2p").compute()
        indexed = frame().set_index("value").compute()
        ordered = frame().sort_values("value").compute()
        groups = frame().groupby("key").value.apply(np.ptp, meta=("value", "f8"))
        spread = groups.compute()
    wanted = data.merge(other, on="key")
    columns = ["key", "value_x", "value_y"]
    for merge in (merged, wanted):
        merge.sort_values(columns, inplace=True, ignore_index=True)
    pd.testing.assert_frame_equal(merged[columns], wanted[columns])
    pd.testing.assert_frame_equal(indexed, data.set_index("value").sort_index())
    pd.testing.assert_frame_equal(ordered, data.sort_values("value"))
    wanted = data.groupby("key").value.apply(np.ptp)
    pd.testing.assert_series_equal(spread.sort_index(), wanted)
    # Of the right side, and of what the groups leave of theirs, not all columns go.
    assert did.rows_in == did.rows_out >= 3 * len(data) + len(other)
    assert did.runs == 8  # a merge has one for each side


async def test_every_run_on_every_worker_is_ours_also_of_who_comes_late(monkeypatch):
    where = []
    init = DataFrameRun.__init__

    def note(run, *args):
        init(run, *args)
        where.append(run.local_address)

    monkeypatch.setattr(DataFrameRun, "__init__", note)
    async with (
        cluster() as (client, workers),
        Worker(client.scheduler.address, nthreads=1) as late,
    ):
        await client.wait_for_workers(3)
        with Counted() as did:
            await client.compute(frame().shuffle("key", npartitions=9))
    assert sorted(where) == sorted(worker.address for worker in [*workers, late])
    assert did.runs == 3 and did.rows_out == PARTS * ROWS


async def test_what_is_not_wanted_is_not_put_together():
    async with cluster() as (client, _):
        with Counted() as did:
            shuffled = frame().shuffle("key", npartitions=9)
            out = await client.compute(shuffled.partitions[[2, 7]])
    wanted = whole()
    assert set(out.index) <= set(wanted.index)
    pd.testing.assert_frame_equal(sorted_rows(out), wanted.loc[sorted(out.index)])
    assert did.outputs == 2 and did.rows_out == len(out)


async def test_who_keeps_a_run_that_is_over_keeps_no_rows_and_no_files(monkeypatch):
    runs = []
    init = DataFrameRun.__init__

    def keep(run, *args):
        init(run, *args)
        runs.append(run)

    monkeypatch.setattr(DataFrameRun, "__init__", keep)
    async with cluster(memory_limit="4GiB") as (client, workers):
        await client.compute(frame().shuffle("key", npartitions=5))
        for run in runs:
            await run._closed_event.wait()
        left = [list(Path(w.local_directory).glob("*shuffle*")) for w in workers]
        assert left == [[], []]
    with pytest.raises(P2PConsistencyError, match="forgotten"):
        runs[0].heartbeat()


@pytest.mark.parametrize("method", ["_take", "_send"])
async def test_what_goes_wrong_between_workers_is_told_to_the_user(monkeypatch, method):
    async def fail(*_):
        raise ZeroDivisionError(method)

    monkeypatch.setattr(DataFrameRun, method, fail)
    async with cluster() as (client, _):
        future = client.compute(frame().shuffle("key", npartitions=9))
        with pytest.raises(RuntimeError, match=r"P2P \w+ failed during") as raised:
            await future
    assert method in str(raised.value.__cause__)
