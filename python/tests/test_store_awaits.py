"""What may happen to a task, and to what it needs, at each place where its worker
waits: for room, for a value that is read back, for the task itself, for its result to
be written, for other workers."""

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import logging
import os
import threading
from time import monotonic as time
from typing import ClassVar

import pytest
from distributed import wait
from distributed.worker_state_machine import (
    FreeKeysEvent,
    StealRequestEvent,
    StealResponseMsg,
)

from spillway.dask import enable
from spillway.dask.store_readers import Readers
from store_gates import (
    LARGE,
    LIVE,
    ON_DISK,
    Gate,
    Gates,
    Value,
    all_that_can_leaves,
    number_of,
    settings,
    soon,
    to_disk,
    until,
    use,
    workers,
)

pytestmark = pytest.mark.timeout(120)

BEFORE = ("room before", "reading")
"""The task has not begun."""
PLACES = (*BEFORE, "running", "writing", "room after")


@pytest.fixture(autouse=True)
def store_is_on():
    Gates.clear()
    with settings():
        enable()
        yield
    Gates.clear()


class Held:
    """A task that is held up at a place."""

    def __init__(self, client, worker, gate, futures):
        self.client, self.worker, self.gate = client, worker, gate
        self.futures = futures

    @property
    def store(self):
        return self.worker.data

    @property
    def state(self):
        task = self.worker.state.tasks.get("user")
        return task and task.state

    async def result(self):
        """Of another task, with the value of ours."""
        future = self.client.submit(number_of, self.futures["user"], key="number")
        self.futures["number"] = future
        return await soon(future.result())

    async def nothing_is_left(self):
        """When nobody wants anything any more: no key, and nothing that is pinned."""
        self.futures.clear()
        await until(lambda: not self.worker.state.tasks)
        assert not self.store and not self.store._prepared and not self.store.just_read

        def is_empty():
            figures = self.store.figures()
            tiers = ("live", "packed", "on_disk")
            return not any(figures[tier]["count"] for tier in tiers)

        await until(is_empty)


def gate_at(place, store):
    """A gate in a worker's way. The first to come there goes through it."""
    gate = Gate()
    if place.startswith("room"):
        wait, passes = store.wait_for_room, iter(("room before", "room after"))

        async def gated():
            if next(passes, None) == place:
                await gate.passed_on_loop()
            await wait()

        store.wait_for_room = gated
    elif place == "reading":
        Gates.by_place["unpickling 1"] = gate
    elif place == "running":
        Gates.by_place["running"] = gate
    else:
        assert place == "writing"
        Gates.by_place["pickling 10"] = gate
    return gate


@contextlib.asynccontextmanager
async def held_up(place):
    async with workers(1) as (client, worker):
        futures = {"value": client.submit(Value, 1, key="value")}
        await soon(wait(futures["value"]))  # without fetching it
        await to_disk(worker.data, "value")
        gate = gate_at(place, worker.data)
        weight = LARGE if place == "writing" else 100
        futures["user"] = client.submit(use, futures["value"], weight, key="user")
        await soon(gate.reached.wait())
        assert worker.state.tasks["user"].state == "executing"
        held = Held(client, worker, gate, futures)
        del futures
        try:
            yield held
        finally:
            gate.open()


def unpickled_on_loop():
    return [one for one, thread in Gates.unpickled if thread is threading.main_thread()]


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_cancelled(place):
    async with held_up(place) as held:
        await held.client.cancel(held.futures.pop("user"))
        await until(lambda: held.state == "cancelled")
        held.gate.open()
        await until(lambda: held.state is None)
        assert Gates.ran == ([] if place in BEFORE else [1])
        assert "user" not in held.store
        # What it needed is whole, and free to leave.
        await all_that_can_leaves(held.store)
        assert held.store.entry("value").forms == ON_DISK
        assert await soon(held.client.submit(number_of, held.futures["value"])) == 1
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_cancelled_and_wanted_again(place):
    async with held_up(place) as held:
        await held.client.cancel(held.futures.pop("user"))
        await until(lambda: held.state == "cancelled")
        held.futures["user"] = held.client.submit(
            use, held.futures["value"], 100, key="user"
        )
        await until(lambda: held.state == "executing")
        held.gate.open()
        assert await held.result() == 10
        # What has begun for one run does not count for the next.
        assert Gates.ran == ([1] if place in BEFORE else [1, 1])
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_it_and_what_it_needs_are_freed(place):
    async with held_up(place) as held:
        await held.client.cancel(list(held.futures.values()))
        await until(lambda: held.state == "cancelled" and "value" not in held.store)
        held.gate.open()
        await until(lambda: held.state is None)
        assert "user" not in held.store
        assert Gates.ran == ([] if place in BEFORE else [1])
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_another_worker_wants_to_steal_it(place):
    async with held_up(place) as held:
        (answer,) = held.worker.state.handle_stimulus(
            StealRequestEvent(key="user", stimulus_id="test")
        )
        assert type(answer) is StealResponseMsg
        assert answer.state == held.state == "executing"  # which is too late
        held.gate.open()
        assert await held.result() == 10
        assert Gates.ran == [1]
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_what_it_needs_is_to_leave_again(place):
    async with held_up(place) as held:
        if place == "writing":  # which nobody can wait for
            held.store._native.evict(1 << 40)
        else:
            await all_that_can_leaves(held.store)
        if place in ("running", "room after"):
            # It stays until the task has ended.
            is_needed = place == "running"
            assert held.store.entry("value").forms == ON_DISK | (LIVE * is_needed)
        held.gate.open()
        assert await held.result() == 10
        made_again = [1, 10] if place == "writing" else [1]
        assert sorted(number for number, _ in Gates.unpickled) == made_again
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_what_it_needs_is_lost(place):
    async with held_up(place) as held:
        held.worker.handle_stimulus(FreeKeysEvent(keys=["value"], stimulus_id="test"))
        assert "value" not in held.store and held.state == "executing"
        held.gate.open()
        assert await held.result() == 10
        assert Gates.ran == ([1] if place in BEFORE else [1, 1])  # as on stock Dask
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_what_it_needs_is_replaced(place):
    async with held_up(place) as held:
        before = held.store.entry("value")
        held.store["value"] = Value(2)
        if place != "writing":
            await to_disk(held.store, "value")
        assert held.store.entry("value") is not before
        held.gate.open()
        assert await held.result() == (20 if place in BEFORE else 10)
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_its_worker_closes(place, caplog):
    with caplog.at_level(logging.WARNING):
        async with held_up(place) as held:
            directory = held.worker.local_directory
            closing = asyncio.create_task(held.worker.close(executor_wait=False))
            await until(lambda: held.store._packer is None)
            held.gate.open()
            await soon(closing)
            await until(lambda: not os.path.exists(directory))
            assert not held.store._prepared
        gc.collect()
    assert "Unhandled" not in caplog.text and "never retrieved" not in caplog.text
    ours = [
        one for one in caplog.records if one.name in ("spillway", "distributed.spill")
    ]
    assert not ours


