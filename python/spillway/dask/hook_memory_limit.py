"""Tells the library's pool how much memory a worker may use.

What the pool caches counts as the worker's memory, by which Dask decides whether it
spills, pauses, or is killed: it goes before Dask reads how much that is. No worker's
limit is the system's that the pool obeys otherwise.
"""

from typing import Any

from spillway.dask import manifest, switches

NAME = "memory_limit"
OFF_WITH = (switches.ALL, switches.TRANSPORT)


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(worker: Any) -> None:
    """Have the pool obey the worker's limit, if it has one."""
    from spillway.dask import pool_trimmer, process_memory

    manager = worker.memory_manager
    if manager.memory_limit:
        full_bytes = process_memory.least_that_dask_acts_on(manager)
        pool_trimmer.limit_memory(worker, int(manager.memory_limit), full_bytes)
        process_memory.give_back_before_reading(worker, _give_back)


def remove(worker: Any) -> None:
    """Have the pool forget it."""
    from spillway.dask import pool_trimmer, process_memory

    pool_trimmer.forget_limit(worker)
    process_memory.leave(worker, _give_back)


def _give_back() -> None:
    from spillway import _native

    _native.trim(0, 0)
