"""Has what cannot be read any more made again.

A worker whose disk lost a value says that it has it no more, and Dask has it made
where that is possible. But what is on disk is sent without being looked at, so the
first to see that it is damaged may be who uses it, elsewhere. He has all who hold it
look at what they have, by way of the scheduler, and who finds it damaged says so.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from spillway import _native
from spillway.dask import checksums
from spillway.dask.decode import header_of, read
from spillway.dask.offload_threads import OffloadThreads
from spillway.dask.undecoded import Undecoded

logger = logging.getLogger("spillway")

LOOK = "spillway_look_at"
"""The operation of a worker."""

LOST = 8
"""A form of an entry."""

UNREADABLE = ("IO", "CORRUPT")
"""What an error is by which a value is lost."""

Key = Any

_threads = OffloadThreads(1)
"""Of all workers of this process. Values are looked at one after the other."""


def report_lost(reference: Callable[[], Any], key: Key) -> None:
    """Have a worker forget a value, if it is lost, and its scheduler have it made
    again. `reference`: answers the worker, or None. Thread: the loop's."""
    worker = reference()
    if worker is not None and worker.data.is_lost(key):
        _forget(worker, key)


async def found_by_holders(scheduler: Any, keys: Collection[Key]) -> set[Key]:
    """Have all workers that hold some of these values look at what they have stored.

    Parameters
    ----------
    scheduler
        What a client or a worker calls its scheduler by.

    Returns those that one of them found damaged, and has forgotten. A worker that has
    no store, or does not answer, has found nothing; so has a scheduler that is gone.
    """
    message = {"op": LOOK, "keys": list(keys)}
    try:
        who_has = await scheduler.who_has(keys=list(keys))
        holders = sorted({one for holders in who_has.values() for one in holders})
        answers = await scheduler.broadcast(
            msg=message, workers=holders, on_error="ignore"
        )
    except OSError as error:
        logger.error("No worker could be asked whether %s are damaged: %s", keys, error)
        return set()
    return {key for found in answers.values() for key in found or ()}


async def found_damaged(scheduler: Any, failed: Mapping[Key, Undecoded]) -> set[Key]:
    """Of values that could not be decoded those that a holder found damaged, as
    `found_by_holders` does."""
    damaged = [
        key
        for key, value in failed.items()
        if isinstance(value.error, checksums.Damaged)
    ]
    return await found_by_holders(scheduler, damaged) if damaged else set()


def handler_for(worker: Any, store: Any) -> Callable[..., Any]:
    """What a worker's `handlers[LOOK]` is to be."""

    async def look_at(keys: Collection[Key]) -> list[Key]:
        """Those of the keys whose values are damaged, and forgotten from now on."""
        found = []
        for key in keys:
            entry = store.entry(key)
            if entry is None:
                continue
            loop = asyncio.get_running_loop()
            why = await loop.run_in_executor(_threads, _damage, entry)
            # Deleted or made again meanwhile: then that is another one.
            if why is not None and store.entry(key) is entry:
                logger.error("%r is damaged on disk, and is forgotten: %s", key, why)
                _forget(worker, key)
                found.append(key)
        return found

    return look_at


def _damage(entry: Any) -> Exception | None:
    """What is wrong with what is stored of a value."""
    if entry.forms & LOST:
        return RuntimeError("it could not be read before")
    try:
        frames = entry.frames()
        if frames is None:  # an object, and nothing else
            return None
        header = header_of(read(frames[0]))
        known = header.get(checksums.KEY) or [None] * (len(frames) - 1)
        for frame, checksum in zip(frames[1:], known, strict=True):
            checksums.verify({checksums.KEY: (checksum,)}, [read(frame)])
    except _native.SpillwayError as error:
        if error.status in UNREADABLE:
            return error
        if error.status != "CLOSED":  # removed meanwhile
            raise
    except checksums.Damaged as error:
        return error
    return None


def _forget(worker: Any, key: Key) -> None:
    from distributed.metrics import time
    from distributed.worker_state_machine import FreeKeysEvent

    worker.handle_stimulus(
        FreeKeysEvent(keys=[key], stimulus_id=f"spillway-lost-{time()}")
    )
