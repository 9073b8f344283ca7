"""What Dask reads of a worker's memory, without what is only kept for later."""

from collections.abc import Callable
from typing import Any


def least_that_dask_acts_on(manager: Any) -> int:
    """The least resident size in bytes that has Dask do something; 0 for none.
    `manager`: a worker's memory_manager."""
    shares = (
        manager.memory_target_fraction,
        manager.memory_spill_fraction,
        manager.memory_pause_fraction,
    )
    share = min((share for share in shares if share), default=0)
    return int(share * (manager.memory_limit or 0))


def give_back_before_reading(worker: Any, give_back: Callable[[], None]) -> None:
    """Have something called each time that Dask would act on what it reads of a
    worker's memory, until `leave`. Thread: the worker's loop's, as all that follows."""
    reading = _readings.get(worker)
    if reading is None:
        reading = _readings[worker] = _Reading(worker)
    reading.givers.append(give_back)


def leave(worker: Any, give_back: Callable[[], None]) -> None:
    """Call it no longer."""
    reading = _readings.get(worker)
    if reading is not None and give_back in reading.givers:
        reading.givers.remove(give_back)
        if not reading.givers:
            del _readings[worker]
            reading.stop()


class _Reading:
    """Stands before what Dask reads of a worker's memory, if Dask does anything."""

    def __init__(self, worker: Any) -> None:
        self.givers: list[Callable[[], None]] = []
        self._monitor = worker.monitor
        self._act_bytes = least_that_dask_acts_on(worker.memory_manager)
        self._replaced = vars(self._monitor).get("get_process_memory")
        self._measure = self._monitor.get_process_memory
        if self._act_bytes:
            self._monitor.get_process_memory = self.process_memory

    def stop(self) -> None:
        """Leave, unless somebody else now stands before us."""
        own = vars(self._monitor)
        if own.get("get_process_memory") == self.process_memory:
            if self._replaced is None:
                del own["get_process_memory"]
            else:
                own["get_process_memory"] = self._replaced

    def process_memory(self) -> int:
        """What Dask reads instead of the resident size: the same, once what would make
        Dask act without need has been given back."""
        before = self._measure()
        if before <= self._act_bytes:
            return before
        for give_back in self.givers:
            give_back()
        return self._measure()


_readings: dict[Any, _Reading] = {}
