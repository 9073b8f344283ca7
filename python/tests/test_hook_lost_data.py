"""Scattered data that a disk lost are gone, and nothing else is."""

import asyncio
import contextlib

import dask
import numpy as np
import pytest
from distributed import Client, Scheduler, Worker, wait
from distributed.client import FutureCancelledError

import store_files
from spilling_workers import ALL_SPILL, SCHEDULER, checksum
from spillway import _native
from spillway.dask import disable, enable, hook_lost_data

MIB = 1 << 20
PATIENCE_S = 60

pytestmark = pytest.mark.timeout(180)


def noise(seed, size=MIB):
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def workers(count):
    """In this process; all that they have goes to disk."""
    enable()
    with dask.config.set(ALL_SPILL):
        async with contextlib.AsyncExitStack() as stack:
            scheduler = await stack.enter_async_context(Scheduler(**SCHEDULER))
            made = [
                await stack.enter_async_context(
                    Worker(scheduler.address, memory_limit="1 GiB", nthreads=1)
                )
                for _ in range(count)
            ]
            client = await stack.enter_async_context(
                Client(scheduler.address, asynchronous=True)
            )
            yield client, scheduler, made


async def are_on_disk(*workers):
    await until(lambda: all(len(one.data.slow) == len(one.data) for one in workers))


@pytest.mark.parametrize("with_others", [False, True], ids=["it alone", "and others"])
async def test_who_needs_it_is_told_and_its_worker_stays(with_others):
    async with workers(1) as (client, scheduler, (worker,)):
        scattered = await client.scatter(noise(1))
        computed = client.submit(noise, 2)
        await wait(computed)
        await are_on_disk(worker)
        known = scheduler.workers[worker.address]
        assert store_files.corrupt()
        needed = [scattered, computed] if with_others else [scattered]
        total = client.submit(checksum, *needed)
        queued = client.submit(checksum, scattered, pure=False)
        async with asyncio.timeout(PATIENCE_S):
            for future in (total, queued):
                with pytest.raises(FutureCancelledError):
                    await future
            assert await client.submit(checksum, computed) == checksum(noise(2))
        assert scattered.cancelled()
        assert scheduler.workers[worker.address] is known
        assert scattered.key not in scheduler.tasks
        # It can be scattered again.
        again = await client.scatter(noise(1))
        assert await client.submit(checksum, again) == checksum(noise(1))


async def test_who_only_looks_at_it_is_told():
    async with workers(1) as (client, scheduler, (worker,)):
        scattered = await client.scatter(noise(1))
        await are_on_disk(worker)
        known = scheduler.workers[worker.address]
        assert store_files.corrupt()
        with pytest.raises(_native.SpillwayError):
            worker.data[scattered.key]
        await until(scattered.cancelled)
        assert scheduler.workers[worker.address] is known


async def test_where_another_worker_has_it_that_one_is_asked():
    async with workers(2) as (client, scheduler, (one, other)):
        (scattered,) = await client.scatter([noise(1)], broadcast=True)
        await are_on_disk(one, other)
        for message in ("first", "second"):
            worker = one if message == "first" else other
            scheduler.stream_handlers["release-worker-data"](
                key=scattered.key, worker=worker.address, stimulus_id=message
            )
            is_known = scattered.key in scheduler.tasks
            assert is_known == (message == "first")


async def test_install_and_remove():
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        ours = scheduler.stream_handlers["release-worker-data"]
        assert ours != scheduler.release_worker_data
        disable()
        stock = scheduler.stream_handlers["release-worker-data"]
        assert stock == scheduler.release_worker_data
        scheduler.stream_handlers["release-worker-data"] = theirs = print
        await hook_lost_data.install(scheduler)
        hook_lost_data.remove(scheduler)
        assert scheduler.stream_handlers["release-worker-data"] is theirs


@pytest.mark.parametrize("name", ["store", "all"])
async def test_switched_off(monkeypatch, name):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        handler = scheduler.stream_handlers["release-worker-data"]
        assert handler == scheduler.release_worker_data


def test_check_finds_the_installed_dask_to_match():
    assert hook_lost_data.check() is None
