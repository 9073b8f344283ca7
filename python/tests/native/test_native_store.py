"""Store and StoreEntry: Python's values in the C store."""

import gc
import pickle
import threading
import weakref

import numpy as np
import pytest

from spillway import _native

LIVE, PACKED, ON_DISK, LOST = 1, 2, 4, 8
CLOSED, LEFT, FAILED = 1, 2, 3


def pack(value):
    buffers = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [head, *(one.raw() for one in buffers)]


def unpack(frames):
    return pickle.loads(frames[0], buffers=frames[1:])


class Worked:
    """A store with a thread of Python's that works for it."""

    def __init__(self, tmp_path, **options):
        self.store = _native.Store(pack, unpack, [(str(tmp_path), 0)], **options)
        self.events = []
        self.happened = threading.Condition()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _work(self):
        kind = None
        while kind != CLOSED:
            event = self.store.work(-1)
            kind = event[0]
            with self.happened:
                self.events.append(event)
                self.happened.notify_all()

    def wait_for(self, kind, count=1):
        def have():
            return sum(event[0] == kind for event in self.events) >= count

        with self.happened:
            assert self.happened.wait_for(have, timeout=30)

    def close(self):
        self.store.close()
        self.thread.join()


@pytest.fixture
def worked(tmp_path):
    made = Worked(tmp_path)
    yield made
    made.close()


def array(number, size=1 << 18):
    return np.full(size, number, dtype="f8")


def test_a_value_is_spilled_and_comes_back(worked):
    entry = worked.store.put("a", array(1), 1 << 21)
    assert entry.forms == LIVE and entry.weight == 1 << 21
    entry.spill()
    assert entry.forms == ON_DISK
    value = entry.get()
    assert (value == array(1)).all() and value.flags.writeable
    assert entry.forms == LIVE | ON_DISK
    figures = worked.store.figures()
    assert figures["packs"] == figures["unpacks"] == figures["writes"] == 1
    assert figures["clean"]["count"] == 1
    entry.remove()


def test_what_is_used_elsewhere_is_not_read_again(worked):
    entry = worked.store.put("a", array(1), 1 << 21)
    entry.spill()
    value = entry.get()
    assert worked.store.evict(1) == 1 << 21
    worked.wait_for(LEFT)
    assert entry.forms == ON_DISK
    assert entry.get() is value
    assert worked.store.figures()["unpacks"] == 1
    entry.remove()


def test_values_over_the_target_leave(tmp_path):
    worked = Worked(tmp_path, target=4 << 21)
    entries = [worked.store.put(f"k{i}", array(i), 1 << 21) for i in range(12)]
    worked.wait_for(LEFT, 8)
    figures = worked.store.figures()
    assert figures["live"]["weight"] <= 4 << 21
    assert figures["written_bytes"] >= 8 << 21
    for number, entry in enumerate(entries):
        assert (entry.get() == array(number)).all()
        entry.remove()
    worked.close()


class Refuses:
    def __reduce__(self):
        raise ValueError("not me")


def test_what_pack_raises_is_raised_by_spill(worked):
    value = Refuses()
    entry = worked.store.put("bad", value, 1 << 21)
    with pytest.raises(ValueError, match="not me"):
        entry.spill()
    assert entry.forms == LIVE and entry.get() is value
    entry.remove()


def test_what_pack_raises_is_an_event_once(worked):
    entry = worked.store.put("bad", Refuses(), 1 << 21)
    assert worked.store.evict(1) == 1 << 21
    worked.wait_for(FAILED)
    kind, key, error = worked.events[-1]
    assert (kind, key) == (FAILED, "bad")
    assert isinstance(error, ValueError) and error.__traceback__ is not None
    assert worked.store.evict(1) == -1
    entry.remove()


def refuse():
    raise RuntimeError("not again")


class Stuck:
    def __reduce__(self):
        return refuse, ()


def test_what_unpack_raises_is_raised_each_time(worked):
    entry = worked.store.put("stuck", Stuck(), 1 << 21)
    entry.spill()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not again"):
            entry.get()
    assert entry.forms == ON_DISK
    entry.remove()


def test_a_removed_value_is_gone_but_for_who_has_it(worked):
    entry = worked.store.put("a", array(1, 100), 800)
    value = entry.acquire()
    weak = weakref.ref(value)
    entry.remove()
    entry.remove()  # nothing more happens
    assert (value == 1).all()
    entry.unpin()
    del value
    gc.collect()
    assert weak() is None
    with pytest.raises(_native.SpillwayError, match="was removed"):
        entry.get()


def test_a_packed_value_is_unpacked_when_it_is_asked_for(worked):
    entry = worked.store.put_packed("p", pack(array(3)), 1 << 21)
    assert entry.forms == PACKED
    assert entry.try_acquire() is None
    assert (entry.get() == array(3)).all()
    assert entry.forms == LIVE
    entry.remove()


def test_many_who_ask_get_one_value(worked):
    entry = worked.store.put("a", array(1), 1 << 21)
    entry.spill()
    got = []
    threads = [
        threading.Thread(target=lambda: got.append(entry.acquire())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
        entry.unpin()
    assert len(got) == 8 and all(one is got[0] for one in got)
    assert worked.store.figures()["unpacks"] == 1
    entry.remove()


def test_values_without_an_entry_are_let_go(worked):
    value = array(1, 100)
    weak = weakref.ref(value)
    entry = worked.store.put("a", value, 800)
    del value
    gc.collect()
    assert weak() is not None
    del entry
    gc.collect()
    assert weak() is None
    assert worked.store.figures()["live"]["count"] == 0


def test_nothing_stays_in_the_directory(tmp_path):
    worked = Worked(tmp_path)
    entry = worked.store.put("a", array(1), 1 << 21)
    entry.spill()
    (own,) = tmp_path.iterdir()
    assert own.stat().st_mode & 0o777 == 0o700 and not list(own.iterdir())
    entry.remove()
    worked.close()
    del worked, entry
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_arguments_are_checked(tmp_path):
    with pytest.raises(TypeError, match="pairs"):
        _native.Store(pack, unpack, ["a"])
    with pytest.raises(_native.SpillwayError, match="nowhere"):
        _native.Store(pack, unpack, [("/nowhere/at/all", 0)])
    store = _native.Store(pack, unpack, [(tmp_path, 0)])
    with pytest.raises((OverflowError, ValueError)):
        store.put("a", 1, -1)
    assert store.evict(1) == -1
    store.close()
    assert store.work(-1) == (CLOSED, None, None)
