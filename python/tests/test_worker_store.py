"""A worker's data as a mapping, whatever of it is on disk; how it leaves memory, and
what is told of that."""

import asyncio
import gc
import logging
import os
import threading
import time
import weakref

import numpy as np
import pytest
from distributed.metrics import context_meter
from distributed.sizeof import safe_sizeof
from hypothesis import given, settings
from hypothesis import strategies as st

import spillway
import store_files
from spillway.dask import stored_form
from spillway.dask.worker_store import LOST, WorkerStore

PATIENCE_S = 20


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def settled(store):
    """Nothing leaves any more."""
    until(lambda: not store.figures()["leaving_bytes"])
    return store


@pytest.fixture
def make(tmp_path):
    stores = []

    def make(limit=0, **options):
        stores.append(WorkerStore([(str(tmp_path), limit)], small=1, **options))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


class Unpicklable:
    def __init__(self, size=100):
        self.size = size

    def __sizeof__(self):
        return self.size

    def __reduce__(self):
        raise ZeroDivisionError("not this one")


class Broken:
    """Can be written, and not read."""

    def __reduce__(self):
        return _raise, ()


def _raise():
    raise LookupError("never again")


# As a mapping

KEYS = st.sampled_from(["x", "y", ("z", 1), 5, b"bytes", "\udc80"])
VALUES = st.one_of(
    st.none(),
    st.integers(),
    st.text(max_size=5),
    st.binary(max_size=300),
    st.lists(st.integers(), max_size=4),
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, VALUES),
        st.tuples(st.sampled_from(["delete", "get", "in"]), KEYS, st.none()),
        st.tuples(st.sampled_from(["evict", "settle"]), st.none(), st.none()),
    ),
    max_size=30,
)


@given(ACTIONS)
@settings(max_examples=150, deadline=None)
def test_it_is_a_dict_for_whoever_uses_it(tmp_path_factory, actions):
    store = WorkerStore([(str(tmp_path_factory.mktemp("d")), 0)], small=1, target=300)
    oracle = {}
    try:
        for action, key, value in actions:
            if action == "set":
                oracle.pop(key, None)
                store[key] = oracle[key] = value
            elif action == "delete":
                if key in oracle:
                    del oracle[key], store[key]
                else:
                    with pytest.raises(KeyError):
                        del store[key]
            elif action == "get":
                assert store.get(key, "none") == oracle.get(key, "none")
            elif action == "in":
                assert (key in store) == (key in oracle)
            elif action == "evict":
                assert store.evict() != 0
            else:
                settled(store)
            assert len(store) == len(oracle)
            assert list(store) == list(oracle)
            fast, slow = set(store.fast), set(store.slow)
            assert fast | slow == set(oracle)
        assert dict(store) == oracle
        assert list(store.items()) == list(oracle.items())
    finally:
        store.close()


def test_deleting_does_not_read(make):
    store = make(target=1000)
    for i in range(10):
        store[i] = bytes(500)
    settled(store)
    assert store.slow
    for i in range(10):
        del store[i]
    assert store.figures()["reads"] == 0
    assert not store and not store.fast and not store.slow


def test_pop_is_refused_as_by_dask(make):
    store = make()
    store["x"] = 1
    with pytest.raises(NotImplementedError, match="use `del` instead"):
        store.pop("x", None)
    assert store["x"] == 1


def test_a_value_that_is_in_use_is_not_made_twice(make):
    store = make(target=1000)
    value = np.arange(1000)
    store["x"] = value
    settled(store)
    assert list(store.slow) == ["x"]
    assert store["x"] is value
    assert store.figures()["reads"] == 0


def test_a_replaced_value_is_the_new_one(make):
    store = make(target=1000)
    store["x"] = bytes(2000)
    store["x"] = "new"
    settled(store)
    assert store["x"] == "new"
    assert store.figures()["on_disk"]["count"] == 0


def test_what_is_changed_in_place_lasts_until_the_value_leaves_again(make):
    store = make(target=1000)
    store["x"] = np.zeros(100)
    store["x"][0] = 1  # before it is written: kept
    assert store.evict() != 0
    until(lambda: list(store.slow) == ["x"])
    gc.collect()
    store["x"][1] = 2  # of what has a copy on disk: lost with the object
    assert store["x"].tolist()[:2] == [1, 2]
    assert store.evict() != 0
    until(lambda: list(store.slow) == ["x"])
    gc.collect()
    assert store["x"].tolist()[:2] == [1, 0]
    assert store.figures()["writes"] == 1


