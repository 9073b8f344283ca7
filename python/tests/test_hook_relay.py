"""What goes through a scheduler goes in parts."""

import asyncio
import contextlib
import itertools

import numpy as np
import pytest
from distributed import Client, Scheduler, Worker, wait
from distributed.protocol import to_serialize
from hypothesis import given
from hypothesis import strategies as st

import spillway
from spillway.dask import disable, enable, hook_relay
from spillway.dask.hook_relay import PART_BYTES, Relay, parts_of

MIB = 1 << 20
SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}

pytestmark = pytest.mark.timeout(60)


def array(number, size=MIB):
    return np.full(size, number, "u8")  # 8 MiB, unless told otherwise


@contextlib.asynccontextmanager
async def cluster():
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address, nthreads=1),
        Worker(scheduler.address, nthreads=1),
        Client(scheduler.address, asynchronous=True) as client,
    ):
        yield scheduler, client


def watch(scheduler, operation):
    """The numbers of keys in each call of an operation from now on."""
    original, calls = scheduler.handlers[operation], []

    async def watched(comm=None, **kwargs):
        calls.append(len(kwargs["keys" if operation == "gather" else "data"]))
        return await original(**kwargs)

    scheduler.handlers[operation] = watched
    return calls


async def test_a_client_gathers_in_parts():
    async with cluster() as (scheduler, client):
        futures = client.map(array, range(19))
        await wait(futures)
        calls = watch(scheduler, "gather")
        found = await client.gather(futures)
        assert [int(one[-1]) for one in found] == list(range(19))
        assert calls == [4, 4, 4, 4, 3]
        calls.clear()
        assert [int(one[0]) for one in await client.gather(futures[:4])] == [0, 1, 2, 3]
        assert calls == [4]


async def test_what_is_larger_than_a_part_goes_alone():
    part = PART_BYTES
    sizes = {"a": part, "b": 8 * part, "c": part, "d": part // 2, "e": 3 * part // 2}
    under_way, seen = {}, []

    class FakeScheduler:
        async def nbytes(self, **_):
            return sizes

        scatter = None

        async def gather(self, keys):
            under_way.update((key, sizes[key]) for key in keys)
            seen.append(set(under_way))
            for _ in range(10):  # of others' turns
                await asyncio.sleep(0)
            for key in keys:
                del under_way[key]
            return {"status": "OK", "data": dict.fromkeys(keys)}

    reply = await Relay(FakeScheduler()).gather(keys=list(sizes))
    assert reply == {"status": "OK", "data": dict.fromkeys(sizes)}
    assert all(
        sum(sizes[key] for key in keys) <= 2 * part or len(keys) == 1 for keys in seen
    )
    assert {"b"} in seen and {"c", "d"} in seen


async def test_a_client_scatters_in_parts():
    async with cluster() as (scheduler, client):
        calls = watch(scheduler, "scatter")
        values = [array(number) for number in range(10)]
        futures = await client.scatter(values)
        assert calls == [4, 4, 2]
        assert {len(keys) for keys in (await client.has_what()).values()} == {5}
        found = await client.gather(futures)
        assert [int(one[5]) for one in found] == list(range(10))
        named = await client.scatter({"x": 1, "y": array(7)}, broadcast=True)
        assert calls == [4, 4, 2, 2]
        assert len((await client.who_has(named))["y"]) == 2


async def test_a_value_larger_than_a_part_goes_whole():
    async with cluster() as (scheduler, client):
        futures = [
            client.submit(array, number, size=size)
            for number, size in enumerate([1, 5 * MIB, 1])
        ]
        await wait(futures)
        calls = watch(scheduler, "gather")
        assert [len(one) for one in await client.gather(futures)] == [1, 5 * MIB, 1]
        assert sorted(calls) in ([1, 2], [1, 1, 1])  # in any order, it alone


async def test_keys_that_the_scheduler_does_not_know():
    async with cluster() as (_, client):
        futures = client.map(array, range(3))
        await wait(futures)
        asked = client.scheduler.gather(keys=[futures[0].key, "nobody-knows-it"])
        assert await asked == {"status": "error", "keys": ("nobody-knows-it",)}


async def test_disable_ends_it():
    async with cluster() as (_, client):
        assert "gather" in vars(client.scheduler)
        disable()
        assert "gather" not in vars(client.scheduler)
        assert "scatter" not in vars(client.scheduler)
        futures = client.map(array, range(3))
        assert len(await client.gather(futures)) == 3


# Without a cluster


class FakeScheduler:
    def __init__(self, answers):
        self.answers, self.asked = answers, []

    async def nbytes(self, keys, summary):
        assert summary is False
        return dict.fromkeys(keys, PART_BYTES)

    async def gather(self, keys):
        (key,) = keys
        self.asked.append(key)
        await asyncio.sleep(0)
        answer = self.answers[key]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if answer is None:
            return {"status": "error", "keys": keys}
        return {"status": "OK", "data": {key: answer}}

    async def scatter(self, data, client):
        assert client == "me"
        self.asked.append(list(data))
        return list(data)


async def test_what_some_parts_do_not_have_is_told_for_all():
    scheduler = FakeScheduler({"a": 1, "b": None, "c": 3, "d": None})
    reply = await Relay(scheduler).gather(keys=list("abcd"))
    assert reply == {"status": "error", "keys": ["b", "d"]}
    scheduler.answers.update(b=2, d=4)
    reply = await Relay(scheduler).gather(keys=list("abcd"))
    assert reply == {"status": "OK", "data": {"a": 1, "b": 2, "c": 3, "d": 4}}


async def test_an_error_is_raised_as_it_is_and_ends_the_others():
    scheduler = FakeScheduler({"a": asyncio.Event(), "b": OSError("gone"), "c": 3})
    with pytest.raises(OSError, match="gone"):
        await Relay(scheduler).gather(keys=list("abc"))
    assert scheduler.asked == ["a", "b"]
    assert len(asyncio.all_tasks()) == 1


async def test_scattered_parts_are_in_their_order():
    scheduler = FakeScheduler({})
    data = {key: to_serialize(bytes(PART_BYTES // 2 + 1)) for key in "abc"}
    assert await Relay(scheduler).scatter(data=data, client="me") == list("abc")
    assert scheduler.asked == [["a"], ["b"], ["c"]]


@given(st.dictionaries(st.integers(), st.integers(-1, 2 * PART_BYTES)))
def test_parts(sizes):
    parts = list(parts_of(sizes))
    assert [key for part in parts for key in part] == list(sizes)
    for part in parts:
        assert part
        assert len(part) == 1 or sum(max(0, sizes[k]) for k in part) <= PART_BYTES
    for one, other in itertools.pairwise(parts):
        both = [*one, other[0]]
        assert sum(max(0, sizes[k]) for k in both) > PART_BYTES


def test_it_says_why_it_is_off(monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", "transport")
    enable()
    assert "transport" in spillway.stats()["hooks"][hook_relay.NAME]
