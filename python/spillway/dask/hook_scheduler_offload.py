"""Keeps every connection that a scheduler makes from offloading.

Dask says so of a scheduler's listener and of its pool of connections, but not of those
that it makes one by one, as it does to restart nannies: they get it with their
arguments.
"""

from typing import Any

from spillway.dask import manifest, switches

NAME = "scheduler_offload"
OFF_WITH = (switches.ALL, switches.TRANSPORT, switches.OFFLOAD)

ARGUMENT, NEVER = "spillway_offload", "never"


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(scheduler: Any) -> None:
    """Add the word to what the scheduler connects with; only our comms read it."""
    scheduler.connection_args.setdefault(ARGUMENT, NEVER)


def remove(scheduler: Any) -> None:
    """Take it out again."""
    if scheduler.connection_args.get(ARGUMENT) == NEVER:
        del scheduler.connection_args[ARGUMENT]
