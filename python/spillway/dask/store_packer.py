"""The thread in which a store packs values, and lets go of those that have left.

A store in C has threads for disks, none of which touches Python. What is Python's is
done here, away from the event loop, and what happened is told from here.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from spillway import _native, store_figures

logger = logging.getLogger("distributed.spill")
"""Dask's, where people look for these lines."""

_CLOSED, _LEFT, _FAILED = 1, 2, 3
"""Kinds of events, as spw_store_event_kind has them."""


def log_failure(key: str, error: BaseException) -> None:
    """Say that a value could not leave memory, and stays there. `key` is as repr() has
    it. The words are Dask's as far as they say the same."""
    status = error.status if isinstance(error, _native.SpillwayError) else None
    if status == "LIMIT_EXCEEDED":
        logger.warning(
            "Spill file on disk reached capacity; keeping data in memory (%s)", error
        )
    elif status is not None:
        logger.error(
            "Spill to disk failed; keeping data in memory (%s, %s)", key, error
        )
    else:
        logger.error("Failed to pickle %s", key, exc_info=error)


class StorePacker:
    """Works for a store until that is closed."""

    def __init__(
        self, native: Any, on_left: Callable[[], None], owner: object = None
    ) -> None:
        """`on_left` is called in the thread whenever values have left memory."""
        self._thread = threading.Thread(
            target=_work,
            args=([native], on_left, owner),
            name="spillway-store",
            daemon=True,
        )
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end, after the store was closed. Whether it has come."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()


def _work(holder: list[Any], on_left: Callable[[], None], owner: object) -> None:
    # By a list, so that the last reference is ours, and the store's files and threads
    # end here, and not on somebody's loop.
    native = holder.pop()
    kind = None
    while kind != _CLOSED:
        kind, key, error = native.work(-1)
        if kind == _LEFT:
            on_left()
        elif kind == _FAILED:
            log_failure(key, error)
            del error
            on_left()
    store_figures.closed(owner, native.figures())
