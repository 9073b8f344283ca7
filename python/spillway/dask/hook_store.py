"""Puts the store in the place of a worker's SpillBuffer.

Whole or not at all: everything is made first, and then put in place at once. A worker
that spills nothing has a dict, and one may have been given a mapping of its user's;
both stay.
"""

import asyncio
import contextlib
import math
import weakref
from collections.abc import Callable
from typing import Any

from spillway.dask import manifest, switches

NAME = "store"
OFF_WITH = (switches.ALL, switches.STORE)

SMALL_KEY = "spillway.store.small"

IN_FLIGHT_PARTS = 16
"""Of what a worker may have in memory this part is written at once: it is there until
it is on disk, and what is waiting to be has no other effect."""

CODECS = ("lz4", "snappy", "zlib", "zstd")
"""What values may be compressed by. Dask has these, and what is registered with it."""

LOOKS = 64
"""So often is looked at the process's memory while what it may have comes in."""

READ_AHEAD_SHARE = 0.1
"""Of what a worker may have in memory so much may be read before it is needed."""

HELD_FROM_BYTES = 1 << 20
"""From here on what is scattered may go to disk, and so waits to be taken."""

GARBAGE_SHARE = 0.15
"""Of what a worker may have in memory so much may be more than its values before it is
taken for garbage."""

IN_USE = "spilled_in_use_bytes"
"""What a worker tells its scheduler of it at each heartbeat, as its user's metrics."""

_installed: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""By worker: what ends its store."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(worker: Any) -> None:
    """Give a worker, that has no data yet, our store for Dask's."""
    from distributed.spill import SpillBuffer

    manager = worker.memory_manager
    if type(manager.data) is not SpillBuffer or manager.data:
        return
    from spillway.dask import lost_values, packed, store_get_data
    from spillway.dask.listener import SpillwayListener
    from spillway.dask.store_execute import TaskRunner

    store = _make(worker, asyncio.get_running_loop())
    try:
        runner = TaskRunner(worker, store, _memory_room(worker))
        handlers = {
            "gather": packed.around(worker.handlers["gather"], store),
            lost_values.LOOK: lost_values.handler_for(worker, store),
        }
        get_data = store_get_data.handler_for(worker, store)
        if get_data is not None:
            handlers["get_data"] = get_data
    except BaseException:
        store.close()
        raise
    # From here on nothing can fail.
    _installed[worker] = weakref.finalize(worker, _end, store)
    for listener in worker.listeners:
        if isinstance(listener, SpillwayListener):
            listener.hold_from(HELD_FROM_BYTES)
            packed.listen_by(listener, store)
    manager.data = worker.state.data = store
    worker.metrics.setdefault(IN_USE, lambda worker: worker.data.spilled_in_use[1])
    worker.execute, worker.gather_dep = runner.execute, runner.gather_dep
    worker.handlers.update(handlers)


def remove(worker: Any) -> None:
    """End the store of a worker that closes. One that goes on keeps it, since its data
    is there, until it closes or is gone."""
    from distributed.core import Status

    if worker.status not in (Status.closing, Status.closed, Status.failed):
        return
    end = _installed.pop(worker, None)
    if end is not None:
        end()


def _end(store: Any) -> None:
    from spillway.dask import packed

    packed.leave(store)
    store.close()


def _make(worker: Any, loop: asyncio.AbstractEventLoop) -> Any:
    from distributed.protocol.compression import get_compression_settings

    from spillway.dask import lost_values, worker_store
    from spillway.dask.garbage import GarbageWatch
    from spillway.dask.size_setting import configured_bytes
    from spillway.dask.spill_directories import spill_directories

    manager, reference = worker.memory_manager, weakref.ref(worker)
    aim = _aim_bytes(manager)
    limit = 0 if manager.max_spill is False else max(1, int(manager.max_spill))

    def excess() -> int:
        worker = reference()
        if worker is None:
            return 0
        memory = worker.monitor.get_process_memory()
        # As Dask does between two evictions: they take longer than its monitor waits.
        manager._maybe_pause_or_unpause(worker, memory)
        return memory - aim

    def memory() -> int:
        worker = reference()
        return worker.monitor.get_process_memory() if worker is not None else 0

    def on_metric(label: str, value: float, unit: str) -> None:
        worker = reference()
        if worker is not None:
            worker.digest_metric(("memory-monitor", label, unit), value)

    def on_lost(key: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lost_values.report_lost, reference, key)

    codec = get_compression_settings("distributed.worker.memory.spill-compression")
    garbage = GarbageWatch(
        memory,
        int(manager.memory_limit * GARBAGE_SHARE),
        manager._throttled_gc.collect,
    )
    return worker_store.WorkerStore(
        spill_directories(worker, limit),
        target=_target_bytes(manager),
        in_flight=min(256 << 20, max(1, aim // IN_FLIGHT_PARTS)),
        small=configured_bytes(SMALL_KEY) or 0,
        read_ahead=int(manager.memory_limit * READ_AHEAD_SHARE),
        codec=codec if codec in CODECS else "",
        excess=excess,
        high=_spill_bytes(manager) - aim if manager.memory_spill_fraction else None,
        look_every=manager.memory_limit // LOOKS,
        collect=garbage.look,
        call_soon=loop.call_soon_threadsafe,
        on_metric=on_metric,
        on_lost=on_lost,
    )


def _target_bytes(manager: Any) -> int:
    """The weight in memory from which on values leave, as Dask reckons it; 0: none."""
    if not manager.memory_target_fraction:
        return 0
    return max(1, int(manager.memory_limit * manager.memory_target_fraction))


def _aim_bytes(manager: Any) -> int:
    """The process memory down to which Dask's monitor spills."""
    share = manager.memory_target_fraction or manager.memory_spill_fraction
    return int(manager.memory_limit * share)


def _spill_bytes(manager: Any) -> int:
    """The process memory above which Dask's monitor spills."""
    return int(manager.memory_limit * manager.memory_spill_fraction)


def _memory_room(worker: Any) -> Callable[[], float]:
    """How many bytes the process may still take before its monitor spills, or stops
    tasks; without end where it does neither."""
    manager, reference = worker.memory_manager, weakref.ref(worker)
    shares = (manager.memory_spill_fraction, manager.memory_pause_fraction)
    least = min((share for share in shares if share is not False), default=math.inf)

    def room() -> float:
        worker = reference()
        if worker is None:
            return 0
        memory = worker.monitor.get_process_memory()
        return manager.memory_limit * least - memory

    return room
