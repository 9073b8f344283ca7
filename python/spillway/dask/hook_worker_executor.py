"""Leaves offloading to Dask where a worker runs its tasks in Dask's thread for that.

`Worker(executor="offload")` promises that a task runs in the thread in which its values
were deserialised, for libraries that bind objects to a thread. That is Dask's one
thread, not ours. All comms that its process makes from then on are concerned.
"""

from typing import Any

from spillway.dask import hook_offload, manifest, switches

NAME = "worker_executor"
OFF_WITH = (switches.ALL, switches.TRANSPORT, switches.OFFLOAD)


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(worker: Any) -> None:
    """Look where the worker runs its tasks."""
    from distributed import utils

    if worker.executors["default"] is utils._offload_executor:
        hook_offload.leave_to_dask(worker)


def remove(worker: Any) -> None:
    """The worker has gone."""
    hook_offload.take_back(worker)
