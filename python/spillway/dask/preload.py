"""The Dask preload: `dask scheduler --preload spillway.dask.preload`, and likewise for
workers (--preload) and their nannies (--preload-nanny).

Dask imports a preload before a server listens and calls dask_setup() after, so the
import is what turns Spillway on. It never raises: where Spillway cannot work the server
starts all the same, on stock Dask.
"""

import logging
from typing import Any

from distributed import Client, Nanny, Scheduler, Worker

from spillway import in_force, process_stats
from spillway.dask import hook_store
from spillway.dask.enable import enable, enter, leave

logger = logging.getLogger("spillway")

_ROLES = (
    (Scheduler, "scheduler"),
    (Nanny, "nanny"),
    (Worker, "worker"),
    (Client, "client"),
)


async def dask_setup(server: Any) -> None:
    """Install what a single server or client gets, once it is there."""
    role = _role(server)
    in_force.roles.add(role)
    await enter(server, role)
    process_stats.start_writing(server, role)


async def dask_teardown(server: Any) -> None:
    """Leave the server, and its last figures."""
    leave(server)
    hook_store.remove(server)  # disable() leaves it to a worker that goes on
    process_stats.stop_writing(server, _role(server))


def _role(server: Any) -> str:
    for kind, role in _ROLES:
        if isinstance(server, kind):
            return role
    return type(server).__name__.lower()


def _enable_whatever_happens() -> None:
    try:
        enable()
    except Exception:
        logger.warning(
            "Spillway could not be enabled, and Dask is stock in this process",
            exc_info=True,
        )


_enable_whatever_happens()
