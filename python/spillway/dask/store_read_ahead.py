"""What the next tasks need is read from disk while others run.

By the store's threads, and only as bytes: unpickling takes Python's lock, which the
tasks want, and most values are little more than their bytes. What was read ahead has a
limit of its own, and is the first to go (`spw_entry_read_ahead`).
"""

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from spillway.dask.worker_store import LIVE, PACKED

MOST_SORTED = 256
"""Dask sorts all tasks that are ready to tell more than the first of them. Of a longer
queue the first has to do."""

MOST_DEPENDENCIES = 64
"""Of each task so many are looked at."""


class ReadAhead:
    """All methods are for the loop's thread."""

    def __init__(
        self, worker: Any, store: Any, memory_room: Callable[[], float]
    ) -> None:
        """`memory_room` answers how many bytes the process may still take before Dask
        would do something about it."""
        self._worker = weakref.ref(worker)
        self._store, self._memory_room = store, memory_room

    def look(self) -> None:
        """Begin with what is not in memory. A task has just begun, or is about to: its
        threads are busy now."""
        worker = self._worker()
        if not worker.state.ready or not self._store.reads_ahead():
            return
        room = None
        for entry in self._wanted(worker.state):
            if room is None:
                room = self._memory_room()
            room -= entry.weight
            if room < 0 or not entry.read_ahead():
                return

    def _wanted(self, state: Any) -> Iterable[Any]:
        ready = state.ready
        count = state.nthreads if len(ready) <= MOST_SORTED else 1
        for task in ready.peekn(count):
            for dependency in itertools.islice(task.dependencies, MOST_DEPENDENCIES):
                entry = self._store.entry(dependency.key)
                if entry is not None and not entry.forms & (LIVE | PACKED):
                    yield entry
