"""Has the shuffles of a worker keep less in memory while its process has too much.

Too much is more than Dask's target. From `spill` on Dask has values leave, down to the
target; so rows leave before values do. A row that leaves memory is written once in its
life, while a value that left for it is written as well, and soon read again.
"""

import logging
import weakref
from typing import Any

from spillway import _native

logger = logging.getLogger("spillway")

LOOK_EVERY_S = 0.1
"""As often as Dask's memory monitor does."""

LEAST_BYTES = 16 << 20
"""So much shuffles keep: below, writes are small, and give nothing worth having."""

_watches: weakref.WeakKeyDictionary[Any, "Watch"] = weakref.WeakKeyDictionary()


def watch(worker: Any, run: Any) -> None:
    """Have a run of a worker, that may write its rows, obey until `forget`."""
    manager = worker.memory_manager
    share = manager.memory_target_fraction or manager.memory_spill_fraction
    if share and manager.memory_limit:
        if worker not in _watches:
            aim = int(manager.memory_limit * share)
            _watches[worker] = Watch(worker.monitor, aim)
        _watches[worker].add(run)


def forget(worker: Any, run: Any) -> None:
    """It is over."""
    if worker in _watches:
        _watches[worker].remove(run)


class Watch:
    """Looks at the process of one worker while it has runs. Thread: its loop's."""

    def __init__(self, monitor: Any, aim_bytes: int) -> None:
        from tornado.ioloop import PeriodicCallback

        self._monitor, self._aim = monitor, aim_bytes
        self._runs: set[Any] = set()
        self._timer = PeriodicCallback(self.look, LOOK_EVERY_S * 1000)

    def add(self, run: Any) -> None:
        """Look for this run too."""
        if not self._runs:
            self._timer.start()
        self._runs.add(run)

    def remove(self, run: Any) -> None:
        """And no longer."""
        self._runs.discard(run)
        if not self._runs:
            self._timer.stop()

    async def look(self) -> None:
        """Have the largest run write what the process has too much, or all keep what
        they may again. While it writes nobody looks."""
        excess = self._monitor.get_process_memory() - self._aim
        if excess <= 0:
            for run in self._runs:
                run.limit_memory(None)
            return
        shuffled = _native.figures()["budget"]["shuffled"]
        if shuffled <= LEAST_BYTES:
            return
        limit = max(LEAST_BYTES, shuffled - excess)
        for run in self._runs:
            run.limit_memory(limit)
        largest = max(self._runs, key=lambda run: run.held_bytes)
        try:
            await largest.make_room()
        except OSError as error:
            if largest in self._runs:  # or it was closed meanwhile
                self.remove(largest)
                largest.limit_memory(None)
                logger.warning("%s keeps its rows in memory: %s", largest, error)
