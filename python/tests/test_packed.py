"""Values that stay packed in a worker's store until a task asks, on every way in."""

import asyncio
import builtins
import contextlib
import types

import dask
import msgpack
import numpy as np
import pytest
from dask.sizeof import sizeof
from dask.utils import typename
from distributed import Client, Event, LocalCluster, wait
from distributed.protocol import Serialized, serialize, to_serialize
from distributed.protocol.core import dumps

import spillway.dask
from spillway.dask import packed
from spillway.dask.decode import loads, value_of

LIVE, PACKED = 1, 2

MORE = 700
"""So much more than its data one says that it takes, and not what its pickle does."""


class Recorded:
    """Counts, in each process, how often one of it was unpickled."""

    def __init__(self, size=1 << 17):
        self.data = np.arange(size, dtype="i8")

    def __reduce__(self):
        return _unpickled, (self.data,)

    def __sizeof__(self):
        return self.data.nbytes + MORE


def _unpickled(data):
    builtins.unpickled_here = unpickled_here() + 1
    value = Recorded.__new__(Recorded)
    value.data = data
    return value


def unpickled_here():
    return getattr(builtins, "unpickled_here", 0)


def counts(client, worker):
    """How often one was unpickled at a worker, by its own count, and by the store's."""
    (found,) = client.run(
        lambda: (unpickled_here(), spillway.stats()["store"]["unpacks"]),
        workers=[worker],
    ).values()
    return found


def total(value, *_):
    return int(value.data.sum())


TOTAL = total(Recorded())


@contextlib.contextmanager
def started():
    """A cluster of two whose workers have stores. Nobody drops replicas in it."""
    options = {
        "distributed.scheduler.active-memory-manager.start": False,
    }
    with dask.config.set(options):
        spillway.dask.enable()
        try:
            with LocalCluster(
                n_workers=2,
                threads_per_worker=2,
                memory_limit="1 GiB",
                dashboard_address=None,
            ) as cluster:
                yield cluster
        finally:
            spillway.dask.disable()


@pytest.fixture(scope="module")
def cluster():
    with started() as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    spillway.dask.enable()  # each test begins without
    with Client(cluster) as client:
        yield client


@pytest.fixture
def key(request):
    """A key that no other test uses."""
    return request.node.name


def forms(key):
    def look(dask_worker):
        entry = dask_worker.data.entry(key)
        return entry and entry.forms

    return look


def until(client, condition):
    """Look again until it holds, for as long as a test may take."""
    while not condition():
        client.sync(asyncio.sleep, 0.01)


def type_of(key):
    """What a worker shows of a key."""
    return lambda dask_worker: typename(dask_worker.state.tasks[key].type)


def nbytes_of(key):
    """How large a worker takes a value to be."""
    return lambda dask_worker: dask_worker.state.tasks[key].nbytes


def check_packed(client, key, worker, before):
    """It came, was not unpickled for that, and is once for those who use it."""
    (found,) = client.run(forms(key), workers=[worker]).values()
    assert found == PACKED
    assert counts(client, worker) == before
    assert client.run(type_of(key), workers=[worker]) == {worker: typename(Recorded)}
    size = sizeof(Recorded())
    assert client.run(nbytes_of(key), workers=[worker]) == {worker: size}
    users = [
        client.submit(
            total, future_of(client, key), number, workers=[worker], pure=False
        )
        for number in range(8)
    ]
    assert client.gather(users) == [TOTAL] * 8
    assert counts(client, worker) == (before[0] + 1, before[1] + 1)


def future_of(client, key):
    from distributed import Future

    return Future(key, client)


def workers_of(client):
    return sorted(client.scheduler_info(n_workers=-1)["workers"])


def made_at(client, worker, key):
    future = client.submit(Recorded, key=key, workers=[worker])
    wait(future)
    return future


def test_replicate(client, key):
    here, there = workers_of(client)
    before = counts(client, there)
    x = made_at(client, here, key)
    client.replicate(x, n=2)
    check_packed(client, key, there, before)


def test_a_dependency(client, key):
    here, there = workers_of(client)
    before = counts(client, there)
    x = made_at(client, here, key)
    gate = Event(key)
    waits = client.submit(lambda: Event(key).wait(30), workers=[there], pure=False)
    user = client.submit(total, x, waits, workers=[there])
    # The worker fetches what it will need when it has nothing else to do.
    ask_for_replica(client, key, there)
    until(client, lambda: len(client.who_has([x])[key]) == 2)
    assert counts(client, there) == before
    gate.set()
    assert user.result() == TOTAL
    assert counts(client, there) == (before[0] + 1, before[1] + 1)


def ask_for_replica(client, key, worker):
    """As policies of the active memory manager do."""
    client.run_on_scheduler(
        lambda dask_scheduler: dask_scheduler.request_acquire_replicas(
            worker, [key], stimulus_id="test"
        )
    )


def test_a_replica_that_the_active_memory_manager_wants(client, key):
    here, there = workers_of(client)
    before = counts(client, there)
    x = made_at(client, here, key)
    ask_for_replica(client, key, there)
    until(client, lambda: len(client.who_has([x])[key]) == 2)
    check_packed(client, key, there, before)


def rebalance_at_once(dask_scheduler):
    """However little there is to be moved."""
    dask_scheduler.MEMORY_REBALANCE_MEASURE = "managed"
    dask_scheduler.MEMORY_REBALANCE_SENDER_MIN = 0.0
    dask_scheduler.MEMORY_REBALANCE_HALF_GAP = 0.0


