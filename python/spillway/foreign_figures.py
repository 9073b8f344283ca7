"""A preload of clients: as one closes, ask a cluster whose processes leave no figures.

That is a cluster which this run did not start (with "is_foreign"; its figures count
from its start), or one of our own in which Spillway is off. Once the script has closed
its client nobody can ask them, so the answers are left beside the other files; for a
process that does not answer only its address and the "problem".
"""

import asyncio
import os
import re
from typing import Any

from spillway import process_stats
from spillway.stats import stats

TIMEOUT_S = 2
"""Dask gives a client that the script left open 3 seconds to close."""


async def dask_teardown(client: Any) -> None:
    """Leave the figures of the client's scheduler and workers, unless they do it."""
    directory = process_stats.directory()
    if directory is None or client.scheduler is None:
        return
    address = client.scheduler.address
    try:
        async with asyncio.timeout(TIMEOUT_S):
            identity = await client.scheduler.identity()
            if _leaves_its_own(identity["address"]):
                return
            scheduler, workers = await _ask(client)
    except (OSError, TimeoutError) as error:
        scheduler, workers = error, {}
    is_foreign = not (isinstance(scheduler, dict) and scheduler["pid"] == os.getpid())
    if is_foreign:
        _leave("scheduler", address, scheduler, is_foreign=True)
    else:
        process_stats.write("scheduler", address)
    for address, answer in workers.items():
        _leave("worker", address, answer, is_foreign=is_foreign)


def _leaves_its_own(scheduler: str) -> bool:
    return any(
        scheduler in process["addresses"].get("scheduler", ())
        for process in process_stats.collect(process_stats.directory())
    )


async def _ask(client: Any) -> tuple[Any, dict[str, Any]]:
    """The figures of the scheduler and, by address, of the workers. In the place of
    figures may be the exception that there was instead."""
    try:
        scheduler = await client.run_on_scheduler(stats)
    except Exception as error:  # whatever it raises over there to look for `stats`
        scheduler = error
    return scheduler, await client.run(stats, on_error="return")


def _leave(role: str, address: str, answer: Any, *, is_foreign: bool) -> None:
    if isinstance(answer, BaseException):
        answer = {"problem": f"{type(answer).__name__}: {answer}"}
    process_stats.leave(
        process_stats.directory(),
        "asked-" + re.sub(r"\W", "-", address),
        {
            **answer,
            "addresses": {role: [address]},
            "started": [],
            "is_last": False,
            "is_foreign": is_foreign,
        },
    )
