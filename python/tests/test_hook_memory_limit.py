"""The pool obeys the limit of the workers in its process, and forgets it with them."""

import dask
import pytest
from distributed import Scheduler, Worker, system

from spillway import _native
from spillway.dask import (
    disable,
    enable,
    hook_memory_limit,
    pool_trimmer,
    process_memory,
)

MIB = 1 << 20
SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


def pooled():
    return _native.figures()["budget"]["pooled"]


async def test_the_limit_is_the_workers_while_it_is_there():
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        async with Worker(scheduler.address, memory_limit="300MiB"):
            assert pool_trimmer.memory_limit() == 300 * 2**20
        assert pool_trimmer.memory_limit() == system.MEMORY_LIMIT


@pytest.mark.parametrize("limit", [0, None])
async def test_a_worker_without_a_limit_sets_none(limit):
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address, memory_limit=limit),
    ):
        assert pool_trimmer.memory_limit() == system.MEMORY_LIMIT


async def test_disable_restores_stock():
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address, memory_limit="300MiB"),
    ):
        disable()
        assert pool_trimmer.memory_limit() == system.MEMORY_LIMIT


def test_check_finds_the_installed_dask_to_match():
    assert hook_memory_limit.check() is None


async def test_what_the_pool_keeps_goes_before_dask_acts_on_it():
    enable()
    settings = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": 0.3,
    }
    with dask.config.set(settings):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(scheduler.address, memory_limit="100 GiB") as worker,
        ):
            _native.trim(0, 0)
            memoryview_of_the_pools = _native.allocate(64 * MIB)
            del memoryview_of_the_pools
            assert pooled() >= 64 * MIB
            worker.monitor.get_process_memory()
            assert pooled() >= 64 * MIB
            process_memory._readings[worker]._act_bytes = 1
            assert worker.monitor.get_process_memory() > MIB
            assert pooled() < MIB


async def test_the_least_share_at_which_dask_acts_is_the_pools(monkeypatch):
    told = []
    monkeypatch.setattr(_native, "limit_resident", lambda *both: told.append(both))
    enable()
    with dask.config.set({"distributed.worker.memory.target": 0.25}):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(scheduler.address, memory_limit="400 MiB"),
        ):
            assert told[-1] == (100 * MIB, 50 * MIB)
