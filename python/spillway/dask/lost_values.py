"""Has what cannot be read any more made again.

A worker whose disk lost a value says that it has it no more, and Dask has it made
where that is possible. But what is on disk is sent without being looked at, so the
first to see that it is damaged may be who uses it, elsewhere. He has all who hold it
look at what they have, by way of the scheduler, and who finds it damaged says so.
"""

import asyncio
import logging
import weakref
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

UNREADABLE = ("IO", "CORRUPT")
"""What an error is by which a value is lost."""

Key = Any

LOOK_S = 60
"""So long holders have time to look."""

MOST_TIMES = 20
"""What came damaged so often comes so again: a disk damages all that is written. Where
many have copies it may be one after the other."""

MOST_KEYS = 1000
"""Of so many keys that came damaged it is known how often."""

_threads = OffloadThreads(1)
"""Of all workers of this process. Values are looked at one after the other."""


def report_lost(reference: Callable[[], Any], key: Key) -> None:
    """Have a worker forget a value, if it is lost, and its scheduler have it made
    again. `reference`: answers the worker, or None. Thread: the loop's."""
    worker = reference()
    if worker is not None and worker.data.is_lost(key):
        _forget(worker, key)


async def ask_again(owner: Any, scheduler: Any, damaged: Mapping[Key, Any]) -> set[Key]:
    """Have all workers that hold damaged values look at what they have stored, and
    forget what is damaged.

    Parameters
    ----------
    owner
        The client or worker to which they came.
    scheduler
        What that calls its scheduler by.
    damaged
        By key, what came: the same thing is one damage, however many tasks meet it.

    Returns those that the owner should ask for again: all, but those that came damaged
    too often. A worker that has no store, or does not answer, has looked at nothing.
    """
    times = _times.setdefault(owner, _Times())
    keys = [key for key, arrival in damaged.items() if times.is_less(key, arrival)]
    if keys:
        try:
            await asyncio.wait_for(_have_a_look(scheduler, keys), LOOK_S)
        except Exception as error:  # of the scheduler's: then nobody looks
            logger.error(
                "No worker could be asked whether %s are damaged: %r", keys, error
            )
    return set(keys)


async def ask_again_for(
    owner: Any, scheduler: Any, failed: Mapping[Key, Undecoded]
) -> set[Key]:
    """The same of those values that could not be decoded since they were damaged."""
    damaged = {
        key: value
        for key, value in failed.items()
        if isinstance(value.error, checksums.Damaged)
    }
    return await ask_again(owner, scheduler, damaged) if damaged else set()


async def _have_a_look(scheduler: Any, keys: list[Key]) -> None:
    who_has = await scheduler.who_has(keys=keys)
    holders = sorted({one for holders in who_has.values() for one in holders})
    message = {"op": LOOK, "keys": keys}
    await scheduler.broadcast(msg=message, workers=holders, on_error="ignore")


class _Times:
    """How often each value came damaged."""

    def __init__(self) -> None:
        self._by_key: dict[Key, tuple[int, int]] = {}

    def is_less(self, key: Key, arrival: Any) -> bool:
        """Whether it is not too often yet, with what came now."""
        count, latest = self._by_key.pop(key, (0, 0))
        if latest != id(arrival):
            count += 1
        if len(self._by_key) >= MOST_KEYS:
            del self._by_key[next(iter(self._by_key))]
        self._by_key[key] = count, id(arrival)
        return count <= MOST_TIMES


_times: weakref.WeakKeyDictionary[Any, _Times] = weakref.WeakKeyDictionary()


def handler_for(worker: Any, store: Any) -> Callable[..., Any]:
    """What a worker's `handlers[LOOK]` is to be."""

    async def look_at(keys: Collection[Key]) -> None:
        """Forget those of the keys whose values are damaged."""
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

    return look_at


def _damage(entry: Any) -> Exception | None:
    """What is wrong with what is stored of a value."""
    from spillway.dask.worker_store import LIVE  # a worker has it, and no client

    if entry.forms & LIVE:  # whatever its disk has
        return None
    try:
        frames = entry.frames()
        if frames is None:  # it is an object by now
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
