"""Values that come to the disk of a worker that has no room for them in memory."""

import asyncio
import contextlib
import gc
import resource
import types

import dask
import numpy as np
import pytest
from distributed import Client, Scheduler, Worker, wait
from distributed.core import rpc
from distributed.protocol import Serialized, serialize, to_serialize

import spillway
import store_files
from comm_pairs import comms, exchanged, until
from spillway import _native
from spillway.dask import checksums, enable, packed, undecoded
from spillway.dask.decode import value_of
from stored_values import LIVE, ON_DISK, PACKED, spoil, store
from test_packed import TOTAL, Recorded, total, unpickled_here

MIB = 1 << 20
SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}
SIZE = Recorded().data.nbytes

pytestmark = pytest.mark.timeout(120)


async def started(scheduler, target, stack, **options):
    """A worker of 1 GiB whose store looks at the weight of values alone."""
    settings = {
        "distributed.worker.memory.target": target,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.spill-compression": False,
        "distributed.worker.memory.pause": False,
    }
    with dask.config.set(settings):
        worker = Worker(scheduler.address, memory_limit="1 GiB", nthreads=1, **options)
        return await stack.enter_async_context(worker)


@contextlib.asynccontextmanager
async def workers(target, **options):
    """A client, a worker that keeps all in memory, and one with a target."""
    settings = {
        "distributed.scheduler.active-memory-manager.start": False,
    }
    with dask.config.set(settings):
        enable()
        async with contextlib.AsyncExitStack() as stack:
            scheduler = await stack.enter_async_context(Scheduler(**SCHEDULER))
            here = await started(scheduler, 0.9, stack)
            there = await started(scheduler, target, stack, **options)
            client = Client(scheduler.address, asynchronous=True)
            yield await stack.enter_async_context(client), here, there


def share(size):
    """Of 1 GiB."""
    return size / (1 << 30)


async def made_at(client, worker, number, of=Recorded):
    futures = [
        client.submit(of, key=f"x-{n}", workers=[worker.address]) for n in range(number)
    ]
    await wait(futures)
    return futures


def forms(worker):
    return {key: worker.data.entry(key).forms for key in worker.data}


async def moved(client, futures, there):
    """Have a worker fetch them."""
    await client.replicate(futures, workers=[there.address], n=2)
    for future in futures:
        assert future.key in there.data


async def test_what_does_not_fit_comes_to_disk():
    async with workers(share(2.5 * SIZE)) as (client, here, there):
        futures = await made_at(client, here, 8)
        before = there.data.figures(), unpickled_here()
        await moved(client, futures, there)
        found = sorted(forms(there).values())
        assert found == [PACKED] * 2 + [ON_DISK] * 6
        figures = there.data.figures()
        assert figures["received"] == 6
        assert 6 * SIZE <= figures["received_bytes"] <= 6 * SIZE + 6000
        assert figures["arriving_bytes"] == 0
        assert figures["packs"] == figures["unpacks"] == figures["writes"] == 0
        assert unpickled_here() == before[1]
        assert len(there.data.slow) == 6 and len(there.data.fast) == 2
        assert 6 * SIZE <= there.data.spilled_total.memory <= 6 * SIZE + 6000
        stored = spillway.stats()["store"]
        assert stored["received"] >= 6 and stored["received_bytes"] >= 6 * SIZE
        metrics = there.data.cumulative_metrics
        assert metrics["disk-write", "count"] == 6
        assert metrics["disk-write", "bytes"] == figures["received_bytes"]
        users = [
            client.submit(total, future, workers=[there.address], pure=False)
            for future in futures
        ]
        assert await client.gather(users) == [TOTAL] * 8
        assert there.data.figures()["unpacks"] == 8


@pytest.mark.parametrize("direct", [True, False])
async def test_so_does_what_is_scattered(direct):
    async with workers(share(2.5 * SIZE)) as (client, _, there):
        values = [Recorded() for _ in range(8)]
        futures = await client.scatter(
            values, workers=[there.address], direct=direct, hash=False
        )
        assert sorted(forms(there).values()) == [PACKED] * 2 + [ON_DISK] * 6
        figures = there.data.figures()
        assert figures["received"] == 6
        assert figures["unpacks"] == figures["writes"] == 0
        users = [
            client.submit(total, future, workers=[there.address], pure=False)
            for future in futures
        ]
        assert await client.gather(users) == [TOTAL] * 8


async def test_workers_on_one_port_of_two_addresses_get_each_its_own():
    """Both in this process: one has no room in memory, and the other has."""
    async with contextlib.AsyncExitStack() as stack:
        enable()
        scheduler = await stack.enter_async_context(Scheduler(**SCHEDULER))
        full = await started(scheduler, share(1), stack, host="127.0.0.1", port=0)
        port = int(full.address.rpartition(":")[2])
        empty = await started(scheduler, 0.9, stack, host="127.0.0.2", port=port)
        client = Client(scheduler.address, asynchronous=True)
        await stack.enter_async_context(client)
        came = []
        for worker in (full, empty, full):
            values = [Recorded() for _ in range(2)]
            came += await client.scatter(
                values, workers=[worker.address], direct=True, hash=False
            )
        assert list(forms(full).values()) == [ON_DISK] * 4
        assert list(forms(empty).values()) == [PACKED] * 2
        await empty.close()
        users = [
            client.submit(total, future, workers=[full.address], pure=False)
            for future in came
            if future.key in full.data
        ]
        assert await client.gather(users) == [TOTAL] * 4


