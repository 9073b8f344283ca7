"""Shuffles that lose what they count on, and what is left of them."""

import asyncio
import gc
import time
import weakref

import pytest

from spillway.dask import shuffle_peers
from spillway.dask.shuffle_run import DataFrameRun
from test_hook_shuffle import cluster, frame, whole

pytestmark = pytest.mark.timeout(120)

LIMIT_S = 30


async def test_a_run_goes_though_connections_stay(monkeypatch):
    runs = []
    init = DataFrameRun.__init__

    def note(run, *args):
        init(run, *args)
        runs.append(weakref.ref(run))

    monkeypatch.setattr(DataFrameRun, "__init__", note)
    async with cluster() as (client, _):
        out = await client.compute(frame().shuffle("key", npartitions=5))
        assert len(out) == len(whole())
        deadline = time.monotonic() + LIMIT_S
        while any(run() is not None for run in runs) and time.monotonic() < deadline:
            gc.collect()
            await asyncio.sleep(0.01)
        assert [run() for run in runs] == [None, None]


async def test_who_has_left_is_not_without_an_engine():
    class Scheduler:
        async def identity(self, n_workers):
            ours = {"spillway": {"shuffle_version": shuffle_peers.VERSION}}
            return {"workers": {"tcp://a": ours, "tcp://b": {}}}

    asked = ["tcp://a", "tcp://b", "tcp://left"]
    assert await shuffle_peers.without_engine(Scheduler(), asked) == ["tcp://b"]
