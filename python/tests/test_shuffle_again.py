"""Partitions of a shuffle that are asked for more than once, on clusters."""

import asyncio
import io
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Reschedule, Scheduler, Worker
from distributed.shuffle._scheduler_plugin import ShuffleSchedulerPlugin

import spillway
from spillway.dask import enable, shuffle_again
from spillway.dask.shuffle_errors import OutOfDisk
from spillway.dask.shuffle_run import DataFrameRun

pytestmark = pytest.mark.timeout(120)

PARTS, ROWS = 4, 300
CONFIG = {"dataframe.shuffle.method": "p2p", "dataframe.convert-string": False}


def part(number):
    rng = np.random.default_rng(number)
    return pd.DataFrame(
        {"key": rng.integers(0, 90, ROWS), "value": rng.random(ROWS)},
        index=pd.Index(np.arange(ROWS) + number * ROWS, name="row"),
    )


def whole():
    return pd.concat([part(number) for number in range(PARTS)])


def frame():
    return dd.from_map(part, range(PARTS), meta=part(0).iloc[:0])


@pytest.fixture
async def client():
    enable()
    address = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}
    async with (
        Scheduler(**address) as scheduler,
        Worker(scheduler.address, nthreads=2),
        Worker(scheduler.address, nthreads=2),
        Client(scheduler.address, asynchronous=True) as client,
    ):
        with dask.config.set(CONFIG):
            yield client


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch):
    """Shuffles of the same data have the same id in each test."""
    monkeypatch.setattr(shuffle_again, "_ids", {})


def restarts():
    return spillway.stats()["shuffle"]["restarts"]


@pytest.fixture
def fail_behind_reading(monkeypatch):
    """Have each task that reads a partition raise once, when it has read it."""

    def fail(error):
        read, failed = DataFrameRun._read, set()

        def read_and_fail(run, place):
            frame = read(run, place)
            which = run.id, run.local_address, place
            if which in failed:
                return frame
            failed.add(which)
            raise error

        monkeypatch.setattr(DataFrameRun, "_read", read_and_fail)
        return failed

    return fail


@pytest.mark.parametrize("error", [ZeroDivisionError("late"), Reschedule()], ids=repr)
async def test_a_task_that_ends_once_it_has_read_runs_again(
    client, fail_behind_reading, error
):
    failed, before = fail_behind_reading(error), restarts()
    result = await client.compute(frame().shuffle("key", npartitions=5), retries=9)
    pd.testing.assert_frame_equal(result.sort_index(), whole())
    assert len(failed) >= 5  # a restart may give it to another worker
    assert restarts() > before


async def test_a_merge_of_which_a_side_was_read_runs_again(client, fail_behind_reading):
    failed, before = fail_behind_reading(ZeroDivisionError("late")), restarts()
    right = whole().drop_duplicates("key")
    merged = frame().merge(
        dd.from_pandas(right, npartitions=4),
        on="key",
        suffixes=("", "_r"),
        broadcast=False,
    )
    result = await client.compute(merged, retries=20)
    expected = whole().merge(right, on="key", suffixes=("", "_r"))
    pd.testing.assert_frame_equal(
        result[list(expected)].sort_values(["key", "value"], ignore_index=True),
        expected.sort_values(["key", "value"], ignore_index=True),
    )
    assert len(failed) >= 2 * 4
    assert restarts() > before


async def test_what_is_gone_and_is_not_restarted_is_an_error(
    client, fail_behind_reading, monkeypatch
):
    # As Dask does when another task that reads this shuffle has failed for good.
    monkeypatch.setattr(
        ShuffleSchedulerPlugin, "_restart_recommendations", lambda self, id: {}
    )
    fail_behind_reading(Reschedule())
    with pytest.raises(RuntimeError, match="failed during unpack") as raised:
        await client.compute(frame().shuffle("key", npartitions=5))
    assert "was read before and is gone" in str(raised.value.__cause__)


async def test_two_computations_share_a_shuffle(client):
    shuffled = frame().shuffle("key", npartitions=5)
    before = restarts()
    sums = client.compute(shuffled.map_partitions(lambda data: data.value * 2))
    rows = client.compute(shuffled.map_partitions(lambda data: data.value + 1))
    doubled, more = await asyncio.gather(sums, rows)
    pd.testing.assert_series_equal(doubled.sort_index(), whole().value * 2)
    pd.testing.assert_series_equal(more.sort_index(), whole().value + 1)
    # Each worker may find it by itself, and none finds it twice.
    assert restarts() - before <= 2 * 2


def test_frames_are_kept_once_read(tmp_path):
    frames = {0: part(0), 1: part(1)}
    kept = shuffle_again.KeptFrames(str(tmp_path))
    for _ in range(2):  # the second time there is nothing to pop
        for number in (1, 0):
            frame = kept.read(number, frames.pop)
            pd.testing.assert_frame_equal(frame, part(number))
    assert frames == {}
    assert list(Path(tmp_path).iterdir()) == []
    kept.close()
    with pytest.raises(ValueError, match="closed"):
        kept.read(0, frames.pop)


def test_a_full_disk_says_what_helps(tmp_path, monkeypatch):
    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(shuffle_again, "TemporaryFile", lambda dir: Full())
    kept = shuffle_again.KeptFrames(str(tmp_path))
    with pytest.raises(OutOfDisk, match=r"No space left .* larger disk"):
        kept.read(0, part)


def test_only_the_latest_shuffles_are_remembered(monkeypatch):
    monkeypatch.setattr(shuffle_again, "REMEMBERED", 2)
    for shuffle_id in "abc":
        shuffle_again.note(shuffle_id)
    assert [shuffle_again.is_noted(i) for i in "abc"] == [False, True, True]
