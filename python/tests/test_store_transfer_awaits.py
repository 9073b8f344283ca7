"""What may happen at each place where a value is waited for that one worker has on disk
and a task of another needs: by who sends it, and by who wants it."""

import asyncio
import contextlib
import gc
import logging
import threading

import pytest
from distributed import wait
from distributed.worker import get_data_from_worker
from distributed.worker_state_machine import FreeKeysEvent

from spillway.dask import enable, store_get_data, stored_frames
from store_gates import (
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

SENDING = ("preparing", "writing the reply", "reading the receipt")
"""Where the sender is held up."""
PLACES = (*SENDING, "room after", "reading")
BEFORE = tuple(place for place in PLACES if place != "reading the receipt")
"""The task has not begun."""


@pytest.fixture(autouse=True)
def store_is_on():
    Gates.clear()
    with settings():
        enable()
        yield
    Gates.clear()


class Passage:
    """A comm at whose calls somebody waits first."""

    def __init__(self, comm, gate, name):
        self._comm, self._gate, self._name = comm, gate, name

    def __getattr__(self, name):
        if name == self._name:
            return self._passed
        return getattr(self._comm, name)

    async def _passed(self, *args, **kwargs):
        await self._gate.passed_on_loop()
        return await getattr(self._comm, self._name)(*args, **kwargs)


def gate_at(place, monkeypatch, receiver):
    gate = Gate()
    if place == "preparing":
        run = stored_frames.Preparation.run

        def held(self):
            gate.passed()
            return run(self)

        monkeypatch.setattr(stored_frames.Preparation, "run", held)
    elif place in SENDING:
        name = "write" if place == "writing the reply" else "read"
        send = store_get_data._Request._send

        async def held(self, data):
            comm = self._comm
            self._comm = Passage(comm, gate, name)
            await send(self, data)

        monkeypatch.setattr(store_get_data._Request, "_send", held)
    elif place == "room after":
        wait_for_room, is_first = receiver.data.wait_for_room, [True]

        async def held():
            if is_first.pop() if is_first else False:
                await gate.passed_on_loop()
            await wait_for_room()

        receiver.data.wait_for_room = held
    else:
        Gates.by_place["unpickling 1"] = gate
    return gate


class Held:
    def __init__(self, client, sender, receiver, gate, futures):
        self.client, self.sender, self.receiver = client, sender, receiver
        self.gate, self.futures = gate, futures

    def state(self, key):
        task = self.receiver.state.tasks.get(key)
        return task and task.state

    async def result(self):
        future = self.client.submit(number_of, self.futures["user"], key="number")
        self.futures["number"] = future
        return await soon(future.result())

    async def nothing_is_left(self):
        self.futures.clear()
        for worker in (self.sender, self.receiver):
            await until(lambda worker=worker: not worker.state.tasks)
            assert not worker.data and not worker.data._prepared

            def is_empty(store=worker.data):
                figures = store.figures()
                tiers = ("live", "packed", "on_disk")
                return not any(figures[tier]["count"] for tier in tiers)

            await until(is_empty)
        await until(lambda: self.sender.transfer_outgoing_count == 0)
        assert self.sender.transfer_outgoing_bytes == 0
        assert not self.receiver.state.in_flight_workers


@contextlib.asynccontextmanager
async def held_up(place, monkeypatch):
    async with workers(2) as (client, sender, receiver):
        futures = {
            "value": client.submit(
                *(Value, 1),
                key="value",
                workers=[sender.address],
                allow_other_workers=True,
            )
        }
        await soon(wait(futures["value"]))
        await to_disk(sender.data, "value")
        gate = gate_at(place, monkeypatch, receiver)
        futures["user"] = client.submit(
            use, futures["value"], 100, key="user", workers=[receiver.address]
        )
        held = Held(client, sender, receiver, gate, futures)
        del futures
        await soon(gate.reached.wait())
        try:
            yield held
        finally:
            gate.open()


def unpickled_on_loop():
    return [one for one, thread in Gates.unpickled if thread is threading.main_thread()]


@pytest.mark.parametrize("place", BEFORE)
async def test_who_wants_it_is_cancelled(place, monkeypatch):
    async with held_up(place, monkeypatch) as held:
        await held.client.cancel(held.futures.pop("user"))
        gone = "cancelled" if place == "reading" else None
        await until(lambda: held.state("user") == gone)
        held.gate.open()
        await until(lambda: not held.receiver.state.in_flight_workers)
        await until(lambda: held.state("user") is None)
        assert not Gates.ran and "user" not in held.receiver.data
        assert not unpickled_on_loop()
        again = held.client.submit(number_of, held.futures["value"], key="again")
        assert await soon(again) == 1
        del again
        await held.nothing_is_left()


@pytest.mark.parametrize("place", BEFORE)
async def test_who_wants_it_is_cancelled_and_wanted_again(place, monkeypatch):
    async with held_up(place, monkeypatch) as held:
        await held.client.cancel(held.futures.pop("user"))
        gone = "cancelled" if place == "reading" else None
        await until(lambda: held.state("user") == gone)
        held.futures["user"] = held.client.submit(
            *(use, held.futures["value"], 100),
            key="user",
            workers=[held.receiver.address],
        )
        await until(lambda: held.state("user") in ("waiting", "executing"))
        held.gate.open()
        assert await held.result() == 10
        assert Gates.ran == [1]
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_freed_and_who_wants_it(place, monkeypatch):
    async with held_up(place, monkeypatch) as held:
        await held.client.cancel(list(held.futures.values()))
        await until(lambda: held.state("user") in (None, "cancelled"))
        await until(lambda: "value" not in held.sender.data)
        held.gate.open()
        await until(lambda: held.state("user") is None)
        assert "user" not in held.receiver.data
        assert place not in BEFORE or not Gates.ran
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_lost_where_it_comes_from(place, monkeypatch):
    async with held_up(place, monkeypatch) as held:
        held.sender.handle_stimulus(FreeKeysEvent(keys=["value"], stimulus_id="test"))
        assert "value" not in held.sender.data
        held.gate.open()
        assert await held.result() == 10
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_replaced_where_it_comes_from(place, monkeypatch):
    async with held_up(place, monkeypatch) as held:
        held.sender.data["value"] = Value(2)
        held.gate.open()
        assert await held.result() == 10  # as it was when it was asked for
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_it_is_to_leave_again(place, monkeypatch):
    async with held_up(place, monkeypatch) as held:
        for worker in (held.sender, held.receiver):
            await all_that_can_leaves(worker.data)
        held.gate.open()
        assert await held.result() == 10
        assert [number for number, _ in Gates.unpickled] == [1]
        assert not unpickled_on_loop()
        await held.nothing_is_left()


@pytest.mark.parametrize("place", PLACES)
async def test_who_sends_it_closes(place, monkeypatch, caplog):
    """What has not come is made again."""
    async with held_up(place, monkeypatch) as held:
        closing = asyncio.create_task(held.sender.close(executor_wait=False))
        await until(lambda: held.sender.data._packer is None)
        held.gate.open()
        await soon(closing)
        assert await held.result() == 10
        gc.collect()
    assert "Unhandled" not in caplog.text and "never retrieved" not in caplog.text


@pytest.mark.parametrize("place", PLACES)
async def test_who_wants_it_closes(place, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING):
        async with held_up(place, monkeypatch) as held:
            closing = asyncio.create_task(held.receiver.close(executor_wait=False))
            await until(lambda: held.receiver.data._packer is None)
            held.gate.open()
            await soon(closing)
            await until(lambda: held.sender.transfer_outgoing_count == 0)
            assert held.sender.transfer_outgoing_bytes == 0
            await all_that_can_leaves(held.sender.data)
            assert await soon(held.client.submit(number_of, held.futures["value"])) == 1
        gc.collect()
    assert "Unhandled" not in caplog.text and "never retrieved" not in caplog.text


async def test_who_asks_a_worker_that_has_closed_its_store():
    """It closes that before its comms."""
    async with workers(2) as (client, sender, receiver):
        value = client.submit(Value, 1, key="value", workers=[sender.address])
        await soon(wait(value))
        await to_disk(sender.data, "value")
        sender.data.close()
        reply = await soon(
            get_data_from_worker(receiver.rpc, ["value"], sender.address)
        )
        assert reply == {"status": "OK", "data": {}}
