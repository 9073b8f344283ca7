"""The pool obeys the limit of the workers in its process, and forgets it with them."""

import pytest
from distributed import Scheduler, Worker, system

from spillway.dask import disable, enable, hook_memory_limit, pool_trimmer

SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


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
