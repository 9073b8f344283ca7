"""A worker's data: what Dask takes for its SpillBuffer.

A dict of the store's entries, each of which has its value as an object, as bytes, or on
disk. Values leave memory in a thread (`store_packer.py`); nothing here waits for a disk
but to read a value for somebody who cannot be made to wait otherwise. For tasks that is
done before (`store_execute.py`).
"""

import asyncio
import functools
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from distributed.sizeof import safe_sizeof, sizeof
from distributed.spill import SpilledSize

from spillway import _native, store_figures
from spillway.dask import store_metrics, stored_form
from spillway.dask.packed import Packed
from spillway.dask.store_packer import StorePacker
from spillway.dask.store_tiers import Tier
from spillway.dask.stored_form import NOTHING

Key = Any

LONGEST_KEY = 1000
"""Of a key so much is shown in messages."""

LOOK_AGAIN_S = 0.1
"""Who waits for room looks so often, should nobody call."""

CLOSING_S = 1.0
"""A worker that closes waits so long for what is being written."""

LIVE, PACKED, ON_DISK, LOST = 1, 2, 4, 8
"""Forms of an entry."""


class WorkerStore(MutableMapping):
    """Keys and values, in the order in which they came. All methods are for the loop's
    thread, but those that only look, and `spill`."""

    def __init__(
        self,
        directories: list[tuple[str, int]],
        *,
        target: int = 0,
        in_flight: int = 0,
        small: int = 0,
        read_ahead: int = 0,
        codec: str = "",
        excess: Callable[[], int] = lambda: 0,
        high: int | None = None,
        look_every: int = 1,
        collect: Callable[[int], Any] = lambda values: None,
        call_soon: Callable[[Callable[[], None]], Any] | None = None,
        on_metric: Callable[..., Any] | None = None,
        on_lost: Callable[[Key], Any] | None = None,
    ) -> None:
        """
        Parameters
        ----------
        directories
            Where values go: a path, and how many bytes may be there (0: any number).
        target
            The weight in memory above which values leave; 0 for never.
        in_flight, small, read_ahead, codec
            As `_native.Store` has them.
        excess
            By how many bytes the process has more than it should, now.
        high
            The excess above which values leave, without waiting for a monitor to ask;
            None for never.
        look_every
            After so many bytes that came into memory the excess is looked at.
        collect
            Is told what the values take that are in memory, as Dask weighs objects,
            when some have left and the process has too much all the same: to free what
            only the garbage collector finds.
        call_soon
            Has the loop call something, from any thread; without, the thread does.
        on_metric
            Is told label, value and unit of what it took to write.
        on_lost
            Is told the key of a value that cannot be read back any more.
        """
        self.target = target
        self.just_read: set[Key] = set()
        """What was read back, and metered, for who comes for it next."""
        self.on_lost = on_lost
        self._native = _native.Store(
            stored_form.pack,
            stored_form.unpack,
            directories,
            target=target,
            in_flight=in_flight,
            small=small,
            read_ahead=read_ahead,
            codec=codec,
        )
        self._entries: dict[Key, Any] = {}
        self._prepared: dict[Key, tuple[Any, Any]] = {}
        self._weighed: dict[Key, tuple[Any, int]] = {}
        self._excess, self._collect = excess, collect
        self._high, self._look_every, self._came = high, look_every, 0
        self._wish = 0  # how much a monitor wants to leave that has not begun to
        self._call_soon, self._on_metric = call_soon, on_metric
        self._since = store_metrics.Since()
        self._waiting: set[asyncio.Future] = set()
        self._memory_reads = [0, 0]
        counted_as = object()
        store_figures.opened(
            counted_as, functools.partial(_figures, weakref.ref(self), self._native)
        )
        self._packer = StorePacker(self._native, self._on_left_in_thread, counted_as)

    # As a mapping

    def __setitem__(self, key: Key, value: Any) -> None:
        """Never waits, and never raises for a value that cannot be written."""
        entry = self._take_prepared(key, value)
        if entry is None:
            entry = self._put(key, value)
        before = self._entries.pop(key, None)
        self._entries[key] = entry
        if before is not None:
            before.remove()
        if entry.forms & (LIVE | PACKED):
            self.came(entry.weight)

    def __getitem__(self, key: Key) -> Any:
        """Waits for a disk where the value is only there.

        Raises
        ------
        SpillwayError
            When what is on disk cannot be read, or is not what was written.
        Exception
            Of the value's code, when it cannot be unpickled.
        """
        entry = self._entries[key]
        value = entry.try_acquire()
        if value is not None:
            entry.unpin()
            if key in self.just_read:
                self.just_read.discard(key)
            else:
                self._count_memory_read(entry.weight)
            return None if value is NOTHING else value
        try:
            value, metrics = acquire(entry)
        except _native.SpillwayError:
            if entry.forms & LOST and self.on_lost is not None:
                self.on_lost(key)
            raise
        entry.unpin()
        store_metrics.digest(metrics)
        self.came(entry.weight)
        return value

    def __delitem__(self, key: Key) -> None:
        """Without reading it."""
        self._entries.pop(key).remove()

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        figures = self._native.figures()
        return (
            f"<{type(self).__name__}: {len(self)} keys, {len(self.slow)} of them on "
            f"disk, {figures['disk_bytes']} bytes in files>"
        )

    def pop(self, key: Key, default: Any = None) -> Any:
        """Never does, as Dask's does not: it would read a value back to discard it."""
        raise NotImplementedError(
            "Are you calling .pop(key, None) as a way to discard a key if it exists?"
            "It may cause data to be read back from disk! Please use `del` instead."
        )

    def clear(self) -> None:
        """Remove all, without reading any."""
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.remove()

    # What a worker reads of it

    @property
    def fast(self) -> Mapping[Key, Any]:
        """What is in memory, and also what is just leaving it."""
        return Tier(self, self._entries, is_fast=True)

    memory = fast

    @property
    def slow(self) -> Mapping[Key, Any]:
        """What is on disk only."""
        return Tier(self, self._entries, is_fast=False)

    disk = slow

    @property
    def spilled_total(self) -> SpilledSize:
        """Of what is on disk only: its weight in memory, and its bytes there."""
        tier = self._native.figures()["on_disk"]
        return SpilledSize(tier["weight"], tier["bytes"])

    @property
    def spilled_in_use(self) -> tuple[int, int]:
        """Of what has left for disk: how many values somebody still has, and what they
        weigh. That is in memory all the same, and counts for nothing here. Values that
        cannot be weakly referenced are not seen. Thread: any."""
        figures = self._native.figures()
        if not figures["on_disk"]["count"] + figures["clean"]["count"]:
            return 0, 0  # and no need to look at each of them
        weights = [
            entry.weight
            for entry in list(self._entries.values())
            if entry.is_spilled_in_use
        ]
        return len(weights), sum(weights)

    @property
    def cumulative_metrics(self) -> dict[tuple[str, str], float]:
        """What it did since it was made, by Dask's labels and units. Activities that
        have not happened are left out."""
        figures = self._native.figures()
        count, size = self._memory_reads
        metrics: list[store_metrics.Metric] = []
        if count:
            metrics += [
                ("memory-read", count, "count"),
                ("memory-read", size, "bytes"),
            ]
        if figures["packs"] or figures["received"]:
            metrics += store_metrics.written(figures)
        if figures["reads"]:
            metrics += store_metrics.read_back(figures)
        return {(label, unit): value for label, value, unit in metrics}

    def figures(self) -> dict[str, Any]:
        """The library's own."""
        return self._native.figures()

    # Leaving memory

    def evict(self) -> int:
        """Begin that the value used longest ago leaves memory, as a memory monitor asks
        for it, and go on by ourselves until what it has too much now has left.

        Returns the weight that has left, or -1: something is leaving, of which the
        process does not show yet how much it is, or nothing can.
        """
        excess = self._excess()
        self._wish = excess
        weight = self._evict(excess)
        return -1 if self._native.figures()["leaving_bytes"] else weight

    def came(self, weight: int) -> None:
        """So much has come into memory. A monitor looks by the clock, every 100 ms, in
        which a small worker can be filled."""
        self._came += weight
        if self._high is None or self._came < self._look_every:
            return
        self._came = 0
        excess = self._excess()
        if excess > self._high:
            self._wish = excess
            self._evict(excess)

    def _evict(self, excess: int) -> int:
        # One at a time: only after it has left does the process show what that gave.
        if self._native.figures()["leaving_bytes"]:
            return -1
        weight = self._native.evict(max(excess, 1))
        if weight > 0:
            self._wish -= weight
        return weight

    def _go_on(self) -> None:
        if self._wish <= 0:
            return
        excess = self._excess()
        if excess > 0:
            self._evict(excess)
            if self._wish <= 0:
                figures = self._native.figures()
                self._collect(figures["live"]["weight"] + figures["packed"]["bytes"])
                # The monitor looks again before more leaves.
        else:
            self._wish = 0

    def is_behind(self) -> bool:
        """Whether who makes new values should wait: more is in memory than should be,
        by weight or as the process shows it, and some of it is leaving."""
        if self._native.is_behind():
            return True
        return self._wish > 0 and self._native.figures()["leaving_bytes"] > 0

    async def wait_for_room(self) -> None:
        """Wait as long as more values come than can leave."""
        while self.is_behind():
            called = asyncio.get_running_loop().create_future()
            self._waiting.add(called)
            try:
                await asyncio.wait((called,), timeout=LOOK_AGAIN_S)
            finally:
                self._waiting.discard(called)

    def _on_left_in_thread(self) -> None:
        if self._call_soon is None:
            self._on_left()
            return
        try:
            self._call_soon(self._on_left)
        except RuntimeError:  # the loop is closed, and nobody is left to hear it
            pass

    def _on_left(self) -> None:
        for called in self._waiting:
            if not called.done():
                called.set_result(None)
        self._tell_metrics()
        self._go_on()

    def count_as_told(self, metrics: list[store_metrics.Metric]) -> None:
        """Somebody else has told of these."""
        self._since.discount(metrics)

    def _tell_metrics(self) -> None:
        new = self._since.take(self._native.figures())
        if self._on_metric is not None:
            for metric in new:
                self._on_metric(*metric)

    # For who knows of the entries

    @property
    def native(self) -> Any:
        """The library's, for who receives values for it."""
        return self._native

    def entry(self, key: Key) -> Any:
        """The entry of a key, None if it has none, or the store was closed without the
        value in memory."""
        entry = self._entries.get(key)
        return None if type(entry) is _Gone else entry

    def reads_ahead(self) -> bool:
        """Whether an entry could be read ahead, as far as the store is concerned."""
        return self._native.reads_ahead()

    def is_lost(self, key: Key) -> bool:
        """Whether its value was on disk, and cannot be read any more."""
        entry = self._entries.get(key)
        return entry is not None and bool(entry.forms & LOST)

    def prepare(self, key: Key, value: Any, entry: Any) -> None:
        """Have `__setitem__` take an entry that `put_spilled` made of this very value,
        if it comes before `forget_prepared`."""
        self._prepared[key] = value, entry

    def know_size(self, key: Key, value: Any, nbytes: int) -> None:
        """Have `__setitem__` not ask this very value how large it is, if it comes
        before `forget_prepared`: a frame of many columns takes long to tell."""
        self._weighed[key] = value, nbytes

    def put_spilled(
        self, key: Key, value: Any, nbytes: int
    ) -> tuple[Any, list[store_metrics.Metric]]:
        """Write a value to disk, and wait for it, while the others stay in memory. Its
        entry, for `prepare`, and what Dask is to meter. Thread: any.

        Raises
        ------
        SpillwayError
            When it could not be written.
        Exception
            What its code raises when it cannot be pickled.
        """
        put = functools.partial(
            self._native.put_spilled, *_as_object(key, value, nbytes)
        )
        return store_metrics.metered(
            "disk-write", "compress", put, stored_form.take_bytes
        )

    def forget_prepared(self, key: Key) -> None:
        """It did not come, or has come."""
        self._weighed.pop(key, None)
        _, entry = self._prepared.pop(key, (None, None))
        if entry is not None:
            entry.remove()

    def close(self) -> None:
        """Have the files and the thread go. What is in memory stays there, for whoever
        still looks, and so do all keys; of the others nothing is left."""
        packer, native = self._packer, self._native
        if packer is None:
            return
        self._packer, self._wish = None, 0
        self._native = _native.Store(stored_form.pack, stored_form.unpack, [])
        for key in [*self._prepared, *self._weighed]:
            self.forget_prepared(key)
        for key, entry in self._entries.items():
            value = entry.try_acquire()
            if value is None:
                self._entries[key] = _Gone(entry.weight)
            else:
                self._entries[key] = self._native.put("", value, entry.weight)
                entry.unpin()
            entry.remove()
        native.close()
        del native
        packer.join(CLOSING_S)

    def _put(self, key: Key, value: Any) -> Any:
        if isinstance(value, Packed):
            return self._native.put_packed(
                repr(key)[:LONGEST_KEY], value.frames, sizeof(value)
            )
        known, nbytes = self._weighed.get(key, (NOTHING, 0))
        if known is not value:
            nbytes = safe_sizeof(value)
        return self._native.put(*_as_object(key, value, nbytes))

    def _take_prepared(self, key: Key, value: Any) -> Any:
        known, entry = self._prepared.get(key, (None, None))
        if entry is None or known is not value:
            return None
        del self._prepared[key]
        return entry

    def _count_memory_read(self, weight: int) -> None:
        self._memory_reads[0] += 1
        self._memory_reads[1] += weight
        store_metrics.digest(
            [("memory-read", 1, "count"), ("memory-read", weight, "bytes")]
        )


