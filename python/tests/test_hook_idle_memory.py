"""Freed memory leaves a worker that is idle, or that Dask finds to be short of it."""

import asyncio
import contextlib
import os
import threading
import types

import dask
import pytest
from distributed import Client, LocalCluster, Scheduler, Worker, wait

from spillway.dask import (
    disable,
    enable,
    free_heap,
    hook_idle_memory,
    process_memory,
)
from spillway.dask.hook_idle_memory import IDLE_S, IdleMemory
from spillway.dask.malloc_variables import SETTINGS
from test_hook_malloc import clean_environment  # noqa: F401  a fixture

MIB = 1 << 20
CLUSTER = {"threads_per_worker": 1, "dashboard_address": ":0", "asynchronous": True}
SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}
GIVEN_BACK_S = 20


@contextlib.asynccontextmanager
async def one_worker(**options):
    enable()
    async with (
        LocalCluster(n_workers=1, **CLUSTER, **options) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        yield client


async def ask(client, function, *arguments):
    (answer,) = (await client.run(function, *arguments)).values()
    return answer


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // MIB


def pieces(count, size=MIB):
    """So many blocks, and a last small one, which keeps them inside the heap."""
    return [bytes(bytearray(b"x") * size) for _ in range(count)], bytearray(200_000)


async def test_an_idle_worker_gives_freed_memory_back():
    async with one_worker() as client:
        before = await ask(client, resident_mib)
        kept = await client.submit(pieces, 1)
        future = client.submit(pieces, 400)
        await wait(future)
        assert await ask(client, resident_mib) > before + 380
        future.release()
        async with asyncio.timeout(GIVEN_BACK_S):
            while await ask(client, resident_mib) > before + 60:
                await asyncio.sleep(0.1)
        del kept


def kept_mib():
    """How much of 100 MiB in blocks is resident when all but the last are freed."""
    before = resident_mib()
    blocks, _last = pieces(100)
    del blocks[:-1]
    return resident_mib() - before


@pytest.mark.parametrize(
    ("limit", "least", "most"), [("300MB", 0, 20), ("600MB", 95, 110)]
)
async def test_a_worker_with_little_memory_keeps_nothing(limit, least, most):
    async with one_worker(memory_limit=limit) as client:
        assert least <= await ask(client, kept_mib) <= most


def make(size):
    return bytes(bytearray(os.urandom(size)))


def fast_mib(dask_worker):
    return sum(map(len, dask_worker.data.fast.values())) // MIB


def spilled(dask_worker):
    return len(dask_worker.data.slow)


async def test_spilling_ends_as_soon_as_enough_was_spilled():
    """Dask spills until the resident size has come down, which it does only when what
    was spilled leaves the heap. Otherwise it spills everything."""
    by_resident_size_alone = {"distributed.worker.memory.target": False}
    with dask.config.set(by_resident_size_alone):
        await check_spilling()


async def check_spilling():
    async with one_worker(memory_limit="1GiB") as client:
        made = client.map(make, [4 * MIB] * 200, pure=False)
        await wait(made)
        async with asyncio.timeout(GIVEN_BACK_S):
            while not await ask(client, spilled):
                await asyncio.sleep(0.1)
        assert await ask(client, fast_mib) > 450


# By hand


class Worker_:
    """The parts of a worker that are looked at."""

    def __init__(self, limit=1000):
        self.resident = 0
        self.monitor = types.SimpleNamespace()
        self.monitor.get_process_memory = lambda: self.resident
        self.state = types.SimpleNamespace(transition_counter=0, all_running_tasks=())
        self.memory_manager = types.SimpleNamespace(
            memory_limit=limit,
            memory_target_fraction=0.6,
            memory_spill_fraction=0.7,
            memory_pause_fraction=0.8,
        )


@pytest.fixture
def clock(monkeypatch):
    time = types.SimpleNamespace(now=100.0, monotonic=lambda: time.now)
    monkeypatch.setattr(hook_idle_memory, "time", time)
    return time


@pytest.fixture
def given_back(monkeypatch):
    """The threads in which memory was given back."""
    threads = []
    monkeypatch.setattr(
        free_heap, "give_back", lambda: threads.append(threading.current_thread())
    )
    return threads


def settle():
    for thread in threading.enumerate():
        if thread.name == "spillway-idle-memory":
            thread.join()


async def test_once_after_a_second_without_anything(clock, given_back):
    worker = Worker_()
    idle = IdleMemory(worker)
    for _ in range(2):  # busy and idle, twice
        worker.state.transition_counter += 1
        idle.look()
        clock.now += IDLE_S - 0.1
        idle.look()
        settle()
        count = len(given_back)
        clock.now += 0.2
        for _ in range(5):
            idle.look()
            clock.now += 10
        settle()
        assert len(given_back) == count + 1
    assert threading.main_thread() not in given_back


async def test_never_while_a_task_runs(clock, given_back):
    worker = Worker_()
    idle = IdleMemory(worker)
    worker.state.all_running_tasks = {"a task"}
    for _ in range(5):
        idle.look()
        clock.now += 10
    worker.state.all_running_tasks = ()
    clock.now -= 10 - IDLE_S / 2
    idle.look()
    settle()
    assert given_back == []
    clock.now += IDLE_S
    idle.look()
    settle()
    assert len(given_back) == 1


async def test_before_dask_acts_on_the_figure(clock, monkeypatch):
    worker = Worker_(limit=1000)
    freed = [300]
    calls = []

    def give_back():
        calls.append(clock.now)
        worker.resident -= freed[0]
        clock.now += 0.1

    monkeypatch.setattr(free_heap, "give_back", give_back)
    idle = IdleMemory(worker)
    idle.start()
    measure = worker.monitor.get_process_memory
    worker.resident = 600
    assert measure() == 600  # Dask would not act
    worker.resident = 800
    assert measure() == 500
    worker.resident = 800
    clock.now += 0.9
    assert measure() == 800  # again would be more than its share of the time
    clock.now += 0.2
    freed[0] = 0
    assert measure() == 800  # it is in use
    assert len(calls) == 2
    idle.stop()


async def test_without_a_limit_the_figure_is_dasks():
    worker = Worker_(limit=None)
    stock = worker.monitor.get_process_memory
    idle = IdleMemory(worker)
    idle.start()
    assert worker.monitor.get_process_memory is stock
    idle.stop()
    assert worker.monitor.get_process_memory is stock


# Installed


def givers_of(worker):
    return process_memory._readings[worker].givers


async def test_only_where_our_settings_are_in_force(monkeypatch):
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        async with Worker(scheduler.address) as worker:
            assert len(givers_of(worker)) == 1  # of the pool's
        monkeypatch.setenv(SETTINGS[0].variable, SETTINGS[0].value)
        async with Worker(scheduler.address) as worker:
            assert "get_process_memory" in vars(worker.monitor)
            assert len(givers_of(worker)) == 2
            disable()
            assert "get_process_memory" not in vars(worker.monitor)


async def test_who_stands_before_us_stays(monkeypatch):
    monkeypatch.setenv(SETTINGS[0].variable, SETTINGS[0].value)
    async with Scheduler(**SCHEDULER) as scheduler, Worker(scheduler.address) as worker:
        earlier = worker.monitor.get_process_memory = lambda: 5
        await hook_idle_memory.install(worker)
        hook_idle_memory.remove(worker)
        assert worker.monitor.get_process_memory is earlier
        await hook_idle_memory.install(worker)
        later = worker.monitor.get_process_memory = lambda: 6
        hook_idle_memory.remove(worker)
        assert worker.monitor.get_process_memory is later


async def test_switched_off(monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", "malloc")
    monkeypatch.setenv(SETTINGS[0].variable, SETTINGS[0].value)
    enable()
    async with Scheduler(**SCHEDULER) as scheduler, Worker(scheduler.address) as worker:
        assert len(givers_of(worker)) == 1


def test_check_finds_the_installed_dask_to_match():
    assert hook_idle_memory.check() is None
