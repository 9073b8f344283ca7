"""Tells the library's pool how much memory a worker may use.

What the pool caches counts as the worker's memory, by which Dask decides whether it
spills, pauses, or is killed. No worker's limit is the system's that the pool obeys
otherwise.
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
    from spillway.dask import pool_trimmer

    limit_bytes = worker.memory_manager.memory_limit
    if limit_bytes:
        pool_trimmer.limit_memory(worker, int(limit_bytes))


def remove(worker: Any) -> None:
    """Have the pool forget it."""
    from spillway.dask import pool_trimmer

    pool_trimmer.forget_limit(worker)
