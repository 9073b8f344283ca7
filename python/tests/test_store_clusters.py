"""Workers with the store through what happens to real clusters: kills, full disks,
workers that leave, connections that end, actors, deployed workers."""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time

import dask
import psutil
import pytest
from distributed import Client, Scheduler, Worker, wait

import spillway
from test_hook_store import (
    BY_TARGET_ALONE,
    MIB,
    PATIENCE_S,
    SCHEDULER,
    checksum,
    cluster,
    figures,
    noise,
    store_is_on,  # noqa: F401  a fixture
    until,
)

pytestmark = pytest.mark.timeout(180)


# Killed


def is_spilling(worker):
    return worker.data.figures()["leaving_bytes"] > 0


def is_sending(worker):
    return worker.transfer_outgoing_bytes > 0


def is_receiving(worker):
    return worker.state.transfer_incoming_bytes > 0


def kill_yourself_when(condition, dask_worker):
    def watch():
        while not condition(dask_worker):
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    return os.getpid()


@pytest.mark.parametrize("moment", [is_spilling, is_sending, is_receiving])
async def test_a_worker_that_is_killed(moment):
    """Its values are made again, and what it was sending or receiving is not missed."""
    async with cluster(memory_limit="400 MiB") as client:
        first, *_ = await client.nthreads()
        ((_, pid),) = (
            await client.run(kill_yourself_when, moment, workers=[first])
        ).items()
        values = client.map(noise, range(200), size=2 * MIB)
        pairs = [client.submit(checksum, values[i], values[-1 - i]) for i in range(100)]
        found = await client.gather(pairs)
        assert sum(found) == sum(checksum(noise(i, 2 * MIB)) for i in range(200))
        assert pid not in (await client.run(os.getpid)).values()
        now = await figures(client)
        assert sum(one["writes"] for one in now) > 0
        assert sum(one["losses"] + one["failures"] for one in now) == 0


# Just above the limit


def fill(share, size, dask_worker):
    """Put values into a worker until it uses so much of what it may."""
    resident = psutil.Process().memory_info().rss
    missing = share * dask_worker.memory_manager.memory_limit - resident
    for number in range(int(missing / size)):
        dask_worker.data[f"mine-{number}"] = noise(number, size)


def weights(dask_worker):
    figures = dask_worker.data.figures()
    return {tier: figures[tier]["weight"] for tier in ("live", "packed", "on_disk")} | {
        "leaving": figures["leaving_bytes"],
        "status": dask_worker.status.name,
    }


async def test_of_what_is_a_little_too_much_little_leaves():
    """5% above the share at which Dask spills: at most 15% of the data leave."""
    settings = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": 0.7,
    }
    with dask.config.set(settings):
        async with cluster(n_workers=1, memory_limit="1 GiB") as client:
            await client.run(functools.partial(fill, 0.75, 4 * MIB))
            seen = []
            async with asyncio.timeout(PATIENCE_S):
                while len(seen) < 20 or seen[-1] != seen[-20]:  # for two seconds
                    seen += (await client.run(weights)).values()
                    await asyncio.sleep(0.1)
            now = seen[-1]
            total = now["live"] + now["packed"] + now["on_disk"]
            assert total > 400 * MIB
            assert now["leaving"] == 0 and now["status"] == "running"
            assert 0.03 * total < now["on_disk"] < 0.15 * total


# A file system without room


@pytest.fixture
def small_disk(tmp_path):
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield str(tmp_path)
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


async def test_a_file_system_that_fills(small_disk):
    """What has no room there stays in memory, and nobody is paused for it."""
    async with cluster(
        n_workers=1, memory_limit="700 MiB", local_directory=small_disk
    ) as client:
        values = client.map(noise, range(220), size=2 * MIB)
        found = await client.gather(client.map(checksum, values))
        assert found == [checksum(noise(i, 2 * MIB)) for i in range(220)]
        (now,) = await figures(client)
        assert now["failures"] >= 1 and now["losses"] == 0
        assert 0 < now["disk_bytes"] <= 48 * MIB
        assert now["live"]["count"] + now["packed"]["count"] >= 190