async def test_who_listens_on_all_addresses_gets_it_by_any():
    async with workers(share(1), host="0.0.0.0") as (_, _, there):
        port = there.address.rpartition(":")[2]
        peer = rpc(f"tcp://127.0.0.1:{port}")
        answer = await peer.update_data(data={"x": to_serialize(Recorded())})
        await peer.close_rpc()
        assert answer["status"] == "OK"
        assert forms(there) == {"x": ON_DISK}


async def test_other_messages_come_to_memory():
    async with workers(share(1)) as (client, _, there):
        found = await client.run(
            lambda value: int(value.sum()), np.ones(SIZE, "u1"), workers=[there.address]
        )
        assert found == {there.address: SIZE}
        assert there.data.figures()["received"] == 0


def large():
    return np.ones(32 * MIB, "u1")


def byte_sum(array):
    return int(array.sum(dtype="u8"))


def in_use():
    """What the library has in memory now."""
    budget = _native.figures()["budget"]
    names = ("held", "queued", "in_flight", "pooled", "spilling")
    return sum(budget[name] for name in names)


async def test_memory_stays_below_a_bound_while_it_comes():
    async with workers(share(MIB)) as (client, here, there):
        futures = await made_at(client, here, 4, large)
        gc.collect()  # of earlier tests
        _native.trim(0, 0)
        before = _native.figures()["budget"]
        seen, moving = [in_use()], asyncio.ensure_future(moved(client, futures, there))
        while not moving.done():
            seen.append(in_use())
            await asyncio.sleep(0)
        await moving
        assert set(forms(there).values()) == {ON_DISK}
        # What is sent is queued, and belongs to the sender; that apart, windows.
        sent = len(futures) * 32 * MIB
        assert max(seen) - seen[0] < sent + 4 * MIB
        figures = _native.figures()["budget"]
        assert figures["held"] - before["held"] < 4 * MIB
        assert figures["in_flight"] < MIB
        user = client.submit(byte_sum, futures[2], workers=[there.address])
        assert await user == 32 * MIB


@pytest.mark.parametrize("way", ["memory", "stream"])
async def test_by_every_way_between_workers(way, monkeypatch):
    if way == "stream":
        monkeypatch.setenv("SPILLWAY_DISABLE", "same_host")
    async with workers(share(1)) as (client, here, there):
        before = _native.figures()["same_host"]["by_address"]
        futures = await made_at(client, here, 3)
        # The two meet when the first of them has come.
        for future in futures:
            await moved(client, [future], there)
        assert set(forms(there).values()) == {ON_DISK}
        by_address = _native.figures()["same_host"]["by_address"] - before
        assert (by_address > 0) == (way == "memory")
        user = client.submit(total, futures[0], workers=[there.address])
        assert await user == TOTAL


async def test_what_a_task_waits_for_comes_to_memory():
    async with workers(share(1)) as (client, here, there):
        futures = await made_at(client, here, 3)
        user = client.submit(total, *futures, workers=[there.address])
        assert await user == TOTAL
        figures = there.data.figures()
        assert figures["received"] == 0 and figures["unpacks"] == 3


