"""A preload of clients: as one closes, ask a cluster that this run did not start.

The processes of such a cluster leave nothing in our directory, and once the script has
closed its client nobody can ask them. We leave what they answer, which counts from
their start, with "is_foreign"; for one that does not answer only its address and
"problem".
"""

import asyncio
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
            if _is_ours(identity["address"]):
                return
            answers = await _ask(client)
    except (OSError, TimeoutError) as error:
        answers = [("scheduler", address, error)]
    for role, address, answer in answers:
        failed = isinstance(answer, BaseException)
        figures = (
            {"problem": f"{type(answer).__name__}: {answer}"} if failed else answer
        )
        process_stats.leave(
            directory,
            "foreign-" + re.sub(r"\W", "-", address),
            {**figures, "addresses": {role: [address]}, "is_foreign": True},
        )


def _is_ours(scheduler: str) -> bool:
    """Whether a process of this run has the scheduler, and leaves its own figures."""
    return any(
        scheduler in process["addresses"].get("scheduler", ())
        for process in process_stats.collect(process_stats.directory())
    )


async def _ask(client: Any) -> list[tuple[str, str, Any]]:
    """Role, address and figures of each process, or the exception instead of them."""
    try:
        answer = await client.run_on_scheduler(stats)
    except Exception as error:  # whatever it raises over there to look for `stats`
        answer = error
    workers = await client.run(stats, on_error="return")
    return [
        ("scheduler", client.scheduler.address, answer),
        *(("worker", address, answer) for address, answer in workers.items()),
    ]