# Workers that leave


async def test_a_worker_whose_lifetime_ends_hands_over_what_is_on_disk():
    with dask.config.set(BY_TARGET_ALONE):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(scheduler.address, memory_limit="40 MiB", name="leaves") as leaves,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            values = client.map(noise, range(60))
            await wait(values)
            await until(lambda: len(leaves.data.slow) >= 30)
            unpacked = leaves.data.figures()["unpacks"]
            async with Worker(scheduler.address, memory_limit="40 MiB") as stays:
                await leaves.close_gracefully()
                assert len(stays.data) == 60
                assert leaves.data.figures()["unpacks"] <= unpacked
                found = await client.gather(client.map(checksum, values))
                assert found == [checksum(noise(i)) for i in range(60)]
    assert spillway.stats()["store"]["stores"] == 0


async def test_an_adaptive_cluster_that_shrinks_keeps_its_values():
    async with cluster(memory_limit="300 MiB") as client:
        values = client.map(noise, range(200))
        await wait(values)
        client.cluster.adapt(minimum=1, maximum=1, interval="50 ms")
        async with asyncio.timeout(PATIENCE_S):
            while len(await client.nthreads()) > 1:
                await asyncio.sleep(0.05)
        (held,) = (await client.has_what()).values()
        assert len(held) == 200
        found = await client.gather(client.map(checksum, values))
        assert found == [checksum(noise(i)) for i in range(200)]


def break_the_connection_to_the_scheduler(dask_worker):
    dask_worker.loop.call_later(0.1, dask_worker.batched_stream.comm.abort)


async def test_a_worker_that_loses_its_scheduler_is_replaced():
    """Dask's workers close then. What it had is made again by the other."""
    async with cluster(memory_limit="300 MiB") as client:
        values = client.map(noise, range(200))
        await wait(values)
        first, *_ = await client.nthreads()
        await client.run(break_the_connection_to_the_scheduler, workers=[first])
        async with asyncio.timeout(PATIENCE_S):
            while first in await client.nthreads():
                await asyncio.sleep(0.05)
        found = await client.gather(client.map(checksum, values))
        assert found == [checksum(noise(i)) for i in range(200)]
        assert all(one["losses"] == 0 for one in await figures(client))


# Actors


class Counter:
    """An actor with more than the target."""

    def __init__(self):
        self.count = 0
        self.ballast = noise(1, 4 * MIB)

    def add(self, array):
        self.count += checksum(array)
        return self.count


def add_by_task(counter, array):
    return counter.add(array).result()


async def test_actors_stay_where_they_are():
    with dask.config.set(BY_TARGET_ALONE):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(scheduler.address, memory_limit="3 MiB", nthreads=2) as worker,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            counter = await client.submit(Counter, actor=True)
            values = client.map(noise, range(4))
            await wait(values)
            await until(lambda: len(worker.data.slow) >= 3)
            total = 0
            for i, value in enumerate(values):
                total += checksum(noise(i))
                assert await client.submit(add_by_task, counter, value) == total
            assert list(worker.state.actors) == [counter.key]
            assert counter.key not in worker.data.slow


# Deployed


@contextlib.contextmanager
def process(*arguments, **environment):
    command = [sys.executable, "-m", "dask", *arguments]
    started = subprocess.Popen(
        command, env=os.environ | environment, stderr=subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        started.terminate()
        started.wait(PATIENCE_S)


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
async def test_a_deployed_worker_has_the_store_by_a_preload(nanny, tmp_path):
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        with process(
            "worker",
            scheduler.address,
            *("--preload", "spillway.dask.preload"),
            *("--memory-limit", "256 MiB"),
            *("--local-directory", str(tmp_path)),
            nanny,
            PYTHONPATH=os.path.dirname(__file__),  # where its functions are
        ):
            await client.wait_for_workers(1)
            values = client.map(noise, range(200))
            found = await client.gather(client.map(checksum, values))
            assert found == [checksum(noise(i)) for i in range(200)]
            (now,) = await figures(client)
            assert now["stores"] == 1 and now["writes"] > 0
