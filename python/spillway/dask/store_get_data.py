"""Answers who asks a worker for values, from its store.

A value that is not an object in memory is sent as it is stored. Otherwise this is
Dask's `Worker.get_data`: the same answers, limits, counters, log and metrics. What
waits for a disk does so in threads.
"""

import asyncio
import contextvars
import logging
from collections.abc import Callable, Collection
from types import MethodType
from typing import Any

from distributed.comm.addressing import get_address_host
from distributed.comm.core import Comm
from distributed.comm.inproc import InProc
from distributed.core import Status, context_meter_to_server_digest
from distributed.metrics import context_meter, time
from distributed.protocol import to_serialize

from spillway import _native
from spillway.dask import lost_values, value_sizes
from spillway.dask.checksums import Damaged
from spillway.dask.offload_threads import OffloadThreads
from spillway.dask.stored_frames import Preparation, Recipient
from spillway.dask.worker_store import LIVE, LOST

logger = logging.getLogger("spillway")

SHORTEST_S = 0.001
"""What takes less than that does in Dask's log."""

_threads = OffloadThreads(4)
"""Those of all workers of this process. Not those that decode: a disk may be slow."""

Key = Any


def handler_for(worker: Any, store: Any) -> Callable[..., Any] | None:
    """What a worker's `handlers["get_data"]` is to be.

    Parameters
    ----------
    worker
        A Worker whose data is the store.
    store
        A mapping with `entry(key)`, which answers a `StoreEntry` or None (the value of
        which is something else than None), and an attribute `on_lost`: None, or what is
        told of a key whose value cannot be read any more.

    Returns None for a worker that has a way of its own to answer: that stays.
    """
    from distributed.worker import Worker

    if type(worker).get_data is not Worker.get_data:
        return None
    if worker.handlers.get("get_data") != worker.get_data:
        return None

    @context_meter_to_server_digest("get-data")
    async def get_data(
        self: Any,
        comm: Comm,
        keys: Collection[Key],
        who: str | None = None,
        serializers: list[str] | None = None,
    ) -> Any:
        return await _Request(self, store, comm, keys, who, serializers).answer()

    return MethodType(get_data, worker)


