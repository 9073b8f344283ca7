"""Workers with the store in real clusters: what spills, comes back, is lost, ends."""

import asyncio
import contextlib
import gc
import os
import signal
import threading
import weakref

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, Nanny, Scheduler, Worker, wait
from distributed.sizeof import safe_sizeof
from distributed.spill import SpillBuffer

import spillway
import store_files
from spillway.dask import disable, enable, hook_store
from spillway.dask.worker_store import WorkerStore

MIB = 1 << 20
PATIENCE_S = 60
SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}
TINY_VALUES_LEAVE = {hook_store.SMALL_KEY: "1 B"}
BY_TARGET_ALONE = {
    "distributed.worker.memory.target": 0.6,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def store_is_on():
    with dask.config.set(TINY_VALUES_LEAVE):
        enable()
        yield


@contextlib.asynccontextmanager
async def cluster(**options):
    options = {"n_workers": 2, "threads_per_worker": 2, "processes": True, **options}
    async with (
        LocalCluster(dashboard_address=":0", asynchronous=True, **options) as made,
        Client(made, asynchronous=True) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def one_worker(memory_limit, **options):
    """A worker of this process whose store looks at the weight of values alone."""
    with dask.config.set(BY_TARGET_ALONE):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(
                scheduler.address, memory_limit=memory_limit, nthreads=2, **options
            ) as worker,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            yield client, worker


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)


async def figures(client):
    return [one["store"] for one in (await client.run(spillway.stats)).values()]


def noise(seed, size=MIB):
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


def checksum(*arrays):
    return sum(int(array.sum(dtype="u8")) for array in arrays)


class Unpicklable:
    def __init__(self, size):
        self.size = size

    def __sizeof__(self):
        return self.size

    def __reduce__(self):
        raise ZeroDivisionError("not this one")


class BrokenInside:
    """Can be written, and not read."""

    def __sizeof__(self):
        return 10_000

    def __reduce__(self):
        return _raise, ()


def _raise():
    raise LookupError("never again")


class Counted:
    """Counts how often it is unpickled in this process, which the gate holds up."""

    made = 0
    gate = threading.Event()

    def __sizeof__(self):
        return 10_000

    def __reduce__(self):
        return Counted.again, ()

    @staticmethod
    def again():
        assert Counted.gate.wait(PATIENCE_S)
        Counted.made += 1
        return Counted()


# Where it is installed


async def test_a_worker_has_it_and_it_ends_with_the_worker():
    before = spillway.stats()["store"]["stores"]
    async with Scheduler(**SCHEDULER) as scheduler:
        async with Worker(scheduler.address) as worker:
            assert type(worker.data) is WorkerStore
            assert worker.state.data is worker.data
            assert spillway.stats()["store"]["stores"] == before + 1
            directory = worker.local_directory
            assert any(name.startswith("spillway") for name in os.listdir(directory))
        assert spillway.stats()["store"]["stores"] == before
        assert not os.path.exists(directory)


@pytest.mark.parametrize("options", [{"memory_limit": 0}, {"data": {}}])
async def test_other_mappings_stay(options):
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address, **options) as worker,
    ):
        assert type(worker.data) is dict


async def test_a_failed_installation_leaves_dasks(monkeypatch):
    def fail(*_):
        raise RuntimeError("no store today")

    monkeypatch.setattr(hook_store, "_make", fail)
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address) as worker,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        assert type(worker.data) is SpillBuffer
        assert worker.state.data is worker.data
        assert await client.submit(sum, [1, 2]) == 3


def test_check_finds_the_installed_dask_to_match():
    assert hook_store.check() is None
    assert spillway.stats()["parts"]["store"] == {"on": True, "why_off": None}


async def test_the_environment_switches_it_off(monkeypatch):
    disable()
    monkeypatch.setenv("SPILLWAY_DISABLE", "store")
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address) as worker,
    ):
        assert type(worker.data) is SpillBuffer