# Several that ask, and values that do anything


@contextlib.asynccontextmanager
async def one_on_disk(value):
    async with workers(1) as (client, worker):
        future = client.submit(value, key="value")
        await soon(wait(future))
        await to_disk(worker.data, "value")
        yield client, worker, future


async def test_one_of_two_that_wait_for_a_value_is_cancelled():
    async with one_on_disk(lambda: Value(1)) as (client, worker, value):
        gate = Gates.by_place["unpickling 1"] = Gate()
        one, other = (
            client.submit(number_of, value, key=key) for key in ("one", "other")
        )
        await soon(gate.reached.wait())
        await until(lambda: len(worker.state.executing) == 2)
        await client.cancel(one)
        await until(lambda: worker.state.tasks["one"].state == "cancelled")
        gate.open()
        assert await soon(other) == 1
        assert gate.count == 1
        await all_that_can_leaves(worker.data)
        assert worker.data.entry("value").forms == ON_DISK


class Weighed:
    """Says on which threads it was asked for its size, of what a task made."""

    threads: ClassVar[list] = []

    def __sizeof__(self):
        self.threads.append(threading.current_thread())
        return 1000


async def test_the_loop_does_not_ask_for_a_size_that_the_task_has_told():
    Weighed.threads.clear()
    async with workers(1) as (client, worker):
        await soon(wait(client.submit(Weighed, key="value")))
        assert worker.state.tasks["value"].nbytes == worker.data.entry("value").weight
    assert len(Weighed.threads) == 1
    assert Weighed.threads[0] is not threading.main_thread()


async def test_who_leaves_in_the_moment_in_which_it_is_read():
    """Between that it was read, and that those who asked are told."""
    unpinned = []

    class Entry:
        def unpin(self):
            unpinned.append(1)

    readers, read = Readers(), asyncio.get_running_loop().create_future()
    readers.run = lambda *_: read
    reading = readers.read(Entry())
    read.set_result([])
    reading.leave()
    await asyncio.sleep(0)
    assert unpinned == [1]


class Hostile:
    """Raises where it is pickled, or where it is unpickled."""

    def __init__(self, error, *, is_writable, weight=10_000):
        self.error, self.is_writable, self.weight = error, is_writable, weight

    def __sizeof__(self):
        return self.weight

    def __reduce__(self):
        if self.is_writable:
            return _raise, (self.error,)
        raise self.error


def _raise(error):
    raise error("not this one")


ERRORS = (
    *(
        LookupError,
        StopIteration,
        asyncio.CancelledError,
        concurrent.futures.CancelledError,
    ),
    *(KeyboardInterrupt, SystemExit, TimeoutError, GeneratorExit, OSError),
)


@pytest.mark.parametrize("error", ERRORS)
async def test_what_cannot_be_unpickled_fails_its_task_within_a_second(error):
    value = functools.partial(Hostile, error, is_writable=True)
    async with one_on_disk(value) as (client, worker, value):
        user = client.submit(number_of, value, key="user")
        start = time()
        with pytest.raises(Exception, match=r"'value'.*not this one"):
            await soon(user)
        assert time() - start < 1
        assert await soon(client.submit(sum, [1, 2])) == 3
        assert worker.state.tasks["user"].state == "error"
        assert worker.data.entry("value").forms == ON_DISK


@pytest.mark.parametrize("error", ERRORS)
async def test_a_large_value_that_cannot_be_pickled_fails_its_task(error):
    async with workers(1) as (client, worker):
        large = client.submit(
            Hostile, error, is_writable=False, weight=LARGE, key="large"
        )
        with pytest.raises(TypeError, match="Failed to pickle 'large'"):
            await soon(large)
        assert await soon(client.submit(sum, [1, 2])) == 3
        assert not worker.data._prepared and "large" not in worker.data
