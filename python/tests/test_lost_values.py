"""What is damaged on the disk of one worker, and used elsewhere, is made again."""

import asyncio
import contextlib
import time

import dask
import numpy as np
import pytest
from distributed import Client, Scheduler, Worker, wait
from distributed.client import FutureCancelledError

from comm_pairs import until
from spilling_workers import ALL_SPILL, SCHEDULER, checksum
from spillway.dask import checksums, enable, lost_values
from spillway.dask.stored_frames import Recipient
from stored_values import LIVE, ON_DISK, PACKED, spoil

MIB = 1 << 20
PATIENCE_S = 60
NO_REPLICAS_GO = {"distributed.scheduler.active-memory-manager.start": False}
NONE_SPILLS = {
    "distributed.worker.memory.target": 0.9,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}

pytestmark = pytest.mark.timeout(180)


def noise(seed, size=4 * MIB):
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


def right(*seeds):
    return checksum(*map(noise, seeds))


def damage(*seeds):
    """Their bytes on disk, not what is stored to describe them, which is always read
    before it is sent."""
    for seed in seeds:
        spoil(noise(seed)[MIB : MIB + 16].tobytes())


@contextlib.asynccontextmanager
async def workers(*settings):
    """A client and a worker of this process for each."""
    enable()
    async with contextlib.AsyncExitStack() as stack:
        with dask.config.set(NO_REPLICAS_GO):
            scheduler = await stack.enter_async_context(Scheduler(**SCHEDULER))
        made = []
        for one in settings:
            with dask.config.set(one):
                worker = Worker(scheduler.address, memory_limit="1 GiB", nthreads=1)
                made.append(await stack.enter_async_context(worker))
        client = Client(scheduler.address, asynchronous=True)
        yield await stack.enter_async_context(client), made


async def on_disk(client, worker, *seeds):
    """Values that a worker made and has only on disk."""
    futures = [
        client.submit(noise, seed, key=f"x-{seed}", workers=worker.address)
        for seed in seeds
    ]
    await are_on_disk(worker, futures)
    return futures


async def are_on_disk(worker, futures):
    await wait(futures)
    await until(
        lambda: all(worker.data.entry(one.key).forms == ON_DISK for one in futures)
    )


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE_S)


@pytest.mark.parametrize("there", [NONE_SPILLS, ALL_SPILL])
async def test_for_a_task_of_another_worker(there, caplog):
    async with workers(ALL_SPILL, there) as (client, (giver, user)):
        futures = await on_disk(client, giver, 0, 1, 2)
        damage(0, 1, 2)
        sums = client.map(checksum, futures, workers=user.address, pure=False)
        assert await soon(client.gather(sums)) == [right(0), right(1), right(2)]
    assert caplog.text.count("is damaged on disk, and is forgotten") >= 3


@pytest.mark.parametrize("direct", [True, False])
async def test_for_a_client(direct):
    async with workers(ALL_SPILL) as (client, (giver,)):
        futures = await on_disk(client, giver, 0, 1, 2)
        damage(0, 1, 2)
        found = await soon(client.gather(futures, direct=direct))
        assert [checksum(one) for one in found] == [right(0), right(1), right(2)]