@pytest.mark.parametrize("length", [10, 1 << 17, 1 << 20])
def test_a_pickle_with_long_parts_comes_back(length):
    value = [b"x" * length, {"a": "y" * length, "b": np.arange(5)}]
    frames = stored_form.pack(value)
    first, second = stored_form.unpack(frames), stored_form.unpack(frames)
    for back in (first, second):  # headers serve more than once
        assert back[0] == value[0] and back[1]["a"] == value[1]["a"]
        np.testing.assert_array_equal(back[1]["b"], np.arange(5))


def test_read_back_arrays_are_writeable_as_they_were(make):
    store = make(target=1000)
    frozen = np.arange(1000)
    frozen.flags.writeable = False
    store["a"], store["b"] = np.arange(1000), frozen
    del frozen
    settled(store)
    gc.collect()
    assert store["a"].flags.writeable
    assert not store["b"].flags.writeable
    assert store.figures()["reads"] == 2


def test_what_cannot_be_unpickled_raises_its_own_error(make):
    store = make(target=50)
    store["x"] = Broken()
    store["y"] = bytes(100)
    settled(store)
    for _ in range(2):
        with pytest.raises(LookupError, match="never again"):
            store["x"]
    assert not store.is_lost("x")
    del store["x"]


def test_what_is_lost_is_told_by_key(make):
    lost = []
    store = make(target=1000, on_lost=lost.append)
    store["x", 1] = np.arange(1000)
    settled(store)
    assert store_files.corrupt()
    with pytest.raises(spillway._native.SpillwayError) as raised:
        store["x", 1]
    assert raised.value.status == "CORRUPT"
    assert lost == [("x", 1)]
    assert store.is_lost(("x", 1)) and store.entry(("x", 1)).forms == LOST
    assert not store.is_lost("other")


# Leaving memory


def test_what_leaves_is_in_fast_until_it_has_left(make):
    gate = threading.Event()

    class Slow:
        def __reduce__(self):
            assert gate.wait(PATIENCE_S)
            return int, ()

    store = make(excess=lambda: 1)
    value = Slow()
    is_used = weakref.ref(value)
    store["x"] = value
    del value
    assert store.evict() == -1
    assert store.fast and len(store.fast) == 1 and not store.slow
    assert store.evict() == -1  # something is leaving already
    gate.set()
    until(lambda: len(store.slow) == 1)
    assert not store.fast
    assert store.evict() == -1  # nothing is left
    until(lambda: is_used() is None)  # whoever packed it may have it for a moment
    assert store["x"] == 0


def test_it_goes_on_until_the_excess_has_left_and_not_further(make):
    size = 10_000
    store = make(excess=lambda: 5 * size - (20 - len(store.fast)) * size)
    for i in range(20):
        store[i] = bytes(size)
    store.evict()
    until(lambda: len(store.slow) == 5)
    settled(store)
    assert list(store.slow) == list(range(5))
    assert store.figures()["writes"] == 5


def test_what_comes_makes_it_look_without_a_monitor(make):
    size, looks = 10_000, []

    def excess():
        looks.append(len(store.fast))
        return (len(store.fast) - 10) * size

    store = make(excess=excess, high=3 * size, look_every=2 * size)
    for i in range(13):
        store[i] = bytes(size)
    assert looks == [2, 4, 6, 8, 10, 12]  # never above what is high
    settled(store)
    assert not store.slow
    for i in range(13, 16):  # 14 are above it
        store[i] = bytes(size)
    until(lambda: len(store.fast) == 10)
    settled(store)
    assert list(store.slow) == list(range(6))
    looks.clear()
    assert [store[i] for i in range(4)] == [bytes(size)] * 4
    assert looks == [12, 14]  # what is read back comes into memory as well


def test_it_does_not_look_where_dask_does_not_spill_by_process_memory(make):
    looks = []
    store = make(excess=lambda: looks.append(1) or 10**9)
    for i in range(10):
        store[i] = bytes(1000)
    assert not looks and not store.slow


