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
        memory: Callable[[], int],
        allowance: int,
        collect: Callable[[], object],
    ) -> None:
        """
        Parameters
        ----------
        memory
            How many bytes the process has now; no values are among them yet.
        allowance
            By so many bytes what it has beyond them may grow: modules are imported,
            tasks run.
        collect
            A full collection, unless it has been too costly of late.
        """
        self._memory, self._collect = memory, collect
        self._allowance = allowance
        self._least = memory()

    def look(self, values: int) -> None:
        """Collect, if what the process has beyond so many bytes of values has grown by
        more since it was least, or since the last time that this was done."""
        now = self._memory() - values
        self._least = min(self._least, now)
        if now - self._least <= self._allowance:
            return
        before = _collections()
        self._collect()
        if _collections() > before:
            self._least = self._memory() - values  # what is left is no garbage


def _collections() -> int:
    return gc.get_stats()[2]["collections"]
