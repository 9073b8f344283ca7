"""A native connection driven by an asyncio loop: readiness in, wake-ups out."""

from __future__ import annotations

import asyncio

from spillway import _native
from spillway.dask.loop_bridge import LoopBridge, bridge_of
from spillway.dask.pool_trimmer import trimmer_of

READ, WRITE, COMPLETION = 1, 2, 4

Frame = bytes | memoryview | _native.FileRange


class Stream:
    """Whole messages in both directions, for one reader and one writer.

    Parameters
    ----------
    connection
        An open or connecting ``spillway._native.Connection``.
    loop
        The running loop that watches its descriptor. All methods are called in its
        thread.

    Raises
    ------
    spillway._native.SpillwayError
        From every method that moves data, once the connection has ended.
    """

    __slots__ = (
        "_bridge",
        "_connection",
        "_fd",
        "_flusher",
        "_is_flushing",
        "_loop",
        "_may_go_on",
        "_reader",
        "_trimmer",
        "_watched",
        "_writers",
    )

    def __init__(
        self, connection: _native.Connection, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connection = connection
        self._loop = loop
        self._trimmer = trimmer_of(loop)
        self._bridge: LoopBridge | None = bridge_of(loop)  # until it ends
        self._bridge.join(self)
        # Kept, since the connection forgets it when it ends, and the loop must not.
        self._fd = connection.fileno()
        self._watched = 0
        # Whether we took a message and have sent nothing since: the peer may go on.
        self._may_go_on = False
        self._reader: asyncio.Future | None = None
        self._flusher: asyncio.Future | None = None
        self._is_flushing = False
        self._writers: list[asyncio.Future] = []
        self._watch()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    @property
    def has_threads(self) -> bool:
        """Whether threads move what is large, until it ends."""
        return self._bridge is not None and bool(self._bridge.given)

    def local(self) -> tuple[str, int]:
        return self._connection.local()

    def peer(self) -> tuple[str, int]:
        return self._connection.peer()

    def is_open(self) -> bool:
        return self._connection.open

    def receive_values(
        self, store: _native.Store, only_with: str | None = None
    ) -> None:
        """Have a store decide where the values of the next message go."""
        self._connection.receive_values(store, only_with)

    def _watch(self) -> None:
        """Let the loop watch what the connection waits for, and nothing else. Wake who
        waits for room or for an empty queue, and when the connection has ended,
        whoever waits.

        Called after everything that may have changed it. A descriptor is closed only
        when the loop has stopped watching it: where a forked child holds a copy, the
        loop could not stop afterwards, and would spin.
        """
        for writer in self._writers:
            self._wake(writer)
        if self._flusher is not None and not self._connection.queued_bytes():
            self._wake(self._flusher)
        interest = self._connection.interest()
        if not interest and not self._connection.open:
            self._unwatch()
            self._connection.let_go()
            self._wake(self._reader)
            self._wake(self._flusher)
            # Whoever is told of the end need not close it.
            self._leave_bridge()
            return
        changed = interest ^ self._watched
        if not changed:
            return
        self._watched = interest
        if changed & READ:
            if interest & READ:
                self._loop.add_reader(self._fd, self._on_readable)
            else:
                self._loop.remove_reader(self._fd)
        if changed & WRITE:
            if interest & WRITE:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)
        if changed & COMPLETION:
            if interest & COMPLETION:
                self._bridge.expect(self._connection, self._on_completion)
            else:
                self._bridge.forget(self._connection)

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, 0
        if watched & READ:
            self._loop.remove_reader(self._fd)
        if watched & WRITE:
            self._loop.remove_writer(self._fd)
        if watched & COMPLETION:
            self._bridge.forget(self._connection)

    def _wake(self, waiter: asyncio.Future | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _on_readable(self) -> None:
        if self._connection.on_readable():
            reader = self._reader
            if reader is not None and not reader.done() and self._connection.open:
                # It receives in the loop's next turn, after which the descriptor is
                # watched as before: to stop and begin again costs more than the rest.
                reader.set_result(None)
                return
        self._watch()

    def _on_writable(self) -> None:
        try:
            self._connection.on_writable()
        except _native.SpillwayError:
            pass  # the connection has ended: whoever waits meets the same error
        self._watch()

    def _on_completion(self) -> None:
        """A thread is done with a direction of the connection, or was."""
        self._wake(self._reader)
        self._watch()

    async def connected(self) -> None:
        """Wait until a connecting stream is open."""
        while self._connection.connecting:
            await self._flushed_once()
        if not self._connection.open:
            self._connection.receive()  # raises what ended it
            raise ConnectionError("closed while connecting")

    async def _flushed_once(self) -> None:
        self._flusher = self._loop.create_future()
        try:
            await self._flusher
        finally:
            self._flusher = None

    async def flush(self) -> None:
        """Wait until everything queued has been sent, or the connection has ended.
        From now on nobody waits for room."""
        self._is_flushing = True
        self._watch()
        while self._connection.open and self._connection.queued_bytes():
            await self._flushed_once()

    def meet(
        self,
        meetings: _native.Meetings,
        own_nonce: bytes,
        peer_path: str,
        peer_nonce: bytes,
    ) -> None:
        """The peer is believed to share our host; see ``Connection.meet``."""
        self._connection.meet(meetings, own_nonce, peer_path, peer_nonce)
        self._watch()

    @property
    def received_bytes(self) -> int:
        """Bytes of the frames that came last."""
        return self._connection.received_bytes

    @property
    def offload_bytes(self) -> int:
        """From how many bytes on work on messages leaves the loop; 0 for never."""
        return self._connection.offload_bytes

    @offload_bytes.setter
    def offload_bytes(self, size: int) -> None:
        self._connection.offload_bytes = size

    def queued_bytes(self) -> int:
        return self._connection.queued_bytes()

    def is_full(self, limit_bytes: int) -> bool:
        """Whether who writes has to wait, for that much has not been sent.

        Not when the peer has sent something that nobody here waits for: it may be held
        up until that is read, and to wait for each other is to wait for ever.
        """
        if self._connection.queued_bytes() < limit_bytes or self._is_flushing:
            return False
        return self._reader is not None or bool(self._connection.interest() & READ)

    async def wait_for_room(self, limit_bytes: int) -> None:
        """Wait while it is full; an ended connection is not."""
        while self.is_full(limit_bytes):
            writer = self._loop.create_future()
            self._writers.append(writer)
            try:
                await writer
            finally:
                self._writers.remove(writer)

    def send(self, frames: list) -> int:
        """Queue a message; returns its bytes on the wire."""
        self._may_go_on = False
        try:
            return self._connection.send(frames)
        finally:
            self._watch()

    def receive(self) -> list[Frame] | None:
        """The next message, or None when it has not arrived whole."""
        try:
            frames = self._connection.receive()
        finally:
            self._watch()
        if frames is not None:
            self._may_go_on = True
            self._trimmer.watch()
        return frames

    async def wait_message(self) -> list[Frame]:
        """The next message, after `receive` has answered None."""
        if self._reader is not None:
            raise RuntimeError(f"{self!r} is already being read")
        if self._may_go_on:
            # What has come right behind the last message may be the end. Dask's own TCP
            # meets it in this turn of the loop; met in the next one, it let a client
            # ask a dead scheduler for a result that was lost. In a dialogue, where we
            # have sent something since, to look would be 3 us a round trip for nothing.
            self._on_readable()
            frames = self.receive()
            if frames is not None:
                return frames
        while True:
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
            frames = self.receive()
            if frames is not None:
                return frames

    def abort(self) -> None:
        """Close at once; whoever waits is woken with an error. May be called again."""
        self._unwatch()
        self._connection.close()
        self._watch()
        self._leave_bridge()

    def _leave_bridge(self) -> None:
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.leave(self)
