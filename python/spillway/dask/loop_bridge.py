"""The threads that move large bodies for an event loop, and the way back to it.

A connection tells whether one of its directions is with a thread. From then on its
stream is expected here, and hears of it when the thread is done: one descriptor wakes
the loop for all connections, however many are done by then.

A loop without listeners and open streams soon gives up its bridge, and what others have
for the loop goes with that: a process that has closed its comms has no threads and
descriptors of ours. The next stream makes a new one.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

import dask

from spillway import _native
from spillway.dask.pool_trimmer import outlive

THREADS_KEY = "spillway.comm.threads"
MOST_THREADS = 64  # that the library takes, SPW_REACTOR_THREADS_MAX

IDLE_S = 1.0
"""So long a bridge stays that nobody uses: clients connect in bursts."""

# Weak on both sides: a bridge knows streams, and they know the loop, which would thus
# be kept for ever when it is closed in the middle of a transfer. A bridge is kept by
# its loop, which watches its descriptor until nobody uses it or the loop is closed, and
# by streams that are not closed. Without a lock, which a forked child could find taken:
# only a loop's own thread asks for its bridge.
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

    __slots__ = (
        "__weakref__",
        "_at_release",
        "_away",
        "_is_leaving",
        "_users",
        "given",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not at the interpreter's end, which needs no memory back.
        weakref.finalize(self, outlive, weakref.ref(loop)).atexit = False
        self._away: dict[_native.Connection, Callable[[], None]] = {}
        self._users: set[int] = set()
        self._is_leaving = False
        self._at_release: list[Callable[[asyncio.AbstractEventLoop], None]] = []
        self.given: dict[str, _native.Completions] = {}
        """What each connection of the loop is given, if anything."""
        threads = configured_threads()
        if threads is not None:
            completions = _native.Completions(threads)
            self.given["completions"] = completions
            loop.add_reader(completions.fileno(), self._take_back, completions)

    def expect(
        self, connection: _native.Connection, on_completion: Callable[[], None]
    ) -> None:
        """A thread has a direction of the connection; say when it is done with one."""
        self._away[connection] = on_completion

    def forget(self, connection: _native.Connection) -> None:
        """No thread has anything of it any more."""
        self._away.pop(connection, None)

    def join(self, user: object) -> None:
        """A stream or listener uses what it was given, until it leaves."""
        self._users.add(id(user))

    def leave(self, user: object) -> None:
        """It uses it no more. Any thread: but only the loop's own lets go of the bridge
        because of that; else it stays until the next who leaves, or the loop's end."""
        self._users.discard(id(user))
        if self._users or self._is_leaving:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self.given and _known(loop) is self:
            self._is_leaving = True
            loop.call_later(IDLE_S, self._release_if_idle, loop)

    def at_release(self, call: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """Have it called, with the loop, when the loop gives up the bridge."""
        self._at_release.append(call)

    def _release_if_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_leaving = False
        if self._users:
            return
        for call in self._at_release:
            call(loop)
        loop.remove_reader(self.given["completions"].fileno())
        del _bridges[loop]

    def _take_back(self, completions: _native.Completions) -> None:
        while (connection := completions.next()) is not None:
            on_completion = self._away.get(connection)
            if on_completion is not None:
                on_completion()


def _known(loop: asyncio.AbstractEventLoop) -> LoopBridge | None:
    known = _bridges.get(loop)
    return known() if known is not None else None


def bridge_of(loop: asyncio.AbstractEventLoop) -> LoopBridge:
    """The one bridge of a loop.

    Raises
    ------
    ValueError
        As `configured_threads`.
    spillway._native.SpillwayError
        When there is no descriptor or memory for it.
    """
    bridge = _known(loop)
    if bridge is None:
        bridge = LoopBridge(loop)
        _bridges[loop] = weakref.ref(bridge)
    return bridge
