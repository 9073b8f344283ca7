"""Has a scheduler forget scattered data that its worker lost, with what needs it.

A worker says of a value that its disk lost that it has it no more. Dask then has it
made again, as it does with a task's, and fails at that in the middle: nobody knows how
scattered data are made. It drops the worker for it. When a worker dies Dask tells the
two apart, and so does this.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

from spillway.dask import manifest, switches

NAME = "lost_data"
OFF_WITH = (switches.ALL, switches.STORE)

MESSAGE = "release-worker-data"
"""By this a worker says that it has a value no more."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(scheduler: Any) -> None:
    """Stand before Dask's handler of that message, if it is that."""
    original = scheduler.stream_handlers.get(MESSAGE)
    if original == scheduler.release_worker_data:
        scheduler.stream_handlers[MESSAGE] = MethodType(_release, scheduler)


def remove(scheduler: Any) -> None:
    """Put Dask's back."""
    if _is_ours(scheduler.stream_handlers.get(MESSAGE)):
        scheduler.stream_handlers[MESSAGE] = scheduler.release_worker_data


def _is_ours(handler: Callable[..., Any] | None) -> bool:
    return getattr(handler, "__func__", None) is _release


def _release(scheduler: Any, key: Any, worker: str, stimulus_id: str) -> None:
    """As Scheduler.release_worker_data, but for the last copy of scattered data."""
    task, holder = scheduler.tasks.get(key), scheduler.workers.get(worker)
    if task is None or task.run_spec or set(task.who_has or ()) != {holder}:
        scheduler.release_worker_data(key, worker, stimulus_id)
        return
    scheduler.remove_replica(task, holder)
    scheduler.transitions({key: "forgotten"}, stimulus_id)
    # What needed it was running there, or was about to.
    scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=stimulus_id)
