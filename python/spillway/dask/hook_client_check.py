"""Has a client say which workers are without Spillway.

A cluster that somebody else started, or whose script gives preloads of its own in a
process that we are not in, works, but stock. Nothing fails, so somebody must say it.
"""

import asyncio
import inspect
import logging
from typing import Any

from spillway.dask import hook_worker_info, manifest, switches
from spillway.dask.preload_list import PRELOAD

logger = logging.getLogger("spillway")

NAME = "client_check"
OFF_WITH = (switches.ALL, switches.TRANSPORT)

_LOOK_AGAIN_SECONDS = 2
"""Dask refreshes what the client knows of its cluster this often."""

_SHOWN = 5
"""How many addresses a warning names."""

_OF_A_WORKER = "Client-worker-"
"""How the id begins that Dask gives to a worker's own client: the script's client warns
for the whole cluster, and one line from each worker would bury it."""

_watchers: dict[Any, asyncio.Task] = {}
"""Clients that have not warned yet; the tasks look for workers that come later."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(client: Any) -> None:
    """Look at the workers that are there, and go on looking until one must be named."""
    if client.id.startswith(_OF_A_WORKER):
        return
    seen = await _look(client)
    if seen is not None:
        _watchers[client] = asyncio.create_task(_watch(client, seen))


def remove(client: Any) -> None:
    """Look no more. From any thread: disable() is not called on the client's."""
    watcher = _watchers.pop(client, None)
    if watcher is not None:
        client.loop.add_callback(watcher.cancel)


async def _watch(client: Any, seen: int | None) -> None:
    while seen is not None and client.status in ("connecting", "running"):
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        if _workers_known(client) != seen:
            seen = await _look(client)
    _watchers.pop(client, None)


def _workers_known(client: Any) -> int:
    """How many workers Dask last told this client of; asks nobody."""
    known = client.scheduler_info()
    return known.get("n_workers", len(known.get("workers", ())))


async def _look(client: Any) -> int | None:
    """How many workers there are; None once the warning is out."""
    try:
        identity = await client.scheduler.identity(**_all_workers())
    except OSError as error:  # the client reconnects, or is closing
        logger.debug("Spillway could not ask the scheduler for its workers: %s", error)
        return -1
    without = _without_spillway(identity["workers"])
    if not without:
        return len(identity["workers"])
    logger.warning("%s", _warning(without))
    return None


def _all_workers() -> dict[str, int]:
    from distributed.scheduler import Scheduler

    takes_number = "n_workers" in inspect.signature(Scheduler.identity).parameters
    return {"n_workers": -1} if takes_number else {}


def _without_spillway(workers: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    """The workers without Spillway, with the reason that they give, if they give one.
    Those that were told so by SPILLWAY_DISABLE are as somebody wanted them."""
    without: dict[str, str | None] = {}
    for address, worker in workers.items():
        said = worker.get(hook_worker_info.KEY)
        if said is None:
            if not address.startswith("spillway://"):
                without[address] = None
            continue
        reason = said["off"].get("transport")
        if reason is not None and not reason.startswith(switches.VARIABLE):
            without[address] = reason
    return without


def _warning(without: dict[str, str | None]) -> str:
    named = [
        address if reason is None else f"{address} ({reason})"
        for address, reason in sorted(without.items())[:_SHOWN]
    ]
    more = len(without) - len(named)
    if more:
        named.append(f"and {more} more")
    return (
        f"{len(without)} of the cluster's workers run without Spillway, so what they "
        f"send and receive is moved by stock Dask: {', '.join(named)}. Start them with "
        f"`dask worker ... --preload {PRELOAD} --preload-nanny {PRELOAD}` (and the "
        f"scheduler with `dask scheduler --preload {PRELOAD}`), or add {PRELOAD} to "
        f"the preload= that your script gives them."
    )
