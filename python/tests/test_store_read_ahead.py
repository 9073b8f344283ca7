"""While a task runs, what the next ones need is read from disk."""

import numpy as np
import pytest
from distributed import wait

import spillway
from spillway.dask import enable, store_read_ahead
from store_gates import (
    LIVE,
    ON_DISK,
    PACKED,
    Gate,
    Gates,
    all_that_can_leaves,
    settings,
    soon,
    to_disk,
    until,
    workers,
)

pytestmark = pytest.mark.timeout(120)

LIMIT = 1 << 20
SIZE = 30_000  # of which three are within a tenth of the limit
AHEAD = PACKED | ON_DISK


@pytest.fixture(autouse=True)
def store_is_on():
    Gates.clear()
    with settings():
        enable()
        yield
    Gates.clear()


def ahead():
    return {
        name: value
        for name, value in spillway.stats()["store"].items()
        if name.startswith("ahead")
    }


def grown(before):
    return {name: value - before[name] for name, value in ahead().items()}


def made(number):
    return np.full(SIZE, number, "u1")


def first(value):
    Gates.at("running")
    return int(value[0])


class Job:
    """Values on disk, and a task for each, of which one runs and is held up."""

    def __init__(self, worker, gate, values, users):
        self.worker, self.gate = worker, gate
        self.values, self.users = values, users

    @property
    def forms(self):
        return [self.worker.data.entry(one.key).forms for one in self.values]

    async def results(self):
        self.gate.open()
        return [await soon(user.result()) for user in self.users]


async def start(client, worker, count):
    values = client.map(made, range(count))
    await soon(wait(values))
    for value in values:
        await to_disk(worker.data, value.key)
    gate = Gates.by_place["running"] = Gate()
    users = client.map(first, values, pure=False)
    await soon(gate.reached.wait())
    return Job(worker, gate, values, users)


def one_thread():
    return workers(1, nthreads=1, memory_limit=LIMIT)


async def test_it_is_in_memory_when_its_task_begins():
    before = ahead()
    async with one_thread() as (client, worker):
        job = await start(client, worker, 2)
        await until(lambda: job.forms == [LIVE | ON_DISK, AHEAD])
        assert not worker.data.slow
        assert await job.results() == [0, 1]
        assert worker.data.figures()["reads"] == 2
        assert grown(before) == {
            "ahead_bytes": pytest.approx(SIZE, rel=0.1),
            "ahead_used_bytes": grown(before)["ahead_bytes"],
            "ahead_dropped_bytes": 0,
        }


async def test_it_is_of_as_many_tasks_as_there_are_threads_within_a_tenth():
    async with workers(1, nthreads=4, memory_limit=LIMIT) as (client, worker):
        job = await start(client, worker, 12)
        await until(lambda: len(worker.state.executing) == 4)
        await until(lambda: Gates.by_place["running"].count == 4)
        await until(lambda: job.forms.count(AHEAD) == 3)
        assert not worker.data.reads_ahead() or job.forms.count(AHEAD) == 3
        assert worker.data._native.figures()["packed"]["bytes"] <= LIMIT / 10
        assert await job.results() == list(range(12))


async def test_it_goes_first_and_without_a_write():
    before = ahead()
    async with one_thread() as (client, worker):
        job = await start(client, worker, 2)
        other = client.submit(made, 9, key="other", priority=10)
        await until(lambda: job.forms[1] == AHEAD)
        writes = worker.data.figures()["writes"]
        worker.data._native.evict(1)
        await until(lambda: job.forms[1] == ON_DISK)
        assert worker.data.figures()["writes"] == writes
        assert grown(before)["ahead_dropped_bytes"] == grown(before)["ahead_bytes"] > 0
        assert await job.results() == [0, 1]
        await soon(wait(other))
        assert grown(before)["ahead_used_bytes"] == 0


async def test_its_task_is_cancelled_and_it_is_freed():
    async with one_thread() as (client, worker):
        job = await start(client, worker, 2)
        await until(lambda: job.forms[1] == AHEAD)
        await client.cancel([job.users.pop(), job.values.pop()])
        await until(lambda: len(worker.data) == 1)
        figures = worker.data.figures()
        assert figures["packed"]["count"] == 0
        assert figures["ahead_dropped_bytes"] == figures["ahead_bytes"]
        assert await job.results() == [0]


async def test_none_where_the_process_is_short_of_memory(monkeypatch):
    asked = []

    def memory_room():
        asked.append(1)
        return SIZE - 1

    async with one_thread() as (client, worker):
        runner = worker.execute.__self__
        monkeypatch.setattr(runner._read_ahead, "_memory_room", memory_room)
        job = await start(client, worker, 2)
        assert asked and job.forms[1] == ON_DISK
        assert await job.results() == [0, 1]
        assert worker.data.figures()["ahead_bytes"] == 0


async def test_none_is_looked_for_where_nothing_is_on_disk(monkeypatch):
    def fail(self, state):
        raise AssertionError

    monkeypatch.setattr(store_read_ahead.ReadAhead, "_wanted", fail)
    async with one_thread() as (client, _):
        values = client.map(made, range(3))
        assert await soon(client.gather(client.map(first, values))) == [0, 1, 2]


async def test_dask_never_sorts_a_long_queue(monkeypatch):
    """But takes the first."""
    monkeypatch.setattr(store_read_ahead, "MOST_SORTED", 1)
    async with workers(1, nthreads=2, memory_limit=LIMIT) as (client, worker):
        job = await start(client, worker, 6)
        await until(lambda: Gates.by_place["running"].count == 2)
        await until(lambda: AHEAD in job.forms)
        await all_that_can_leaves(worker.data)
        assert await job.results() == list(range(6))
