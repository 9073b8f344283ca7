"""Gives memory back that the library has cached and nobody takes.

The library has no timer of its own, so the event loops that have connections lend it
theirs. A loop is not told when a value dies somewhere and its memory comes back to the
cache; so from the arrival of a message on a timer runs, once a second, for as long as
the library holds memory of messages at all, alive or cached. Without, there is none.
For loops that are closed a thread goes on in the same way.
"""

import _thread
import asyncio
import threading
import time
import weakref
from typing import Any

from distributed import system

from spillway import _native
from spillway.dask import in_flight_limit

IDLE_MS = 1000
"""Memory that nobody took for so long is idle, and goes beyond KEPT_SHARE."""

KEPT_SHARE = 0.05
"""So much of the memory limit may stay cached while it is idle."""

LONG_IDLE_MS = 30_000
"""After so long without being taken it goes altogether."""

FULL_SHARE = 0.6
"""A process that uses more of its memory limit caches nothing."""

CACHED_SHARE = 0.125
"""So much of the memory limit may be cached at all. A task that takes memory elsewhere
meets it before anybody has looked, so it must fit between what Dask lets a worker have
and what it is killed for."""

_lock = threading.Lock()
_limits: dict[Any, tuple[int, int]] = {}
"""By owner: the limit, and from where on nothing is cached."""

_trimmers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, "PoolTrimmer"] = (
    weakref.WeakKeyDictionary()
)


def memory_limit() -> int:
    """How much memory this process may use: the least of what its workers may, and
    without any the limit of the system."""
    return min((limit for limit, _ in _limits.values()), default=system.MEMORY_LIMIT)


def limit_memory(owner: Any, limit_bytes: int, full_bytes: int = 0) -> None:
    """Have the pool obey a limit of this process, for as long as the owner says so;
    `full_bytes`, unless it is 0: from there on something is done about its memory,
    which what is cached must not bring about."""
    with _lock:
        full = min(full_bytes or limit_bytes, int(FULL_SHARE * limit_bytes))
        _limits[owner] = limit_bytes, full
        _tell_the_library()


def forget_limit(owner: Any) -> None:
    """Take back what `limit_memory` said for the owner, if anything."""
    with _lock:
        _limits.pop(owner, None)
        _tell_the_library()


def _tell_the_library() -> None:
    limit = memory_limit()
    full = min((full for _, full in _limits.values()), default=int(FULL_SHARE * limit))
    _native.limit_resident(full, int(CACHED_SHARE * limit))
    _native.limit_in_flight(in_flight_limit.limit_in_force(limit))


class PoolTrimmer:
    """The timer of one loop. All methods are called in its thread, while it runs."""

    __slots__ = ("_is_armed",)

    def __init__(self) -> None:
        self._is_armed = False

    def watch(self) -> None:
        """A message has arrived, so there may be something to trim later."""
        if not self._is_armed:
            self._arm(IDLE_MS)

    def _arm(self, after_ms: int) -> None:
        self._is_armed = True
        asyncio.get_running_loop().call_later(after_ms / 1000, self._trim)

    def _trim(self) -> None:
        self._is_armed = False
        due_ms = _trim()
        if due_ms is not None:
            self._arm(due_ms)


def _trim() -> int | None:
    """Returns in how many milliseconds there may be more, None when never."""
    due = (
        _native.trim(int(KEPT_SHARE * memory_limit()), IDLE_MS),
        _native.trim(0, LONG_IDLE_MS),
    )
    return min((ms for ms in due if ms is not None), default=None)


_has_heir = False
"""Whether there is a thread that trims for loops that are closed."""


def outlive(loop: weakref.ref[asyncio.AbstractEventLoop]) -> None:
    """What a loop needed to have connections has gone. When it is closed its timer has
    gone too, but values that it brought may live on: a thread trims from then on.

    May be called by the garbage collector, within anything: so it takes no lock.
    """
    global _has_heir
    closed = loop()
    if (closed is None or closed.is_closed()) and not _has_heir:
        _has_heir = True
        _thread.start_new_thread(_trim_alone, ())


def _trim_alone() -> None:
    global _has_heir
    while True:
        due_ms = _trim()
        if due_ms is None:
            _has_heir = False
            if (due_ms := _trim()) is None:  # or a loop was closed in between
                return
            _has_heir = True
        time.sleep(due_ms / 1000)


def trimmer_of(loop: asyncio.AbstractEventLoop) -> PoolTrimmer:
    """The one trimmer of a loop."""
    with _lock:
        trimmer = _trimmers.get(loop)
        if trimmer is None:
            trimmer = _trimmers[loop] = PoolTrimmer()
            _tell_the_library()
    return trimmer
