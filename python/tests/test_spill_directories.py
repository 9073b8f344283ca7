"""Where values and partitions go when the worker's local directory is full."""

from types import SimpleNamespace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, Scheduler, Worker

import spillway
from spillway.dask import enable, hook_store
from spillway.dask.spill_directories import KEY, spill_directories

MIB = 1 << 20
INPUTS, ROWS, COLUMNS = 4, 100_000, 50
"""Enough for each of two workers to write."""

pytestmark = pytest.mark.timeout(120)


def directories(named, limit=7):
    with dask.config.set({KEY: named}):
        return spill_directories(SimpleNamespace(local_directory="/local"), limit)


@pytest.mark.parametrize("named", [None, []])
def test_the_local_directory_comes_first_and_alone(named):
    assert directories(named) == [("/local", 7)]


def test_directories_are_named_with_and_without_a_limit(tmp_path):
    path = str(tmp_path)
    named = [path, {"path": path}, {"path": path, "limit": "2 KiB"}]
    assert directories(named, limit=0) == [
        *(("/local", 0), (path, 0)),
        *((path, 0), (path, 2048)),
    ]


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("/tmp", "must be a list of directories, not '/tmp'"),
        ([5], "names paths, or mappings of path and limit, not 5"),
        ([{"limit": "1 GB"}], "names paths, or mappings of path and limit"),
        ([{"path": "/", "size": 5}], "names paths, or mappings of path and limit"),
        (["/nowhere/at/all"], "names /nowhere/at/all, which is no directory"),
        (
            [{"path": "/", "limit": "much"}],
            "must have a limit such as \"100 GiB\" for /.*not 'much'",
        ),
        (
            [{"path": "/", "limit": -1}],
            'must have a limit such as "100 GiB" for /.*not -1',
        ),
        (
            [{"path": "/", "limit": None}],
            'must have a limit such as "100 GiB" for /.*not None',
        ),
    ],
)
def test_what_names_no_directories_is_refused(named, reason):
    with pytest.raises(ValueError, match=f"{KEY} {reason}"):
        directories(named)


async def test_values_go_to_the_next_directory_above_max_spill(tmp_path):
    enable()
    values = {number: np.full(MIB // 8, number, "f8") for number in range(6)}
    settings = {
        KEY: [str(tmp_path)],
        hook_store.SMALL_KEY: "1 B",
        "distributed.worker.memory.target": 1e-9,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.max-spill": 2 * MIB,
        "distributed.worker.memory.spill-compression": False,
    }
    with dask.config.set(settings):
        async with (
            Scheduler(dashboard_address=":0", port=0) as scheduler,
            Worker(scheduler.address, memory_limit="1 GiB") as worker,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            futures = await client.scatter(values, hash=False)
            found = await client.gather(futures)
            while worker.data.spilled_total.disk < 6 * MIB:
                await client.run(int)
            assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [
                0o700
            ]
            assert all((found[number] == values[number]).all() for number in values)
            del futures
    assert list(tmp_path.iterdir()) == []


def part(number):
    values = np.arange(float(ROWS))[:, None] + np.arange(COLUMNS) + number * ROWS
    frame = pd.DataFrame(values, columns=[f"v{at}" for at in range(COLUMNS)])
    return frame.assign(key=np.arange(ROWS) % 97)


def test_a_shuffle_has_room_where_the_next_directory_has(tmp_path, monkeypatch):
    """The local directory takes nothing."""
    enable()
    monkeypatch.setattr(
        "spillway.dask.shuffle_memory.spill_directories",
        lambda worker, limit: [
            (worker.local_directory, 1),
            *spill_directories(worker, limit)[1:],
        ],
    )
    settings = {KEY: [str(tmp_path)], "spillway.shuffle.buffer": "disk"}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        before = spillway.stats()["shuffle"]
        shuffled = dd.from_map(part, range(INPUTS)).shuffle("key", npartitions=5)
        found = shuffled.compute().sort_values("v0", ignore_index=True)
        expected = pd.concat(map(part, range(INPUTS)), ignore_index=True)
        pd.testing.assert_frame_equal(found, expected)
        after = spillway.stats()["shuffle"]
    assert after["runs"] - before["runs"] == 2
    assert after["written_bytes"] > before["written_bytes"]
    assert list(tmp_path.iterdir()) == []
