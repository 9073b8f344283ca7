"""Threads that read values back, each value once for all who ask at a time."""

import asyncio
from collections.abc import Callable
from typing import Any

from spillway.dask.offload_threads import OffloadThreads
from spillway.dask.store_metrics import Metric
from spillway.dask.worker_store import acquire

_threads = OffloadThreads(4)
"""Those of all workers of this process."""


class Reading:
    """One value being read back. It stays in memory until all who asked have left."""

    def __init__(self, entry: Any, future: asyncio.Future) -> None:
        self.future = future
        """Done when it is read, with an exception if it could not be."""
        self._entry = entry
        self._askers = 0
        self._has_pin = False
        self._metrics: list[Metric] = []
        future.add_done_callback(self._on_read)

    def join(self) -> None:
        """One more asks for it."""
        self._askers += 1

    def leave(self) -> None:
        """One less needs it."""
        self._askers -= 1
        if self._askers == 0:
            self._let_go()

    def take_metrics(self) -> list[Metric]:
        """What Dask is to meter, for the one who takes it first."""
        metrics, self._metrics = self._metrics, []
        return metrics

    def _on_read(self, future: asyncio.Future) -> None:
        if not future.cancelled() and future.exception() is None:
            self._metrics, self._has_pin = future.result(), True
        if self._askers == 0:
            self._let_go()

    def _let_go(self) -> None:
        if self._has_pin:
            self._has_pin = False
            self._entry.unpin()


class Readers:
    """All methods are for the loop's thread."""

    def __init__(self) -> None:
        self._under_way: dict[Any, Reading] = {}

    def read(self, entry: Any) -> Reading:
        """Read an entry back, or ask for a share in what is under way. The caller
        leaves it once."""
        reading = self._under_way.get(entry)
        if reading is None:
            reading = Reading(entry, self.run(_acquire, entry))
            self._under_way[entry] = reading
            reading.future.add_done_callback(lambda _: self._under_way.pop(entry))
        reading.join()
        return reading

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future:
        """Run something in one of the threads."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(_threads, function, *args)


def _acquire(entry: Any) -> list[Metric]:
    # The value itself is the entry's, and not kept by the future.
    _, metrics = acquire(entry)
    return metrics
