"""When a worker that is short of memory looks for garbage.

Dask collects, in full, each time that what it spilled has not brought the process below
its target: it cannot tell whether that is gone. A collection stops the process for some
100 ms, for the objects of the modules alone. Here what left memory is known to be gone,
but for what somebody still has, and so it pays only if the process has grown by more
than its values.
"""

import gc
from collections.abc import Callable


class GarbageWatch:
    """Collects when there can be much to be found."""

    def __init__(
        self,
        beyond_values: Callable[[], int],
        allowance: int,
        collect: Callable[[], object],
    ) -> None:
        """
        Parameters
        ----------
        beyond_values
            How many bytes the process has beyond those of its values, now.
        allowance
            By so many bytes that may grow: modules are imported, tasks run.
        collect
            A full collection, unless it has been too costly of late.
        """
        self._beyond_values, self._collect = beyond_values, collect
        self._allowance = allowance
        self._least = beyond_values()

    def look(self) -> None:
        """Collect, if it has grown by more since it was least, or since the last time
        that this was done."""
        now = self._beyond_values()
        self._least = min(self._least, now)
        if now - self._least <= self._allowance:
            return
        before = _collections()
        self._collect()
        if _collections() > before:
            self._least = self._beyond_values()  # what is left is no garbage


def _collections() -> int:
    return gc.get_stats()[2]["collections"]