def test_it_stops_for_the_monitor_to_look_when_memory_does_not_fall(make):
    size, collected = 10_000, []
    store = make(excess=lambda: 3 * size, collect=collected.append)
    for i in range(20):
        store[i] = bytes(size)
    store.evict()
    until(lambda: collected)
    settled(store)
    assert len(store.slow) == 3


def test_one_that_cannot_be_pickled_is_asked_once(make, caplog):
    store = make(excess=lambda: 10**9)
    store["x"] = Unpicklable()
    with caplog.at_level(logging.ERROR, "distributed.spill"):
        store.evict()
        until(lambda: caplog.records)
        settled(store)
        assert store.evict() == -1
    assert [r.getMessage() for r in caplog.records] == ["Failed to pickle 'x'"]
    assert "not this one" in caplog.text
    assert "x" in store.fast


def test_a_full_disk_is_said_once_and_the_values_stay(make, caplog):
    store = make(limit=50_000, target=10_000)
    with caplog.at_level(logging.WARNING, "distributed.spill"):
        for i in range(30):
            store[i] = os.urandom(10_000)
            settled(store)
        until(lambda: caplog.records)  # said by a thread, after it has settled
    lines = [r for r in caplog.records if "reached capacity" in r.getMessage()]
    assert len(lines) == 1
    assert store.figures()["disk_bytes"] <= 50_000
    assert len(store) == 30 and all(len(store[i]) == 10_000 for i in range(30))


def test_one_that_cannot_be_pickled_and_is_removed_meanwhile_harms_nobody(make):
    """What it raised was left behind in the thread that packs."""
    reached, gate = threading.Event(), threading.Event()

    class Held:
        def __reduce__(self):
            reached.set()
            assert gate.wait(PATIENCE_S)
            raise ZeroDivisionError("not this one")

    store = make(excess=lambda: 10**9)
    store["x"] = Held()
    store.evict()
    assert reached.wait(PATIENCE_S)
    del store["x"]
    gate.set()
    settled(store)
    store["y"] = bytes(5000)
    store.evict()
    until(lambda: list(store.slow) == ["y"])


async def test_who_makes_too_much_waits_until_it_has_left(make):
    loop = asyncio.get_running_loop()
    gate = threading.Event()

    class Slow:
        def __sizeof__(self):
            return 1000

        def __reduce__(self):
            assert gate.wait(PATIENCE_S)
            return int, ()

    store = make(target=100, in_flight=1, call_soon=loop.call_soon_threadsafe)
    store["x"] = Slow()
    assert store.is_behind()
    waiting = asyncio.create_task(store.wait_for_room())
    done, _ = await asyncio.wait([waiting], timeout=0.25)
    assert not done
    gate.set()
    await asyncio.wait_for(waiting, PATIENCE_S)
    assert not store.is_behind()


def test_a_prepared_value_is_taken_once_and_by_identity(make):
    store = make(target=10)
    one, other = bytes(1000), bytes(1000)
    entry, metrics = store.put_spilled("x", one, 1033)
    assert {label for label, _, _ in metrics} >= {"serialize", "disk-write"}
    store.prepare("x", one, entry)
    store["x"] = other
    assert store.entry("x") is not entry
    store["x"] = one
    assert store.entry("x") is entry
    store.prepare("y", one, store.put_spilled("y", one, 1033)[0])
    store.forget_prepared("y")
    assert "y" not in store
    store.forget_prepared("y")
    del entry


def test_a_value_of_which_the_size_is_known_is_not_asked(make):
    asked = []

    class Asked:
        def __sizeof__(self):
            asked.append(self)
            return 100

    store = make()
    one, other = Asked(), Asked()
    store.know_size("x", one, 300)
    store["x"] = one
    assert store.entry("x").weight == 300 and not asked
    store["x"] = other
    assert store.entry("x").weight >= 100 and asked == [other]
    store.know_size("y", one, 300)
    store.forget_prepared("y")
    store["y"] = one
    assert asked == [other, one]
    store["z"] = None
    assert store.entry("z").weight == safe_sizeof(None)


# What is told


def test_the_figures_are_those_that_dask_shows(make):
    store = make(target=10_000)
    for i in range(4):
        store[i] = np.arange(1000)  # 8,000 bytes each, of which one may stay
    settled(store)
    weight = safe_sizeof(np.arange(1000))
    memory, disk = store.spilled_total
    assert memory == 3 * weight
    assert 3 * 8000 <= disk <= 3 * 9000
    assert store.spilled_total.memory == memory and store.spilled_total.disk == disk