@contextlib.contextmanager
def files_up_to(size):
    """What is written beyond fails, in the middle of a value."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_disk_that_fails_costs_no_value():
    async with workers(share(1)) as (client, here, there):
        futures = await made_at(client, here, 4)
        keys, address = [future.key for future in futures], there.address
        with files_up_to(2 * SIZE):
            await client.run_on_scheduler(
                lambda dask_scheduler: dask_scheduler.request_acquire_replicas(
                    address, keys, stimulus_id="test"
                )
            )
            async with asyncio.timeout(60):
                while not there.data.figures()["failures"]:
                    await asyncio.sleep(0.01)
            users = [
                client.submit(total, future, workers=[address], pure=False)
                for future in futures
            ]
            assert await client.gather(users) == [TOTAL] * 4
        assert there.data.figures()["received"] < 4


async def test_beyond_max_spill_it_comes_to_memory():
    with dask.config.set({"distributed.worker.memory.max-spill": 2.5 * SIZE}):
        async with workers(share(1)) as (client, here, there):
            futures = await made_at(client, here, 4)
            await moved(client, futures, there)
            assert sorted(forms(there).values()) == [PACKED] * 2 + [ON_DISK] * 2
            assert there.data.figures()["disk_bytes"] <= 2.5 * SIZE


async def test_what_was_damaged_at_its_sender_is_made_again():
    async with workers(share(1)) as (client, here, there):
        (future,) = await made_at(client, here, 1)
        here.data.entry(future.key).spill()
        assert forms(here) == {future.key: ON_DISK}
        spoil(Recorded().data[70_000:70_010].tobytes())
        user = client.submit(total, future, workers=[there.address])
        assert await user == TOTAL
        assert forms(here)[future.key] & LIVE


async def test_a_worker_that_closes_meanwhile_leaves_nothing():
    before = store_files.inodes()  # of what earlier tests left
    async with workers(share(1)) as (client, here, there):
        futures = await made_at(client, here, 8, large)
        moving = asyncio.ensure_future(
            client.replicate(futures, workers=[there.address], n=2)
        )
        while not there.data.figures()["received_bytes"]:
            await asyncio.sleep(0.001)
        await asyncio.wait_for(there.close(), 30)
        moving.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await moving
        assert sorted(forms(here).values()) == [LIVE] * 8

    def are_gone():
        gc.collect()  # errors that keep what they came through
        return store_files.inodes() <= before

    await until(are_gone)


# Between two comms.


@contextlib.asynccontextmanager
async def receiving(**options):
    """A comm that reads for a store, its peer, and the store."""
    with store(**options) as native:
        async with comms("spillway", "spillway") as (near, far):
            with packed.wanted_by(types.SimpleNamespace(native=native)):
                yield near, far, native


def reply(*values):
    data = {f"x-{n}": to_serialize(value) for n, value in enumerate(values)}
    return {"status": "OK", "data": data}


def arrays(*sizes):
    return [np.arange(size, dtype="u1") for size in sizes]


async def test_what_came_to_disk_is_put_once():
    async with receiving(target=1) as (near, far, native):
        message = await exchanged(far, near, reply(*arrays(2 * MIB, 1000)))
        on_disk, small = message["data"].values()
        assert [type(frame) for frame in on_disk.frames[1:]] == [_native.FileRange]
        assert _native.FileRange not in map(type, small.frames)
        entry = native.put_packed("x", on_disk.frames, 2 * MIB)
        assert entry.forms == ON_DISK and native.figures()["on_disk"]["count"] == 1
        again = native.put_packed("x", on_disk.frames, 2 * MIB)  # which is read
        assert again.forms == PACKED
        with store() as other:
            assert other.put_packed("x", on_disk.frames, 1).forms == PACKED
        assert (
            value_of(list(map(memoryview, entry.frames()))) == arrays(2 * MIB)
        ).all()


async def test_room_in_memory_is_kept_until_it_is_put_or_dropped():
    async with receiving(target=5 * MIB) as (near, far, native):
        message = await exchanged(far, near, reply(*arrays(2 * MIB, 2 * MIB)))
        assert native.figures()["arriving_bytes"] > 4 * MIB
        first, second = message["data"].values()
        assert _native.FileRange not in map(type, first.frames + second.frames)
        entry = native.put_packed("x", first.frames, 2 * MIB)
        assert entry.forms == PACKED
        assert 2 * MIB < native.figures()["arriving_bytes"] < 3 * MIB
        del message, second
        assert native.figures()["arriving_bytes"] == 0


def as_bytes(frames):
    return [bytes(frame) for frame in frames]


def test_what_a_store_has_on_disk_is_adopted_by_another():
    with store(unpack=as_bytes) as one, store(unpack=as_bytes) as two:
        sent = [b"header", arrays(2 * MIB)[0].tobytes()]
        entry = one.put("x", sent, 2 * MIB)
        entry.spill()
        header, frame = entry.frames()
        adopted = two.put_packed("x", [bytes(header), frame], 2 * MIB)
        assert adopted.forms == ON_DISK
        figures = two.figures()
        assert figures["adopted"] == 1 and figures["adopted_bytes"] == 2 * MIB
        assert figures["received"] == figures["writes"] == figures["reads"] == 0
        del header, frame, entry
        assert adopted.get() == sent


async def test_what_is_dropped_gives_its_space_back():
    async with receiving(target=1) as (near, far, native):
        message = await exchanged(far, near, reply(*arrays(2 * MIB)))
        assert native.figures()["disk_bytes"] > 2 * MIB
        del message
        while native.figures()["disk_bytes"]:
            await asyncio.sleep(0)


async def test_who_asked_for_something_else_gets_it_from_there():
    async with receiving(target=1) as (near, far, native):
        (value,) = arrays(2 * MIB)
        message = await exchanged(far, near, {"op": "else", "x": to_serialize(value)})
        assert (message["x"] == value).all()
        assert native.figures()["received"] == 1


async def test_one_that_came_otherwise_than_it_was_stored_stands_for_itself():
    async with receiving(target=1) as (near, far, _):
        header, frames = serialize(arrays(2 * MIB)[0])
        header[checksums.KEY] = (1,) * len(frames)
        message = reply(*arrays(1000))
        message["data"]["bad"] = Serialized(header, frames)
        with undecoded.wanted():
            data = (await exchanged(far, near, message))["data"]
        assert isinstance(data["x-0"], packed.Packed)
        assert isinstance(data["bad"], undecoded.Undecoded)
        assert isinstance(data["bad"].error, checksums.Damaged)


async def test_only_a_store_receives():
    async with receiving() as (near, _, _):
        with pytest.raises(TypeError, match="Store"):
            near._stream.receive_values(near)
