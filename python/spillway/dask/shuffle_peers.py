"""Whether all workers of a shuffle have our engine.

They say so when they register (hook_worker_info), and the scheduler shows it, whatever
the scheduler is. What is asked about is who gets rows, which the run has fixed, so that
all workers come to the same answer.
"""

from collections.abc import Iterable
from typing import Any

VERSION = 1
"""Of the messages between workers of one shuffle, and of the shards in them."""

WORKER_KEY, VERSION_KEY = "spillway", "shuffle_version"
"""Under which a worker says so (hook_worker_info)."""


async def without_engine(scheduler: Any, addresses: Iterable[str]) -> list[str]:
    """The workers of these that have another engine than ours, or none.

    One that the scheduler does not know any more is not among them: with it goes the
    run, whatever becomes of it here."""
    try:
        identity = await scheduler.identity(n_workers=-1)
    except TypeError:  # older schedulers show all, and take no such argument
        identity = await scheduler.identity()
    workers = identity["workers"]
    return sorted(
        address
        for address in set(addresses)
        if address in workers and _version_of(workers[address]) != VERSION
    )


def _version_of(worker: dict[str, Any]) -> int | None:
    said = worker.get(WORKER_KEY)
    return said.get(VERSION_KEY) if isinstance(said, dict) else None
