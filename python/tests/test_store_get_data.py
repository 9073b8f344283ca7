"""Sending what a worker's store has, as it is, between workers that are otherwise as
Dask has them."""

import asyncio
import contextlib
import logging
import threading

import numpy
import pytest
from distributed import Client, LocalCluster, Worker, wait
from distributed.comm.core import connect
from distributed.core import ConnectionPool, Status, send_recv
from distributed.worker import get_data_from_worker

from comm_pairs import OURS, soon, until
from spillway import _native, stats
from spillway.dask import checksums, enable, manifest, store_get_data, stored_frames
from spillway.dask.comm import SpillwayComm
from stored_values import LIVE, LOST, ON_DISK, mini_store, spoil

LARGE = 1_000_003


class Recorder:
    """Counts how often one of them is pickled and unpickled."""

    pickled = unpickled = 0

    def __init__(self, name):
        self.name = name
        self.array = numpy.arange(LARGE // 8)

    def __eq__(self, other):
        return self.name == other.name and (self.array == other.array).all()

    def __reduce__(self):
        type(self).pickled += 1
        return _recorder, (self.name, self.array)


def _recorder(name, array):
    Recorder.unpickled += 1
    made = Recorder(name)
    made.array = array
    return made


@pytest.fixture(autouse=True)
def nothing_recorded(monkeypatch):
    monkeypatch.setattr(Recorder, "pickled", 0)
    monkeypatch.setattr(Recorder, "unpickled", 0)


@contextlib.asynccontextmanager
async def workers(protocol="tcp", is_ours=True, **options):
    """A client, and two workers of which the first has a store of ours."""
    if is_ours:
        enable()
    with mini_store(**options) as store:
        async with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=False,
                asynchronous=True,
                protocol=protocol,
                dashboard_address=":0",
                memory_limit=0,  # nothing monitors it
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            sender, receiver = cluster.workers.values()
            assert manifest.mismatch("store") is None
            put_in_place(sender, store)
            yield client, sender, receiver
            del sender.handlers["get_data"]


def put_in_place(worker, store):
    worker.memory_manager.data = worker.state.data = store
    worker.handlers["get_data"] = store_get_data.handler_for(worker, store)
    store.lost = []
    store.on_lost = store.lost.append


async def ask(receiver, sender, *keys, **options):
    """What a worker gets that asks another for values."""
    reply = await soon(
        get_data_from_worker(
            receiver.rpc, keys, sender.address, who=receiver.address, **options
        )
    )
    assert reply["status"] == "OK"
    return reply["data"]


def stored(store, key, value, form):
    """Have a value in a form: "live", "packed", or on "disk"."""
    if form == "packed":
        store.put_packed(key, value)
    else:
        store[key] = value
        if form == "disk":
            store.entry(key).spill()


def made():
    return [Recorder("a"), numpy.arange(LARGE), b"small", {"x": [1, None]}, "text"]


WAYS = {
    "ours": {},
    "stock": {"is_ours": False},
    "inproc": {"protocol": "inproc", "is_ours": False},
}


@pytest.mark.parametrize("form", ["live", "packed", "disk"])
@pytest.mark.parametrize("way", WAYS)
async def test_values_are_what_they_were(way, form):
    async with workers(**WAYS[way]) as (_, sender, receiver):
        store, values = sender.data, made()
        for number, value in enumerate(values):
            stored(store, number, value, form)
        got = await ask(receiver, sender, *range(len(values)), "nobody's")
        assert list(got) == list(range(len(values)))
        for number, value in enumerate(values):
            assert numpy.array_equal(got[number], value) or got[number] == value


@pytest.mark.parametrize("form", ["packed", "disk"])
@pytest.mark.parametrize("way", ["ours", "stock"])
async def test_the_sender_unpickles_nothing_and_writes_nothing(way, form):
    async with workers(**WAYS[way]) as (_, sender, receiver):
        store = sender.data
        stored(store, "x", Recorder("x"), form)
        pickled, before = Recorder.pickled, store.native.figures()
        forms = store.entry("x").forms
        for _ in range(3):
            got = await ask(receiver, sender, "x")
            assert got["x"] == Recorder("x")
        assert Recorder.pickled == pickled == 1
        assert Recorder.unpickled == 3  # by the receiver
        figures = store.native.figures()
        for name in ("unpacks", "packs", "reads", "writes", "drops"):
            assert figures[name] == before[name]
        assert store.entry("x").forms == forms


async def test_from_a_disk_to_another_worker_by_a_task():
    async with workers() as (client, sender, receiver):
        future = client.submit(
            Recorder, "x", workers=[sender.address], allow_other_workers=False
        )
        await soon(wait(future))
        sender.data.entry(future.key).spill()
        get = client.submit(
            lambda one: (one.name, int(one.array.sum())),
            future,
            workers=[receiver.address],
        )
        sum_ = (LARGE // 8) * (LARGE // 8 - 1) // 2
        assert await soon(get) == ("x", sum_)
        assert sender.data.entry(future.key).forms == ON_DISK
        assert Recorder.unpickled == 1


async def test_counters_log_and_metrics_are_as_dasks():
    async with workers() as (client, sender, receiver):
        future = client.submit(numpy.arange, LARGE, workers=[sender.address])
        await soon(wait(future))
        sender.data.entry(future.key).spill()
        size = sender.state.tasks[future.key].nbytes
        before = sender.transfer_outgoing_count_total
        bytes_before = sender.transfer_outgoing_bytes_total
        await ask(receiver, sender, future.key)
        await until(lambda: sender.transfer_outgoing_log)
        assert sender.transfer_outgoing_count_total == before + 1
        assert sender.transfer_outgoing_bytes_total == bytes_before + size
        assert sender.transfer_outgoing_count == sender.transfer_outgoing_bytes == 0
        entry = sender.transfer_outgoing_log[-1]
        assert set(entry) == {
            *("start", "stop", "middle", "duration", "who", "keys", "total"),
            *("compressed", "bandwidth"),
        }
        assert entry["keys"] == {future.key: size}
        assert entry["total"] == size
        assert entry["who"] == receiver.address
        digests = sender.digests_total
        assert digests["get-data", "network", "seconds"] > 0
        assert digests["get-data", "disk-read", "count"] == 1  # the header
        assert 0 < digests["get-data", "disk-read", "bytes"] < 1000


async def test_a_value_whose_serialiser_is_not_allowed_is_unpacked():
    async with workers() as (_, sender, receiver):
        stored(sender.data, "x", numpy.arange(9), "disk")
        stored(sender.data, "y", Recorder("y"), "packed")
        how = {"serializers": ["dask"], "deserializers": ["dask"]}
        got = await ask(receiver, sender, "x", **how)
        assert got["x"].sum() == 36
        assert sender.data.entry("x").forms == ON_DISK
        with pytest.raises(TypeError):
            await ask(receiver, sender, "y", **how)
        assert Recorder.unpickled == 1
        assert sender.data.entry("y").forms & LIVE
        assert can_leave(sender.data)


class Peer:
    """Asks as a process would that has stock comms only."""

    def __init__(self, comm):
        self.comm = comm

    async def ask(self, *keys):
        reply = await soon(
            send_recv(self.comm, op="get_data", keys=keys, who="a stock peer")
        )
        await self.comm.write("OK")
        return reply


@contextlib.asynccontextmanager
async def stock_peer(worker):
    comm = await connect(worker.address.replace(f"{OURS}://", "tcp://"))
    assert not isinstance(comm, SpillwayComm)
    try:
        yield Peer(comm)
    finally:
        comm.abort()


async def test_to_a_stock_peer_from_the_file_once_it_was_read_through(monkeypatch):
    seen = []
    verify = stored_frames.checksums.verify
    monkeypatch.setattr(checksums, "verify", lambda *a: seen.append(a) or verify(*a))
    async with workers(OURS, is_ours=False) as (_, sender, _):
        stored(sender.data, "x", numpy.arange(LARGE), "disk")
        async with stock_peer(sender) as peer:
            reply = await peer.ask("x")
            assert (reply["data"]["x"] == numpy.arange(LARGE)).all()
            await until(lambda: sender.transfer_outgoing_log)
        digests = sender.digests_total
        assert digests["get-data", "disk-read", "bytes"] > 8 * LARGE
        assert not seen


async def test_to_a_stock_peer_never_what_is_damaged(caplog):
    async with workers(OURS, is_ours=False) as (_, sender, _):
        stored(sender.data, "x", numpy.arange(LARGE), "disk")
        stored(sender.data, "y", numpy.ones(LARGE), "disk")
        spoil(numpy.arange(4).tobytes())
        async with stock_peer(sender) as peer:
            reply = await peer.ask("x", "y", "z")
        assert list(reply["data"]) == ["y"]
        assert sender.data.lost == ["x"]
        assert sender.data.entry("x").forms & LOST
        assert "'x' cannot be sent to a stock peer, for it is lost" in caplog.text


async def test_to_a_peer_of_ours_what_is_damaged_fails_the_task_that_uses_it():
    async with workers() as (client, sender, receiver):
        bad = client.submit(numpy.arange, LARGE, workers=[sender.address])
        good = client.submit(numpy.ones, LARGE, workers=[sender.address])
        await soon(client.gather([bad, good]))
        for key in (bad.key, good.key):
            sender.data.entry(key).spill()
        spoil(numpy.arange(4).tobytes())
        there = {"workers": [receiver.address]}
        fails = client.submit(lambda *_: 1, bad, good, **there)
        works = client.submit(lambda one: one.sum(), good, **there)
        with pytest.raises(RuntimeError, match="damaged on the sender's disk"):
            await soon(fails)
        assert await soon(works) == LARGE


async def test_a_value_that_is_lost_is_left_out():
    async with workers() as (_, sender, receiver):
        stored(sender.data, "x", numpy.arange(LARGE), "disk")
        spoil(numpy.arange(4).tobytes())
        with pytest.raises(_native.SpillwayError):
            sender.data["x"]
        assert await ask(receiver, sender, "x") == {}
        assert sender.data.lost == ["x"]


async def test_a_disk_that_fails_once_is_asked_again(monkeypatch):
    """Whatever was wrong is not in what is on disk."""
    run = stored_frames.Preparation.run

    def fail(self):
        error = _native.SpillwayError(5, "it failed once")
        error.status = "IO"
        raise error

    async with workers() as (_, sender, receiver):
        stored(sender.data, "x", numpy.arange(LARGE), "disk")
        monkeypatch.setattr(stored_frames.Preparation, "run", fail)
        got = await ask(receiver, sender, "x")
        assert got["x"].sum() == LARGE * (LARGE - 1) // 2
        assert sender.data.lost == []
        monkeypatch.setattr(stored_frames.Preparation, "run", run)
        assert can_leave(sender.data)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("way", ["ours", "stock"])
async def test_what_is_compressed_on_disk_arrives(way, codec):
    async with workers(**WAYS[way], codec=codec) as (_, sender, receiver):
        stored(sender.data, "x", numpy.zeros(LARGE), "disk")
        assert sender.data.entry("x").frames()[1].codec == codec
        before = stats()["bytes"]["sent"]
        got = await ask(receiver, sender, "x")
        assert (got["x"] == numpy.zeros(LARGE)).all()
        assert sender.data.entry("x").forms == ON_DISK
        if way == "ours":
            assert stats()["bytes"]["sent"] - before < LARGE


# ---- what happens meanwhile ----


@contextlib.contextmanager
def held_up(monkeypatch):
    """What waits for a disk waits until it is told to go on."""
    run, go_on, begun = stored_frames.Preparation.run, threading.Event(), []

    def wait(self):
        begun.append(self)
        assert go_on.wait(30)
        return run(self)

    with monkeypatch.context() as patch:
        patch.setattr(stored_frames.Preparation, "run", wait)
        try:
            yield begun, go_on
        finally:
            go_on.set()


async def test_the_loop_goes_on_while_a_disk_is_waited_for(monkeypatch):
    async with workers() as (_, sender, receiver):
        stored(sender.data, "x", numpy.arange(LARGE), "disk")
        with held_up(monkeypatch) as (begun, go_on):
            asked = asyncio.create_task(ask(receiver, sender, "x"))
            await until(lambda: begun)
            assert sender.transfer_outgoing_count == 1
            assert not asked.done()
            go_on.set()
            assert (await asked)["x"].size == LARGE


@pytest.mark.parametrize("change", ["delete", "replace"])
async def test_a_key_that_goes_meanwhile_is_still_what_was_asked_for(
    monkeypatch, change
):
    async with workers() as (_, sender, receiver):
        store = sender.data
        stored(store, "x", numpy.arange(LARGE), "disk")
        with held_up(monkeypatch) as (begun, go_on):
            asked = asyncio.create_task(ask(receiver, sender, "x"))
            await until(lambda: begun)
            if change == "delete":
                del store["x"]
            else:
                old = store.entry("x")
                store["x"] = b"another"
                old.remove()
            go_on.set()
            assert (await asked)["x"].size == LARGE
        await until(lambda: sender.transfer_outgoing_count == 0)


@pytest.mark.parametrize("is_before", [True, False])
async def test_a_key_that_goes_while_it_is_unpacked_is_left_out(is_before):
    async with workers("inproc", is_ours=False) as (_, sender, receiver):
        store = sender.data
        stored(store, "x", Recorder("x"), "disk")
        stored(store, "y", Recorder("y"), "disk")
        entry = store.entry("x")
        reached, go_on = threading.Event(), threading.Event()

        class Slow:
            def __getattr__(self, name):
                return getattr(entry, name)

            def acquire(self):
                value = None if is_before else entry.acquire()
                reached.set()
                assert go_on.wait(30)
                return entry.acquire() if is_before else value

        store.entries["x"] = Slow()
        asked = asyncio.create_task(ask(receiver, sender, "x", "y"))
        await until(reached.is_set)
        del store["x"]
        go_on.set()
        assert await asked == {"y": Recorder("y")}


async def test_who_is_cancelled_leaves_nothing_pinned(monkeypatch):
    async with workers() as (_, sender, _):
        stored(sender.data, "x", Recorder("x"), "disk")
        with held_up(monkeypatch) as (begun, go_on):
            comm = await connect(sender.address)
            handler = sender.handlers["get_data"]
            task = asyncio.create_task(handler(comm, ["x"], serializers=["dask"]))
            await until(lambda: begun)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sender.transfer_outgoing_count == 0
            go_on.set()
            await until(lambda: sender.data.entry("x").forms & LIVE)
            await until(lambda: can_leave(sender.data))
            comm.abort()


def can_leave(store):
    """Whether there is a value that nobody has pinned."""
    return store.native.evict(1 << 30) != -1


# ---- how much at a time ----


async def is_busy(sender, receiver, *keys):
    reply = await soon(
        get_data_from_worker(receiver.rpc, keys, sender.address, who="me")
    )
    return reply["status"] == "busy"


async def test_a_busy_worker_says_so():
    async with workers() as (_, sender, receiver):
        stored(sender.data, "x", numpy.arange(9), "disk")
        limit = sender.transfer_outgoing_count_limit
        sender.transfer_outgoing_count = 2 * limit - 1  # one host: twice as many
        assert not await is_busy(sender, receiver, "x")
        await until(lambda: sender.transfer_outgoing_count == 2 * limit - 1)
        sender.transfer_outgoing_count = 2 * limit
        assert await is_busy(sender, receiver, "x")
        sender.transfer_outgoing_count = 0


@pytest.mark.parametrize("way", ["ours", "stock"])
async def test_a_paused_worker_gives_what_costs_no_memory(way):
    async with workers(**WAYS[way]) as (_, sender, receiver):
        stored(sender.data, "live", numpy.arange(LARGE), "live")
        stored(sender.data, "packed", numpy.arange(LARGE), "packed")
        stored(sender.data, "disk", numpy.arange(LARGE), "disk")
        stored(sender.data, "clean", numpy.arange(LARGE), "disk")
        assert sender.data["clean"].size == LARGE
        assert sender.data.entry("clean").forms == LIVE | ON_DISK
        sender.status = Status.paused
        sender.transfer_outgoing_count = 1
        reads = way == "stock"
        assert await is_busy(sender, receiver, "live")
        assert not await is_busy(sender, receiver, "packed")
        assert await is_busy(sender, receiver, "disk") == reads
        assert await is_busy(sender, receiver, "clean") == reads
        assert await is_busy(sender, receiver, "packed", "live")
        await until(lambda: sender.transfer_outgoing_count == 1)
        sender.transfer_outgoing_count = 2 * sender.transfer_outgoing_count_limit
        assert await is_busy(sender, receiver, "packed")
        sender.transfer_outgoing_count = 0
        sender.status = Status.running


# ---- actors, and workers of other kinds ----


class Counter:
    n = 0

    def add(self):
        self.n += 1
        return self.n


async def test_actors_are_as_they_were():
    async with workers() as (client, sender, receiver):
        actor = await client.submit(Counter, actor=True, workers=[sender.address])
        assert await actor.add() == 1
        assert actor.key not in sender.data
        got = await ask(receiver, sender, actor.key)
        assert await soon(got[actor.key].add()) == 2


async def test_a_worker_with_a_way_of_its_own_keeps_it():
    class Other(Worker):
        async def get_data(self, *args, **kwargs):
            return await super().get_data(*args, **kwargs)

    async with workers() as (client, sender, _):
        address = client.scheduler.address
        async with Other(address, dashboard_address=None) as other:
            assert store_get_data.handler_for(other, sender.data) is None
        async with Worker(address) as other:
            other.handlers["get_data"] = print
            assert store_get_data.handler_for(other, sender.data) is None


async def test_a_client_that_gathers_directly(caplog):
    caplog.set_level(logging.WARNING)
    async with workers() as (client, sender, _):
        future = client.submit(Recorder, "x", workers=[sender.address])
        await soon(wait(future))
        sender.data.entry(future.key).spill()
        for direct in (True, False):
            assert await soon(client.gather(future, direct=direct)) == Recorder("x")
        assert sender.data.entry(future.key).forms == ON_DISK
        assert Recorder.unpickled == 2


async def test_many_ask_at_once():
    async with workers() as (_, sender, _):
        values = {f"x-{n}": numpy.full(100_000, n) for n in range(12)}
        for number, (key, value) in enumerate(values.items()):
            stored(sender.data, key, value, ("disk", "packed", "live")[number % 3])
        pool = await ConnectionPool(limit=100)
        keys = list(values)

        async def one(first):
            wanted = keys[first:] + keys[:first]
            while True:
                reply = await get_data_from_worker(pool, wanted, sender.address)
                if reply["status"] == "OK":
                    return reply["data"]

        for got in await soon(asyncio.gather(*(one(n % 12) for n in range(30)))):
            assert all((got[key] == value).all() for key, value in values.items())
        await pool.close()
        await until(lambda: sender.transfer_outgoing_count == 0)
