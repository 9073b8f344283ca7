"""Has a worker give back what malloc keeps of freed memory, when it is idle or short.

The other half of hook_malloc: under its settings freed memory stays in the process, for
the next task. Dask reads the resident size to decide whether a worker spills, pauses or
is killed, and while it spills to see whether that was enough, so free memory must not
be in that figure when it is about to act on it.

Idle means that no task runs and that nothing has happened to any for IDLE_S. The memory
goes in a thread then. Short means that the figure is above the least share at which
Dask acts: there it goes before the figure is read, on the loop, which cannot go on
without it, and at most for SHORT_SHARE of the time.

A worker with less than LEAST_LIMIT_BYTES of memory keeps nothing. From where Dask
begins to spill to where its nanny kills it there are 100 MB in one of 300 MB, which
what is kept of freed values fills, while others arrive, before anybody has looked.
"""

import threading
import time
from typing import Any

from spillway.dask import (
    free_heap,
    malloc_variables,
    manifest,
    process_memory,
    switches,
)

NAME = "idle_memory"
OFF_WITH = (switches.ALL, switches.MALLOC)

IDLE_S = 1.0
LOOK_EVERY_S = 0.5

SHORT_SHARE = 0.1

LEAST_LIMIT_BYTES = 512_000_000

_watched: dict[Any, "IdleMemory"] = {}


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME) or free_heap.why_unavailable()


async def install(worker: Any) -> None:
    """Watch the worker, if its process was started with our settings."""
    settings = malloc_variables.in_environment()
    if settings and 0 < (worker.memory_manager.memory_limit or 0) < LEAST_LIMIT_BYTES:
        free_heap.keep_as_dask_does(settings)
    elif settings:
        _watched[worker] = IdleMemory(worker)
        _watched[worker].start()


def remove(worker: Any) -> None:
    """Watch it no longer."""
    watched = _watched.pop(worker, None)
    if watched is not None:
        watched.stop()


class IdleMemory:
    """Watches one worker. All methods are called in its loop's thread."""

    def __init__(self, worker: Any) -> None:
        from tornado.ioloop import PeriodicCallback

        self._worker = worker
        self._timer = PeriodicCallback(self.look, LOOK_EVERY_S * 1000)
        self._seen: int | None = None
        self._quiet_since = 0.0
        self._given_back: int | None = None
        self._not_before = 0.0

    def start(self) -> None:
        """Look every half second, and stand before what Dask reads of memory use."""
        self._timer.start()
        process_memory.give_back_before_reading(self._worker, self.give_back)

    def stop(self) -> None:
        """Leave both."""
        self._timer.stop()
        process_memory.leave(self._worker, self.give_back)

    def look(self) -> None:
        """Give memory back when the worker has become idle since the last time."""
        state, now = self._worker.state, time.monotonic()
        seen = state.transition_counter
        if seen != self._seen or state.all_running_tasks:
            self._seen, self._quiet_since = seen, now
        elif seen != self._given_back and now - self._quiet_since >= IDLE_S:
            self._given_back = seen
            # A thread of its own: this is rare, and can take as long as much is free.
            name = "spillway-idle-memory"
            threading.Thread(target=free_heap.give_back, name=name, daemon=True).start()

    def give_back(self) -> None:
        """Give back what only malloc holds, unless it was done just now."""
        start = time.monotonic()
        if start < self._not_before:
            return
        free_heap.give_back()
        end = time.monotonic()
        self._not_before = end + (end - start) / SHORT_SHARE