class _Gone:
    """An entry of a store that was closed, whose value was on disk."""

    forms = 0
    is_spilled_in_use = False

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def try_acquire(self) -> None:
        """It is not at hand."""

    def acquire(self) -> Any:
        """Nor anywhere else."""
        raise KeyError("the value was on disk, and its worker has been closed")

    def remove(self) -> None:
        """Nothing is left to be removed."""


def _figures(reference: Callable[[], Any], native: Any) -> dict[str, Any]:
    """What a store adds to `spillway.stats()`, if it is still there."""
    store = reference()
    count, weight = store.spilled_in_use if store is not None else (0, 0)
    in_use = {"spilled_in_use": count, "spilled_in_use_bytes": weight}
    return {**native.figures(), **in_use}


def _as_object(key: Key, value: Any, nbytes: int) -> tuple[str, Any, int]:
    """What the library is given for a key and a value: both, and the weight."""
    weight = max(1, int(nbytes))  # 0 would not count as anything
    return repr(key)[:LONGEST_KEY], NOTHING if value is None else value, weight


def acquire(entry: Any) -> tuple[Any, list[store_metrics.Metric]]:
    """The value of an entry, which stays in memory until its `unpin`, and what Dask is
    to meter. Waits for a disk. Thread: any."""
    is_on_disk = not entry.forms & (LIVE | PACKED)
    value, metrics = store_metrics.metered(
        "disk-read", "decompress", entry.acquire, stored_form.take_bytes
    )
    if not is_on_disk:
        metrics = [metric for metric in metrics if metric[0] != "disk-read"]
    return (None if value is NOTHING else value), metrics