def test_what_has_left_and_is_in_use_is_told(make):
    store = make()
    held = {key: np.ones(size) for key, size in [("x", 1000), ("y", 2000)]}
    for key, value in held.items():
        store[key] = value
    store["bytes"] = in_bytes = bytes(5000)  # cannot be weakly referenced
    store["nobody"] = np.ones(3000)

    def found():
        stats = spillway.stats()["store"]
        told = stats["spilled_in_use"], stats["spilled_in_use_bytes"]
        assert told == store.spilled_in_use
        return told

    assert found() == (0, 0)
    while store.fast:
        store.evict()
        settled(store)
    sizes = {key: safe_sizeof(value) for key, value in held.items()}
    assert found() == (2, sizes["x"] + sizes["y"])
    del held["x"]
    assert found() == (1, sizes["y"])
    assert store["y"] is held["y"]  # it is the store's again
    assert found() == (0, 0)
    store.evict()
    settled(store)
    assert found() == (1, sizes["y"])
    del store["y"]
    assert found() == (0, 0)
    assert len(in_bytes) == 5000
    store.close()
    assert store.spilled_in_use == (0, 0)


def test_the_metrics_have_the_labels_and_units_of_dask(make):
    told = []
    store = make(target=10_000, on_metric=lambda *metric: told.append(metric))
    assert store.cumulative_metrics == {}
    for i in range(4):
        store[i] = bytes(8000)
    settled(store)
    until(lambda: sum(v for label, v, unit in told if unit == "count") == 3)
    met = {(label, unit) for label, _, unit in told}
    written = {
        ("serialize", "seconds"),
        ("compress", "seconds"),
        ("disk-write", "seconds"),
        ("disk-write", "count"),
        ("disk-write", "bytes"),
    }
    assert met == written
    assert store[3] and store[0]
    assert set(store.cumulative_metrics) == written | {
        ("memory-read", "count"),
        ("memory-read", "bytes"),
        ("disk-read", "seconds"),
        ("disk-read", "count"),
        ("disk-read", "bytes"),
        ("decompress", "seconds"),
        ("deserialize", "seconds"),
    }
    assert store.cumulative_metrics["disk-read", "count"] == 1
    assert store.cumulative_metrics["memory-read", "count"] == 1


def test_who_reads_is_metered_in_its_own_context(make):
    store = make(target=10_000)
    for i in range(2):
        store[i] = bytes(8000)
    settled(store)
    met = []
    with context_meter.add_callback(lambda *metric: met.append(metric)):
        assert len(store[1]) == len(store[0]) == 8000
    assert [(label, unit) for label, _, unit in met] == [
        ("memory-read", "count"),
        ("memory-read", "bytes"),
        ("disk-read", "seconds"),
        ("disk-read", "count"),
        ("disk-read", "bytes"),
        ("decompress", "seconds"),
        ("deserialize", "seconds"),
    ]
    assert dict(((a, c), b) for a, b, c in met)["disk-read", "bytes"] >= 8000


# Its end


def test_closing_leaves_nothing_behind(make, tmp_path):
    before = spillway.stats()["store"]
    store = make(target=1000)
    for i in range(10):
        store[i] = bytes(1000)
    settled(store)
    now = spillway.stats()["store"]
    assert now["stores"] == before["stores"] + 1
    assert now["on_disk"]["count"] == before["on_disk"]["count"] + 9
    assert os.listdir(tmp_path)
    store.close()
    store.close()
    assert not os.listdir(tmp_path)
    after = spillway.stats()["store"]
    assert after["stores"] == before["stores"]
    assert after["on_disk"] == before["on_disk"]
    assert after["writes"] >= before["writes"] + 9
    assert list(store) == list(range(10))  # as Dask's has them
    assert list(store.fast) == [9] and store[9] == bytes(1000)
    with pytest.raises(KeyError, match="has been closed"):
        store[0]
    store["late"] = None  # a worker that closes may still get some
    assert store["late"] is None and store.evict() == -1
    for key in list(store):
        del store[key]
    assert len(store) == 0


def test_closing_while_values_leave(make, tmp_path):
    store = make(target=1000)
    for i in range(200):
        store[i] = bytes(20_000)
    store.close()
    until(lambda: not os.listdir(tmp_path))
