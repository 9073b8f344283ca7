"""A preload that says what Dask runs in a process, and how late its event loop is.

It is copied to a directory that both sides load it from, the side without Spillway
too, so it imports nothing of Spillway's. It leaves files, which probe_files.py reads:

- ``PID.ROLE.N``, for each scheduler, nanny and worker; the text in it is how late the
  loop was at worst so far, in seconds, none for a nanny, whose loop nobody waits for.
- ``PID.seen``, for each worker that registered with a scheduler. Who gives preloads of
  its own to Dask has workers without this one, which are known by that.
"""

import asyncio
import os
import time

DIRECTORY_VARIABLE = "SPILLWAY_COMPARE_PROBE_DIR"
PERIOD_S = 0.02
ROLES = ("scheduler", "nanny", "worker")
SEEN = "seen"
_TASK = "_spillway_loop_probe"
"""On the server: Dask loads this file anew for each, so it keeps nothing itself."""


async def dask_setup(server):
    """Measure until the server closes."""
    role = _role(server)
    path = os.path.join(
        os.environ[DIRECTORY_VARIABLE], f"{os.getpid()}.{role}.{id(server):x}"
    )
    file = open(path, "w", encoding="ascii")
    if role == "nanny":
        file.close()
    else:
        setattr(server, _TASK, asyncio.create_task(_measure(server, role, file)))


async def dask_teardown(server):
    """Measure no more."""
    task = getattr(server, _TASK, None)
    if task is not None:
        task.cancel()


def _role(server):
    names = {kind.__name__.lower() for kind in type(server).__mro__}
    return next(role for role in ROLES if role in names)


async def _measure(server, role, file):
    worst, seen = -1.0, set()
    with file:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(PERIOD_S)
            late = time.perf_counter() - before - PERIOD_S
            if late > worst:
                worst = late
                os.pwrite(file.fileno(), f"{worst:.9f}".encode(), 0)
            if role == "scheduler" and not server.workers.keys() <= seen:
                seen.update(server.workers)
                _leave_seen({state.pid for state in server.workers.values()})


def _leave_seen(pids):
    for pid in pids:
        path = os.path.join(os.environ[DIRECTORY_VARIABLE], f"{pid}.{SEEN}")
        open(path, "w").close()
