"""The threads that move large bodies for an event loop, and the way back to it.

A connection tells whether one of its directions is with a thread. From then on its
stream is expected here, and hears of it when the thread is done: one descriptor wakes
the loop for all connections, however many are done by then.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

import dask

from spillway import _native

if TYPE_CHECKING:
    from spillway.dask.stream import Stream

THREADS_KEY = "spillway.comm.threads"
MOST_THREADS = 64  # that the library takes, SPW_REACTOR_THREADS_MAX

# Weak on both sides: a bridge knows streams, and they know the loop, which would thus
# be kept for ever when it is closed in the middle of a transfer. A bridge is kept by
# its loop, which watches its descriptor until it is closed, and by streams that are not
# closed. Without a lock, which a forked child could find taken: only a loop's own
# thread asks for its bridge.
_bridges: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, weakref.ref[LoopBridge]
] = weakref.WeakKeyDictionary()


def configured_threads() -> int | None:
    """How many threads `spillway.comm.threads` asks for: 0, which means by the number
    of cores, for "auto" (the default), and None where 0 turns them off.

    Raises
    ------
    ValueError
        When it is neither "auto" nor such a number.
    """
    value = dask.config.get(THREADS_KEY, "auto")
    if value == "auto":
        return 0
    if type(value) is not int or not 0 <= value <= MOST_THREADS:
        raise ValueError(
            f'{THREADS_KEY} must be "auto" or a number of threads up to '
            f"{MOST_THREADS}, 0 for none, not {value!r}"
        )
    return value or None


class LoopBridge:
    """What one loop has of it. All methods are called in the loop's thread."""

    __slots__ = ("__weakref__", "_away", "given")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._away: dict[_native.Connection, Stream] = {}
        self.given: dict[str, _native.Completions] = {}
        """What each connection of the loop is given, if anything."""
        threads = configured_threads()
        if threads is not None:
            completions = _native.Completions(threads)
            self.given["completions"] = completions
            loop.add_reader(completions.fileno(), self._take_back, completions)

    def expect(self, connection: _native.Connection, stream: Stream) -> None:
        """A thread has a direction of the connection."""
        self._away[connection] = stream

    def forget(self, connection: _native.Connection) -> None:
        """No thread has anything of it any more."""
        self._away.pop(connection, None)

    def _take_back(self, completions: _native.Completions) -> None:
        while (connection := completions.next()) is not None:
            stream = self._away.get(connection)
            if stream is not None:
                stream.on_completion()


def bridge_of(loop: asyncio.AbstractEventLoop) -> LoopBridge:
    """The one bridge of a loop.

    Raises
    ------
    ValueError
        As `configured_threads`.
    spillway._native.SpillwayError
        When there is no descriptor or memory for it.
    """
    known = _bridges.get(loop)
    bridge = known() if known is not None else None
    if bridge is None:
        bridge = LoopBridge(loop)
        _bridges[loop] = weakref.ref(bridge)
    return bridge