async def test_dasks_settings_are_followed():
    settings = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.max-spill": "1 MiB",
        "distributed.worker.memory.spill-compression": "zstd",
    }
    with dask.config.set(settings):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(scheduler.address, memory_limit="1 GiB") as worker,
        ):
            store = worker.data
            assert store.target == 0
            store["x"] = bytes(100_000)  # which zstd makes small
            store.evict()
            await until(lambda: len(store.slow) == 1)
            assert store.spilled_total.disk < 10_000
            store["y"] = noise(1, 2 * MIB)  # more than may be on disk
            store.evict()
            await until(lambda: store.figures()["failures"] == 1)
            assert "y" in store.fast


@pytest.mark.parametrize("share", [0.7, False])
async def test_values_leave_when_the_process_is_above_the_share_to_spill_at(share):
    """By themselves: no monitor runs."""
    settings = {
        "distributed.worker.memory.target": 0.6,
        "distributed.worker.memory.spill": share,
        "distributed.worker.memory.pause": False,
        "distributed.worker.memory.monitor-interval": "1 h",
    }
    with dask.config.set(settings):
        async with (
            Scheduler(**SCHEDULER) as scheduler,
            Worker(scheduler.address, memory_limit="640 MiB") as worker,
        ):
            store = worker.data
            worker.monitor.get_process_memory = lambda: (
                100 * MIB if store.slow else 600 * MIB
            )
            for i in range(4):  # a sixty-fourth of its memory, and a little
                store[i] = noise(i, 3 * MIB)
            if share:
                await until(lambda: len(store.slow) == 1)
            assert len(store.slow) == bool(share)


# Tasks


async def test_what_tasks_need_is_read_back_for_them():
    async with one_worker("10 MiB") as (client, worker):
        values = client.map(noise, range(30))
        await wait(values)
        await until(lambda: len(worker.data.slow) >= 20)
        sums = [
            client.submit(checksum, *values[i : i + 3], key=f"s{i}")
            for i in range(0, 30, 3)
        ]
        assert sum(await client.gather(sums)) == checksum(*map(noise, range(30)))
        (now,) = await figures(client)
        assert now["reads"] >= 20 and now["writes"] >= 20
        met = {key[3:] for key in worker.digests_total if key[0] == "execute"}
        assert met >= {("disk-read", unit) for unit in ("seconds", "count", "bytes")}


async def test_a_value_is_unpickled_once_for_all_that_ask():
    async with one_worker(12_000) as (client, worker):
        value = client.submit(Counted, key="value")
        await wait(value)
        await until(lambda: "value" in worker.data.slow)
        Counted.made = 0
        users = [
            client.submit(lambda _: 1, value, key=f"user-{i}", workers=worker.address)
            for i in range(2)
        ]
        await until(lambda: len(worker.state.executing) == 2)
        Counted.gate.set()
        assert await client.gather(users) == [1, 1]
        assert Counted.made == 1


async def test_what_cannot_be_unpickled_fails_its_task_once_with_the_cause():
    async with one_worker(12_000) as (client, worker):
        bad = client.submit(BrokenInside, key="bad")
        await wait(bad)
        await until(lambda: "bad" in worker.data.slow)
        user = client.submit(lambda _: 1, bad, key="user")
        with pytest.raises(RuntimeError, match=r"'bad'.*never again"):
            await asyncio.wait_for(asyncio.shield(user.result()), PATIENCE_S)
        assert await client.submit(sum, [1, 2]) == 3


async def test_a_value_larger_than_the_target_that_cannot_be_pickled_fails_its_task():
    async with one_worker(10_000) as (client, worker):
        large = client.submit(Unpicklable, 7000, key="large")
        with pytest.raises(TypeError, match="Failed to pickle 'large'"):
            await large
        small = client.submit(Unpicklable, 5000, key="small")
        await wait(small)
        assert small.status == "finished" and set(worker.data.fast) == {"small"}


async def test_a_value_larger_than_the_target_goes_to_disk_off_the_loop():
    async with one_worker("12 MiB") as (client, worker):
        large = client.submit(noise, 1, 8 * MIB, key="large")
        await wait(large)
        assert set(worker.data.slow) == {"large"}
        assert await client.submit(checksum, large) == checksum(noise(1, 8 * MIB))
        total = worker.digests_total
        counts = [v for k, v in total.items() if k[-2:] == ("disk-write", "count")]
        assert sum(counts) == 1


