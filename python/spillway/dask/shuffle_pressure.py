"""Has the shuffles of a worker keep less in memory while its process has too much.

Too much is more than Dask's target. From `spill` on Dask has values leave, down to the
target; so rows leave before values do. A row that leaves memory is written once in its
life, while a value that left for it is written as well, and soon read again.

Where the disk is full nothing can leave. A worker that is paused then would stay so: no
task runs there by which anything went, or that could be told. So a shuffle ends, which
gives its memory back and fails its tasks.
"""

import logging
from time import monotonic
from typing import Any

from spillway import _native

logger = logging.getLogger("spillway")

LOOK_EVERY_S = 0.1
"""As often as Dask's memory monitor does."""

TRY_AGAIN_S = 1.0
"""A disk that was full is asked again after so long."""

LEAST_BYTES = 16 << 20
"""So much shuffles keep: below, writes are small, and give nothing worth having."""

_watches: dict[Any, "Watch"] = {}


def watch(worker: Any, run: Any) -> None:
    """Have a run of a worker, that may write its rows, obey until `forget`."""
    manager = worker.memory_manager
    share = manager.memory_target_fraction or manager.memory_spill_fraction
    if share and manager.memory_limit:
        if worker not in _watches:
            _watches[worker] = Watch(worker, int(manager.memory_limit * share))
        _watches[worker].add(run)


def forget(worker: Any, run: Any) -> None:
    """It is over."""
    if worker in _watches and not _watches[worker].remove(run):
        del _watches[worker]


class Watch:
    """Looks at the process of one worker while it has runs. Thread: its loop's."""

    def __init__(self, worker: Any, aim_bytes: int) -> None:
        from tornado.ioloop import PeriodicCallback

        self._worker, self._aim = worker, aim_bytes
        self._runs: set[Any] = set()
        self._stuck: set[Any] = set()
        """Those of them that could not write."""
        self._not_before = 0.0
        self._timer = PeriodicCallback(self.look, LOOK_EVERY_S * 1000)

    def add(self, run: Any) -> None:
        """Look for this run too."""
        self._runs.add(run)
        self._timer.start()

    def remove(self, run: Any) -> bool:
        """And no longer. Whether there are others."""
        self._runs.discard(run)
        self._stuck.discard(run)
        if not self._runs:
            self._timer.stop()
        return bool(self._runs)

    async def look(self) -> None:
        """Have the largest run write what the process has too much, or all keep what
        they may again. While it writes nobody looks."""
        excess = self._worker.monitor.get_process_memory() - self._aim
        if excess <= 0:
            self._limit(None)
            return
        shuffled = _native.figures()["budget"]["shuffled"]
        if shuffled <= LEAST_BYTES or monotonic() < self._not_before:
            return
        self._limit(max(LEAST_BYTES, shuffled - excess))
        largest = max(self._runs, key=lambda run: run.held_bytes)
        try:
            await largest.make_room()
        except OSError as error:
            if largest in self._runs:  # or it was closed meanwhile
                await self._cannot_write(largest, error)
        else:
            self._stuck.discard(largest)

    def _limit(self, nbytes: int | None) -> None:
        for run in self._runs:
            run.limit_memory(nbytes)

    async def _cannot_write(self, run: Any, error: OSError) -> None:
        from distributed.core import Status

        if run in self._stuck and self._worker.status is Status.paused:
            logger.error("%s ends, since its worker is paused: %s", run, error)
            await run.give_up(error)
            return
        if run not in self._stuck:
            logger.warning("%s keeps its rows in memory: %s", run, error)
        self._stuck.add(run)
        self._not_before = monotonic() + TRY_AGAIN_S
        self._limit(None)