def test_rebalance(client, key):
    here, there = workers_of(client)
    before = counts(client, there)
    futures = [made_at(client, here, f"{key}-{number}") for number in range(8)]
    client.run_on_scheduler(rebalance_at_once)
    client.rebalance(futures)
    moved = [one for one, who in client.who_has(futures).items() if there in who]
    assert moved
    check_packed(client, moved[0], there, before)


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by_scheduler"])
def test_scatter(client, direct, key):
    _, there = workers_of(client)
    before = counts(client, there)
    x = client.scatter({key: Recorded()}, workers=[there], direct=direct)
    check_packed(client, key, there, before)
    del x


def test_scatter_to_all(client, key):
    workers = workers_of(client)
    before = {worker: counts(client, worker) for worker in workers}
    x = client.scatter({key: Recorded()}, broadcast=True)
    assert set(client.who_has(x)[key]) == set(workers)
    for worker in workers:
        check_packed(client, key, worker, before[worker])


def test_what_a_stock_client_scatters_has_its_type_once_it_is_used(cluster, key):
    with Client(cluster) as client:
        _, there = workers_of(client)
        before = counts(client, there)
        x = client.scatter({key: Recorded()}, workers=[there], direct=True)[key]
        (found,) = client.run(forms(key), workers=[there]).values()
        assert found == PACKED and counts(client, there) == before
        assert client.submit(total, x, workers=[there]).result() == TOTAL
        assert client.run(type_of(key), workers=[there]) == {there: typename(Recorded)}


def test_it_is_itself_for_who_reads_it_otherwise(client, key):
    _, there = workers_of(client)
    x = client.scatter({key: Recorded()}, workers=[there])[key]
    read = client.run(lambda dask_worker: total(dask_worker.data[key]), workers=[there])
    assert read == {there: TOTAL}
    assert total(x.result()) == TOTAL


def test_retire_workers(key):
    with started() as cluster, Client(cluster) as client:
        here, there = workers_of(client)
        before = counts(client, there)
        x = made_at(client, here, key)
        client.retire_workers([here])
        assert client.who_has([x])[key] == (there,)
        check_packed(client, key, there, before)


# Without a cluster.


def frames_of(message):
    return [bytes(frame) for frame in dumps(message)]


def test_only_data_stay_packed():
    data = {"status": "OK", "data": {"x": to_serialize(Recorded())}}
    message = loads(frames_of(data), keep_packed=True)
    (value,) = message["data"].values()
    assert isinstance(value, packed.Packed)
    assert (
        10_000 < sizeof(value) < sizeof(Recorded())
    )  # Dask's encoder says nothing of it
    assert total(value_of(value.frames)) == total(value_of(value.frames)) == TOTAL
    error = {"status": "error", "exception": to_serialize(ValueError("x"))}
    assert isinstance(
        loads(frames_of(error), keep_packed=True)["exception"], ValueError
    )
    nested = {"status": "OK", "data": [to_serialize(Recorded())]}
    assert total(loads(frames_of(nested), keep_packed=True)["data"][0]) == TOTAL


def test_who_restricts_deserialisers_hears_of_others_now():
    data = {"status": "OK", "data": {"x": to_serialize(Recorded())}}
    with pytest.raises(TypeError):
        loads(frames_of(data), deserializers=["dask", "msgpack"], keep_packed=True)


def test_compressed_frames_stay_as_they_are():
    header, frames = serialize(bytes(1 << 20))
    header["compression"] = ("lz4",)
    import lz4.block

    frames = [lz4.block.compress(bytes(frames[0]))]
    message = {"status": "OK", "data": {"x": Serialized(header, frames)}}
    (value,) = loads(frames_of(message), keep_packed=True)["data"].values()
    assert sizeof(value) < 1 << 16
    assert value_of(value.frames) == bytes(1 << 20)


class Listener:
    """Stands for a worker's."""


def test_only_who_listens_with_a_store_is_given_what_is_scattered():
    head = msgpack.packb({"op": "update_data"})
    stores = [types.SimpleNamespace(native=name) for name in "ab"]
    listeners = [Listener(), Listener(), Listener()]
    assert not packed.is_wanted(head, listeners[0])
    for listener, store in zip(listeners, stores, strict=False):
        packed.listen_by(listener, store)
    found = [packed.scattered_to(listener) for listener in [*listeners, None]]
    assert found == ["a", "b", None, None]
    wanted = [packed.is_wanted(head, listener) for listener in [*listeners, None]]
    assert wanted == [True, True, False, False]
    assert not packed.is_wanted(msgpack.packb({"op": "get_data"}), listeners[0])
    packed.leave(stores[1])
    assert packed.scattered_to(listeners[1]) is None
    assert packed.scattered_to(listeners[0]) == "a"
    packed.leave(stores[0])
    assert not packed.is_wanted(head, listeners[0])


@pytest.mark.parametrize("name", [None, 3, "", "a.b-c", "x" * 300, "a..b"])
def test_what_is_no_name_of_a_type(name):
    assert packed.class_for(name) is packed.Packed


def test_names_of_types():
    for name in ("numpy.ndarray", "list", "pandas.core.frame.DataFrame"):
        assert typename(packed.class_for(name)) == name