async def test_a_value_larger_than_the_target_drives_no_other_out():
    """Neither where it is made or comes, nor where it is used."""
    async with one_worker("12 MiB") as (client, worker):
        small = client.map(noise, range(6))
        await wait(small)
        kept = {one.key for one in small}
        large = client.submit(noise, 1, 8 * MIB, key="large")
        came = client.scatter({"came": noise(2, 8 * MIB)}, direct=True)
        values = [large, (await came)["came"]]
        await wait(values)
        for _ in range(2):
            await until(lambda: {"large", "came"} <= set(worker.data.slow))
            assert kept <= set(worker.data.fast)
            sums = client.map(checksum, values, pure=False)
            found = await client.gather(sums)
            assert found == [checksum(noise(i, 8 * MIB)) for i in (1, 2)]
        figures = worker.data.figures()
        # The one that was made here; the other came to disk as it was received.
        assert figures["writes"] == figures["received"] == 1
        assert kept <= set(worker.data.fast)


@pytest.mark.parametrize("way", ["dependency", "scattered"])
async def test_one_that_came_as_an_object_and_cannot_be_pickled_is_used(way, caplog):
    """As such only without our comms. It is larger than the target: on stock Dask the
    task that wants it waits for ever."""
    with dask.config.set(BY_TARGET_ALONE):
        async with (
            Scheduler(protocol="inproc", dashboard_address=":0") as scheduler,
            Worker(scheduler.address, memory_limit=10**6) as here,
            Worker(scheduler.address, memory_limit=10**5) as there,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            if way == "dependency":
                x = client.submit(Unpicklable, 80_000, key="x", workers=[here.address])
            else:
                at = {"workers": [there.address], "direct": True}
                x = (await client.scatter({"x": Unpicklable(80_000)}, **at))["x"]
            user = client.submit(lambda one: one.size, x, workers=[there.address])
            assert await asyncio.wait_for(user.result(), PATIENCE_S) == 80_000
            await until(lambda: there.data.figures()["failures"])
            assert "x" in there.data.fast
    assert caplog.text.count("Failed to pickle 'x'") == 1


async def test_a_lost_value_is_computed_again(caplog):
    async with one_worker("5 MiB") as (client, worker):
        values = client.map(noise, range(4), size=4 * MIB)
        await wait(values)
        await until(lambda: len(worker.data.slow) == 4)
        assert store_files.corrupt()
        sums = client.map(checksum, values)
        async with asyncio.timeout(PATIENCE_S):
            found = await client.gather(sums)
        assert found == [checksum(noise(i, 4 * MIB)) for i in range(4)]
        assert worker.data.figures()["losses"] >= 4
    assert "it is computed again" in caplog.text


async def test_tasks_that_are_cancelled_while_they_wait_for_a_disk():
    async with one_worker("5 MiB") as (client, worker):
        for _ in range(5):
            values = client.map(noise, range(6), size=4 * MIB, pure=False)
            await wait(values)
            users = [client.submit(checksum, value, pure=False) for value in values]
            await asyncio.sleep(0)
            await client.cancel(users)
            await client.cancel(values)
            await until(lambda: not worker.data)
        assert await client.submit(sum, [1, 2]) == 3
        assert worker.data.figures()["live"]["count"] <= 1


async def test_garbage_that_has_grown_old_is_found_when_memory_is_short(monkeypatch):
    class Node:
        pass

    memory = [100 * MIB]
    measure = "distributed.system_monitor.SystemMonitor.get_process_memory"
    monkeypatch.setattr(measure, lambda self: memory[0])
    async with one_worker("1 GiB") as (_, worker):
        store = worker.data
        node = Node()
        node.itself, is_there = node, weakref.ref(node)
        gc.collect()
        del node
        for number in range(5):
            store[number] = noise(number)
        memory[0] = 617 * MIB  # 614 are its target
        store.evict()
        await until(lambda: is_there() is None)
        assert len(store.slow) <= 3  # what was asked for, and no more


# What is told

held = []


def made_and_held():
    held.append(noise(0, 2 * MIB))
    return held[0]


async def test_what_has_left_and_is_in_use_is_in_the_heartbeat():
    async with one_worker("100 MiB") as (client, worker):

        async def is_told(expected):
            async with asyncio.timeout(PATIENCE_S):
                told = None
                while told != expected:
                    await worker.heartbeat()
                    info = await client.scheduler.identity()
                    metrics = info["workers"][worker.address]["metrics"]
                    told = metrics[hook_store.IN_USE]

        value = client.submit(made_and_held)
        await wait(value)
        await is_told(0)
        worker.data.evict()
        await until(lambda: value.key in worker.data.slow)
        await is_told(safe_sizeof(held[0]))
        held.clear()
        await is_told(0)


# Whole computations


async def test_ten_times_more_data_than_memory():
    """And no worker is killed for what it takes."""
    async with cluster(n_workers=1, memory_limit="256 MiB") as client:
        (begun_as,) = (await client.run(os.getpid)).values()
        values = client.map(noise, range(1280), size=2 * MIB)
        found = await client.gather(client.map(checksum, values))
        assert found == [checksum(noise(i, 2 * MIB)) for i in range(1280)]
        (now,) = await figures(client)
        assert now["on_disk"]["bytes"] > 2000 * MIB
        assert now["losses"] == now["failures"] == 0
        assert list((await client.run(os.getpid)).values()) == [begun_as]


def threads(**options):
    """Workers of this process, whose own memory is beyond any of their limits."""
    return cluster(processes=False, **options)


async def test_threads_of_one_process_have_a_store_each():
    with dask.config.set(BY_TARGET_ALONE):
        async with threads(memory_limit="64 MiB") as client:
            assert (await figures(client))[0]["stores"] == 2
            values = client.map(noise, range(200))
            found = await client.gather(client.map(checksum, values))
            assert found == [checksum(noise(i)) for i in range(200)]
            assert (await figures(client))[0]["writes"] > 50
    assert spillway.stats()["store"]["stores"] == 0


async def test_two_clusters_of_one_process():
    with dask.config.set(BY_TARGET_ALONE):
        async with (
            threads(n_workers=1, memory_limit="32 MiB") as one,
            threads(n_workers=1, memory_limit="32 MiB") as other,
        ):
            values = [client.map(noise, range(60)) for client in (one, other)]
            for client, kept in zip((one, other), values, strict=True):
                found = await client.gather(client.map(checksum, kept))
                assert found == [checksum(noise(i)) for i in range(60)]
            assert spillway.stats()["store"]["stores"] == 2


async def test_a_store_that_disable_left_ends_with_its_worker():
    before = spillway.stats()["store"]["stores"]
    async with Scheduler(**SCHEDULER) as scheduler:
        worker = await Worker(scheduler.address)
        store = worker.data
        disable()
        store["x"] = 1
        assert spillway.stats()["store"]["stores"] == before + 1
        await worker.close()
        assert spillway.stats()["store"]["stores"] == before
        assert store["x"] == 1


async def test_restarting_and_retiring():
    async with cluster(memory_limit="256 MiB") as client:
        values = client.map(noise, range(300))
        await wait(values)
        first, *_ = await client.nthreads()
        await client.retire_workers([first])
        found = await client.gather(client.map(checksum, values))
        assert sum(found) == checksum(*map(noise, range(300)))
        await client.restart()
        assert await client.submit(sum, [1, 2]) == 3
        assert all(one["stores"] == 1 for one in await figures(client))


def spill_everything(dask_worker):
    for i in range(20):
        dask_worker.data[f"mine-{i}"] = bytes(MIB)
    dask_worker.data.evict()
    return dask_worker.local_directory, os.getpid()


def is_on_disk(dask_worker):
    return dask_worker.data.figures()["disk_bytes"]


async def test_a_killed_worker_leaves_no_files():
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Nanny(scheduler.address, nthreads=1) as nanny,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        await client.wait_for_workers(1)
        ((directory, pid),) = (await client.run(spill_everything)).values()
        async with asyncio.timeout(PATIENCE_S):
            while not sum((await client.run(is_on_disk)).values()):
                await asyncio.sleep(0.01)
        assert os.path.exists(directory)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not os.path.exists(directory))
        await until(lambda: nanny.pid not in (None, pid))
