"""Stands around a worker's `execute`: no task has the loop wait for a disk.

Before Dask's runs, what the task needs and is not at hand is read back and unpickled in
threads, once for all tasks that ask, and stays in memory until the task has ended.
A task that was cancelled meanwhile does not begin.
After it, a value that is larger than the target is written, and who makes more than can
be written waits.
"""

import asyncio
import contextlib
import logging
import math
import time
import weakref
from collections.abc import Callable
from typing import Any

from distributed.metrics import time as wall_time
from distributed.spill import PickleError
from distributed.worker_state_machine import (
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    RescheduleEvent,
)

from spillway import _native
from spillway.dask import lost_values, packed, store_metrics, store_packer
from spillway.dask.checksums import Damaged
from spillway.dask.store_read_ahead import ReadAhead
from spillway.dask.store_readers import Readers
from spillway.dask.stored_form import NOTHING
from spillway.dask.undecoded import Undecoded

logger = logging.getLogger("spillway")

SHOWN_S = 0.005
"""Dask shows in its task stream what takes longer to be read."""


class TaskRunner:
    """What a worker's `execute` is, with a store."""

    def __init__(
        self,
        worker: Any,
        store: Any,
        memory_room: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`memory_room`: as `ReadAhead` has it."""
        self._original, self._gather = worker.execute, worker.gather_dep
        self._worker = weakref.ref(worker)
        self._store = store
        self._readers = Readers()
        self._read_ahead = ReadAhead(worker, store, memory_room)

    async def execute(self, key: Any, *, stimulus_id: str) -> Any:
        """As Worker.execute: whatever happens becomes an event."""
        with contextlib.ExitStack() as pins:
            try:
                event = await self._bring_dependencies(key, pins)
                self._read_ahead.look()
                if event is None:
                    event = await self._original(key, stimulus_id=stimulus_id)
                pins.close()
                if type(event) is ExecuteSuccessEvent:
                    event = await self._put_away(event)
                await self._store.wait_for_room()
                return event
            except Exception as error:
                logger.error("Spillway could not run task %r", key, exc_info=True)
                return self._failure(key, error)
            finally:
                # Dask takes the value in the loop's next round.
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, self._store.forget_prepared, key)

    async def gather_dep(
        self, worker: str, to_gather: Any, *args: Any, **kw: Any
    ) -> Any:
        """As Worker.gather_dep. What a task waits for comes to memory, and others leave
        for it; what nobody does, to where there is room. It counts as being received
        for as long as more comes than can leave."""
        tasks = self._worker().state.tasks
        is_waited_for = any(tasks[key].waiters for key in to_gather if key in tasks)
        with packed.wanted_by(self._store, in_memory=is_waited_for) as came:
            event = None
            try:
                event = await self._gather(worker, to_gather, *args, **kw)
            finally:
                packed.let_go(came, getattr(event, "data", {}).values())
        await self._store.wait_for_room()
        return event

    # Before

    async def _bring_dependencies(self, key: Any, pins: contextlib.ExitStack) -> Any:
        """Pin what the task needs. An event if it cannot run, or nobody wants it to
        any more; None if it can, or if Dask will find out by itself that it cannot."""
        task = self._worker().state.tasks.get(key)
        if task is None:
            return None
        pinned: set[Any] = set()
        # Again, since what was waited for may be another one now.
        while absent := self._pin_what_is_at_hand(task, pinned, pins):
            event = await self._read(task, absent, pinned, pins)
            if event is not None:
                return event
            if task.state == "cancelled":
                return self._reschedule(key)
        return self._why_missing(task)

    def _pin_what_is_at_hand(
        self, task: Any, pinned: set[Any], pins: contextlib.ExitStack
    ) -> list[tuple[Any, Any]]:
        """What of that which the task needs is not at hand: keys, and their entries."""
        absent = []
        for dependency in task.dependencies:
            entry = self._store.entry(dependency.key)
            if entry is None or entry in pinned:
                continue
            if entry.try_acquire() is not None:
                pins.callback(entry.unpin)
                pinned.add(entry)
            else:
                absent.append((dependency.key, entry))
        return absent

    async def _read(
        self,
        task: Any,
        absent: list[tuple[Any, Any]],
        pinned: set[Any],
        pins: contextlib.ExitStack,
    ) -> Any:
        """Read back what is absent, and pin it. An event if one of them cannot be."""
        start = wall_time()
        await self._store.wait_for_room()
        readings = []
        for dependency, entry in absent:
            reading = self._readers.read(entry)
            pins.callback(reading.leave)
            readings.append((dependency, entry, reading))
        await asyncio.wait([reading.future for _, _, reading in readings])
        stop = wall_time()
        if stop - start > SHOWN_S:
            task.startstops.append(
                {"action": "disk-read", "start": start, "stop": stop}
            )
        event = None
        for dependency, entry, reading in readings:
            error = reading.future.exception()
            if error is None:
                pinned.add(entry)
                store_metrics.digest(reading.take_metrics())
                self._show_type(dependency)
                self._store.just_read.add(dependency)
                pins.callback(self._store.just_read.discard, dependency)
                self._store.came(entry.weight)
            elif event is None and self._store.entry(dependency) is entry:
                event = await self._why_unread(task.key, dependency, error)
        return event

    def _show_type(self, key: Any) -> None:
        """Of a value that came packed nobody knew what it is, who was not told."""
        task, entry = self._worker().state.tasks.get(key), self._store.entry(key)
        value = entry.try_acquire() if entry is not None else None
        if value is None:
            return
        entry.unpin()
        if task is not None:
            task.type = type(None if value is NOTHING else value)

    async def _why_unread(self, key: Any, dependency: Any, error: BaseException) -> Any:
        """An event for a task that needs what could not be read."""
        is_lost = self._store.is_lost(dependency)
        if is_lost or isinstance(error, Damaged):
            if is_lost:
                store_packer.logger.error(
                    "Lost %r, which could not be read back from disk; unless it was "
                    "scattered it is computed again (%s)",
                    dependency,
                    error,
                )
                lost_values.report_lost(self._worker, dependency)
            # Where it came from it may be damaged too, and would come so again.
            worker = self._worker()
            # All who waited for one reading have the same error.
            damaged = {dependency: error}
            if await lost_values.ask_again(worker, worker.scheduler, damaged):
                return self._reschedule(key)
        return self._failure(
            key, Undecoded(error).as_error(dependency, "the disk of its worker")
        )

    def _why_missing(self, task: Any) -> Any:
        """A task whose dependency was lost is begun again. Where one was released the
        task was cancelled, and Dask knows how to take that."""
        if task.state != "executing":
            return None
        known = self._worker().state.actors
        for dependency in task.dependencies:
            if dependency.key not in self._store and dependency.key not in known:
                return self._reschedule(task.key)
        return None

    # After

    async def _put_away(self, event: Any) -> Any:
        """Write a value that is larger than the target, so that it does not drive all
        others from memory. One that cannot be pickled fails its task, as in Dask."""
        state, target = self._worker().state, self._store.target
        self._store.know_size(event.key, event.value, event.nbytes)
        if not target or event.nbytes <= target or event.key in state.actors:
            return event
        task = state.tasks[event.key]
        start = time.perf_counter()
        try:
            entry, metrics = await self._readers.run(
                self._store.put_spilled, event.key, event.value, event.nbytes
            )
        except _native.SpillwayError as error:
            store_packer.log_failure(repr(event.key), error)
            return event
        except Exception as error:
            problem = PickleError(event.key)
            problem.__cause__ = error
            return self._failure(event.key, problem)
        self._store.prepare(event.key, event.value, entry)
        store_metrics.digest(metrics)
        self._store.count_as_told(metrics)
        took = time.perf_counter() - start
        if took > SHOWN_S:
            stop = wall_time()
            task.startstops.append(
                {"action": "disk-write", "start": stop - took, "stop": stop}
            )
        return event

    # Events

    def _failure(self, key: Any, error: BaseException) -> Any:
        task = self._worker().state.tasks[key]
        return ExecuteFailureEvent.from_exception(
            error,
            key=key,
            run_id=task.run_id,
            stimulus_id=f"spillway-execute-failed-{wall_time()}",
        )

    def _reschedule(self, key: Any) -> Any:
        return RescheduleEvent(
            key=key, stimulus_id=f"spillway-reschedule-{wall_time()}"
        )