@pytest.mark.parametrize("forms, size", [(PACKED, 700_000), (ON_DISK, 4 * MIB)])
async def test_for_a_client_that_compares_nothing(forms, size, monkeypatch):
    """It gets nothing that is damaged, and then what was made again."""
    async with workers(ALL_SPILL, NONE_SPILLS) as (client, (giver, between)):
        future = client.submit(noise, 0, size, workers=giver.address)
        await are_on_disk(giver, [future])
        spoil(noise(0, size)[MIB // 2 :][:16].tobytes())
        await client.replicate([future], workers=[between.address], n=2)
        assert between.data.entry(future.key).forms == forms  # as it came
        stock = Recipient(takes_files=True, compares=False, codec=None)
        monkeypatch.setattr(Recipient, "of", lambda comm, keeps=False: stock)
        # The scheduler asks any of the holders.
        for _ in range(5):
            assert checksum(await soon(client.gather(future))) == checksum(
                noise(0, size)
            )


async def test_only_what_is_damaged_is_made_again():
    async with workers(ALL_SPILL, NONE_SPILLS) as (client, (giver, user)):
        (damaged,) = await on_disk(client, giver, 0)
        damage(0)
        (whole,) = await on_disk(client, giver, 1)
        before = giver.data.entry(whole.key)
        total = client.submit(checksum, damaged, whole, workers=user.address)
        assert await soon(total) == right(0, 1)
        assert giver.data.entry(whole.key) is before


async def test_what_was_handed_on_as_a_file_is_damaged_for_all_who_have_it():
    async with workers(ALL_SPILL, ALL_SPILL, NONE_SPILLS) as (client, made):
        giver, between, user = made
        futures = await on_disk(client, giver, 0, 1)
        await client.replicate(futures, workers=[between.address], n=2)
        await are_on_disk(between, futures)
        damage(0, 1)
        sums = client.map(checksum, futures, workers=user.address, pure=False)
        assert await soon(client.gather(sums)) == [right(0), right(1)]


async def test_a_sound_copy_elsewhere_is_used():
    async with workers(ALL_SPILL, NONE_SPILLS) as (client, (giver, other)):
        (future,) = await on_disk(client, giver, 0)
        copy = client.submit(checksum, future, workers=other.address)
        assert await soon(copy) == right(0)
        assert other.data.entry(future.key).forms & LIVE
        damage(0)
        assert await soon(client.submit(checksum, future, pure=False)) == right(0)
        assert checksum(await soon(client.gather(future))) == right(0)


async def test_scattered_data_are_gone():
    async with workers(ALL_SPILL, NONE_SPILLS) as (client, (giver, user)):
        scattered = await client.scatter(
            {"x": noise(0)}, workers=[giver.address], direct=True
        )
        await are_on_disk(giver, scattered.values())
        damage(0)
        total = client.submit(checksum, scattered["x"], workers=user.address)
        with pytest.raises(FutureCancelledError):
            await soon(total)
        known = await client.scheduler.identity()
        assert giver.address in known["workers"]


async def test_what_comes_damaged_again_and_again_fails_the_task(monkeypatch):
    """Such as what no holder finds damaged, or what a disk always damages."""
    seen = []

    def refuse(header, frames):
        if checksums.KEY in header:
            seen.append(1)
            raise checksums.Damaged("it is not what was stored")

    async with workers(ALL_SPILL, NONE_SPILLS) as (client, (giver, user)):
        (future,) = await on_disk(client, giver, 0)
        monkeypatch.setattr("spillway.dask.lost_values._damage", lambda entry: None)
        monkeypatch.setattr(checksums, "verify", refuse)
        total = client.submit(checksum, future, workers=user.address)
        with pytest.raises(RuntimeError, match="not what was stored"):
            await soon(total)
        assert lost_values.MOST_TIMES <= len(seen) <= 3 * lost_values.MOST_TIMES


async def test_many_tasks_that_use_it_at_once(monkeypatch):
    """Whoever asks last finds it forgotten already, or made again."""

    def slow(entry, damage=lost_values._damage):
        time.sleep(0.02)
        return damage(entry)

    monkeypatch.setattr("spillway.dask.lost_values._damage", slow)
    async with workers(ALL_SPILL, NONE_SPILLS) as (client, (giver, user)):
        futures = await on_disk(client, giver, 0, 1, 2)
        damage(0, 1, 2)
        sums = [
            client.submit(checksum, one, workers=user.address, pure=False)
            for one in futures * 4
        ]
        assert await soon(client.gather(sums)) == [right(0), right(1), right(2)] * 4


async def test_a_sound_object_is_not_forgotten_for_its_copy_on_disk():
    async with workers(ALL_SPILL) as (client, (giver,)):
        (future,) = await on_disk(client, giver, 0)
        entry = giver.data.entry(future.key)
        entry.acquire()
        damage(0)
        await soon(giver.handlers[lost_values.LOOK]([future.key]))
        assert giver.data.entry(future.key) is entry
        entry.unpin()


async def test_a_holder_that_has_no_store_looks_at_nothing():
    with dask.config.set({"distributed.worker.memory.target": False}):
        async with workers({"distributed.worker.memory.spill": False}) as (client, _):
            future = client.submit(noise, 0)
            await wait(future)
            damaged = {future.key: 1, "y": 2}
            found = lost_values.ask_again(client, client.scheduler, damaged)
            assert await soon(found) == {future.key, "y"}


class Refuses:
    """A scheduler, or none."""

    def __init__(self, error):
        self.error = error

    async def who_has(self, keys):
        raise self.error


@pytest.mark.parametrize("error", [OSError("it is gone"), ValueError("it is blocked")])
async def test_where_nobody_can_be_asked_it_ends_all_the_same(error, caplog):
    scheduler = Refuses(error)
    for number in range(2 * lost_values.MOST_TIMES):
        asked = await lost_values.ask_again(scheduler, scheduler, {"x": number})
        assert asked == ({"x"} if number < lost_values.MOST_TIMES else set())
    assert str(error) in caplog.text


def test_one_damage_counts_once_and_few_keys_are_kept():
    times = lost_values._Times()
    arrivals = [object() for _ in range(lost_values.MOST_TIMES + 1)]
    assert all(times.is_less("x", arrivals[0]) for _ in range(100))
    assert [times.is_less("x", one) for one in arrivals] == [
        *[True] * lost_values.MOST_TIMES,
        False,
    ]
    for key in range(2 * lost_values.MOST_KEYS):
        times.is_less(key, arrivals[0])
    assert len(times._by_key) == lost_values.MOST_KEYS


async def test_what_is_made_again_meanwhile_is_not_forgotten():
    async with workers(ALL_SPILL) as (client, (giver,)):
        (future,) = await on_disk(client, giver, 0)
        entry = giver.data.entry(future.key)
        damage(0)
        looking = asyncio.ensure_future(giver.handlers[lost_values.LOOK]([future.key]))
        await asyncio.sleep(0)
        giver.data[future.key] = noise(0)
        assert giver.data.entry(future.key) is not entry
        await soon(looking)
        assert checksum(giver.data[future.key]) == right(0)