class _Request:
    """One question for values."""

    def __init__(
        self,
        worker: Any,
        store: Any,
        comm: Comm,
        keys: Collection[Key],
        who: str | None,
        serializers: list[str] | None,
    ) -> None:
        self._worker, self._store = worker, store
        self._comm, self._keys, self._who = comm, keys, who
        self._serializers = serializers
        # Both ends of such a comm have the same object: it is not to be made twice.
        self._is_shared = isinstance(comm, InProc)
        self._to = Recipient.of(comm, keeps=who is not None)
        self._kept: list[Preparation] = []

    async def answer(self) -> Any:
        worker = self._worker
        if self._is_too_much():
            return {"status": "busy"}
        worker.transfer_outgoing_count += 1
        worker.transfer_outgoing_count_total += 1
        try:
            await self._send(await self._collect())
        finally:
            worker.transfer_outgoing_count -= 1
        return Status.dont_reply

    def _is_too_much(self) -> bool:
        worker = self._worker
        limit = worker.transfer_outgoing_count_limit
        if limit is False:
            return False
        here, there = worker.address, self._comm.peer_address
        if get_address_host(here) == get_address_host(there):
            limit *= 2
        is_paused = worker.status == Status.paused
        if is_paused and not self._costs_no_memory():
            limit = 1
        if worker.transfer_outgoing_count < limit:
            return False
        logger.debug(
            "Worker %s is too busy to send data to %s: %d transfers of %d%s",
            here,
            self._who,
            worker.transfer_outgoing_count,
            limit,
            ", for it is paused" if is_paused else "",
        )
        return True

    def _costs_no_memory(self) -> bool:
        """Whether all that is asked for goes as it is stored."""
        return not self._is_shared and all(
            frames is not None and not self._to.costs_memory(frames)
            for frames in map(self._frames_of, self._keys)
        )

    def _frames_of(self, key: Key) -> Any:
        """What is stored of a value, None if it is an object in memory, or is not
        here, or is lost."""
        entry = self._store.entry(key)
        if entry is None or self._is_shared:
            return None
        # A copy that it has on disk is for a worker that is short of memory.
        if entry.forms & LIVE and self._worker.status != Status.paused:
            return None
        try:
            return entry.frames()
        except _native.SpillwayError:
            if not entry.forms & LOST:
                raise
            return None

    async def _collect(self) -> dict[Key, Any]:
        """What there is of the keys, each as the reply has it."""
        found: dict[Key, Any] = {}
        slow: dict[Key, Any] = {}
        for key in self._keys:
            entry = self._store.entry(key)
            frames = self._frames_of(key)
            if entry is None:
                self._find_actor(key, found)
            elif frames is not None:
                preparation = Preparation(frames, self._to, self._serializers)
                self._kept.append(preparation)
                value = preparation.run() if preparation.is_quick else None
                if value is None:
                    slow[key] = entry, preparation
                found[key] = value
            else:
                found[key] = self._object_at_hand(key, entry)
                if found[key] is None:
                    slow[key] = entry, None
        if slow:
            await self._get_slow(slow, found)
        return {key: value for key, value in found.items() if value is not None}

    def _find_actor(self, key: Key, found: dict[Key, Any]) -> None:
        worker = self._worker
        if key in worker.state.actors:
            from distributed.actor import Actor

            type_ = type(worker.state.actors[key])
            found[key] = to_serialize(Actor(type_, worker.address, key, worker=worker))

    def _object_at_hand(self, key: Key, entry: Any) -> Any:
        """The value as an object that is in memory, None if it is not."""
        if entry.try_acquire() is None:
            return None
        # What stands for None is the store's own affair, so it is asked for the value.
        value = to_serialize(self._store[key])
        value_sizes.know(value, entry.weight)
        entry.unpin()
        return value

    async def _get_slow(self, slow: dict[Key, Any], found: dict[Key, Any]) -> None:
        entries = [entry for entry, _ in slow.values()]
        work = _in_thread(_prepare_all, list(slow.values()))
        try:
            outcomes = await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(lambda done: _let_go_of_done(entries, done))
            raise
        for (key, (entry, preparation)), outcome in zip(
            slow.items(), outcomes, strict=True
        ):
            if preparation is not None:
                _meter(preparation)
            if outcome is _ACQUIRED:
                # Deleted or made again meanwhile: then as if it had not been here.
                if self._store.entry(key) is entry:
                    found[key] = to_serialize(self._store[key])
                    value_sizes.know(found[key], entry.weight)
                entry.unpin()
            elif isinstance(outcome, BaseException):
                await self._tell_lost(key, outcome)
            elif outcome is not _GONE:
                found[key] = outcome

    async def _tell_lost(self, key: Key, why: BaseException) -> None:
        logger.error("%r cannot be sent to %s, for it is lost: %s", key, self._who, why)
        if isinstance(why, Damaged):
            # As it came: who sent it has it so too.
            worker = self._worker
            await lost_values.ask_again(worker, worker.scheduler, {key: why})
        elif self._store.on_lost is not None:
            self._store.on_lost(key)

    async def _send(self, data: dict[Key, Any]) -> None:
        worker, comm = self._worker, self._comm
        tasks = worker.state.tasks
        sizes = {key: (tasks[key].nbytes or 0) if key in tasks else 0 for key in data}
        total = sum(sizes.values())
        worker.transfer_outgoing_bytes += total
        worker.transfer_outgoing_bytes_total += total
        try:
            with context_meter.meter("network", func=time) as taken:
                reply = {"status": "OK", "data": data}
                compressed = await comm.write(reply, serializers=self._serializers)
                response = await comm.read(deserializers=self._serializers)
            assert response == "OK", response
        except OSError:
            logger.exception(
                "failed during get data with %s -> %s", worker.address, self._who
            )
            comm.abort()
            raise
        finally:
            worker.transfer_outgoing_bytes -= total
        duration = max(SHORTEST_S, taken.stop - taken.start)
        worker.transfer_outgoing_log.append(
            {
                "start": taken.start + worker.scheduler_delay,
                "stop": taken.stop + worker.scheduler_delay,
                "middle": (taken.start + taken.stop) / 2,
                "duration": duration,
                "who": self._who,
                "keys": sizes,
                "total": total,
                "compressed": compressed,
                "bandwidth": total / duration,
            }
        )


_ACQUIRED = object()
"""Says that an entry has its value as an object, and is pinned."""


_GONE = object()
"""Says that an entry went before it was unpacked, or its store was closed."""


def _in_thread(function: Callable[..., Any], *args: Any) -> asyncio.Future:
    run = contextvars.copy_context().run
    return asyncio.get_running_loop().run_in_executor(_threads, run, function, *args)


def _prepare_all(slow: list[tuple[Any, Preparation | None]]) -> list[Any]:
    outcomes: list[Any] = []
    try:
        for entry, preparation in slow:
            outcomes.append(_prepare(entry, preparation))
    except BaseException:
        _let_go([entry for entry, _ in slow], outcomes)
        raise
    return outcomes


def _let_go(entries: list[Any], outcomes: list[Any]) -> None:
    for entry, outcome in zip(entries, outcomes, strict=False):
        if outcome is _ACQUIRED:
            entry.unpin()


def _let_go_of_done(entries: list[Any], done: asyncio.Future) -> None:
    """Nobody waits for it any more."""
    if not done.cancelled() and done.exception() is None:
        _let_go(entries, done.result())


def _prepare(entry: Any, preparation: Preparation | None) -> Any:
    """What is sent, `_ACQUIRED`, `_GONE`, or why the value is lost."""
    if preparation is not None:
        try:
            value = preparation.run()
            if value is not None:
                return value
        except _native.SpillwayError as error:
            if error.status not in lost_values.UNREADABLE:
                raise
            # It says so from now on, if it cannot be read this time either.
        except Damaged as error:
            return error
    try:
        entry.acquire()
    except _native.SpillwayError as error:
        if entry.forms & LOST:
            return error
        if error.status == "CLOSED":
            return _GONE
        raise
    return _ACQUIRED


def _meter(preparation: Preparation) -> None:
    """As Dask meters what a worker reads back."""
    if preparation.read_bytes:
        context_meter.digest_metric("disk-read", preparation.seconds, "seconds")
        context_meter.digest_metric("disk-read", 1, "count")
        context_meter.digest_metric("disk-read", preparation.read_bytes, "bytes")
