"""What a worker has still to send of one shuffle.

Pieces for one worker wait in a queue of its own, and go together while that keeps a
message within its size. They count until the receiver has them; who adds when more than
the limit waits, of all shuffles of the worker, waits as well, which is how a slow
receiver, or a full disk there, reaches the task that splits.

Thread: the event loop's, all of it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

from spillway.dask.shuffle_message import Piece

AT_ONCE = 2
"""Messages under way to one worker: the next is there when one has been taken."""


class Waiting:
    """What waits on one worker or is under way, of all its shuffles."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.changed = asyncio.Condition()
        """Of this, or of a shuffle whose pieces wait."""


class Outbox:
    """Queues of pieces by worker, each with its senders."""

    def __init__(
        self,
        send: Callable[[str, list[Piece]], Awaitable[None]],
        waiting: Waiting,
        *,
        limit: int,
        message_bytes: int,
    ) -> None:
        """`limit` is the bytes that may wait or be under way with all of `waiting`,
        `message_bytes` the size from which a message takes no further piece. `send`
        returns once a worker has the pieces; what it raises ends the whole."""
        self.limit = limit
        self.waiting_bytes = 0
        self.sent_bytes = 0
        self.messages = 0
        self.send_seconds = 0.0
        self._send = send
        self._waiting = waiting
        self._message_bytes = message_bytes
        self._queues: dict[str, deque[Piece]] = {}
        self._senders: set[asyncio.Task[None]] = set()
        self._under_way: dict[str, int] = {}
        self._exception: BaseException | None = None
        self._is_closed = False

    @property
    def waiting_workers(self) -> int:
        """How many workers pieces wait for."""
        return sum(1 for queue in self._queues.values() if queue)

    async def put(self, pieces: dict[str, Piece]) -> None:
        """Queue pieces by worker, and wait until no more than the limit waits, or
        nothing of this shuffle: what others cannot deliver does not stop it. Once
        closed, nothing is queued."""
        self._raise_if_failed()
        if self._is_closed:
            return
        for address, piece in pieces.items():
            self._queues.setdefault(address, deque()).append(piece)
            self._count(piece.nbytes)
            if self._under_way.get(address, 0) < AT_ONCE:
                self._start(address)
        await self._until(
            lambda: self._waiting.nbytes <= self.limit or not self.waiting_bytes
        )

    async def flush(self) -> None:
        """Wait until every piece is where it belongs."""
        await self._until(lambda: not self._senders)

    async def close(self) -> None:
        """End, whatever is still waiting."""
        self._is_closed = True
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        self._drop_queues()
        self._exception = None  # which keeps the pieces that were not sent
        await self._notify()

    async def fail(self, exception: BaseException) -> None:
        """Have all who wait, and all who come, raise this."""
        if self._exception is None:
            self._exception = exception
        self._drop_queues()
        await self._notify()

    def _count(self, nbytes: int) -> None:
        self.waiting_bytes += nbytes
        self._waiting.nbytes += nbytes

    def _drop_queues(self) -> None:
        for queue in self._queues.values():
            self._count(-sum(piece.nbytes for piece in queue))
            queue.clear()

    async def _notify(self) -> None:
        async with self._waiting.changed:
            self._waiting.changed.notify_all()

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with self._waiting.changed:
            await self._waiting.changed.wait_for(
                lambda: is_so() or self._exception is not None or self._is_closed
            )
        self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        if self._exception is not None:
            raise self._exception

    def _start(self, address: str) -> None:
        self._under_way[address] = self._under_way.get(address, 0) + 1
        sender = asyncio.create_task(self._drain(address))
        self._senders.add(sender)

    async def _drain(self, address: str) -> None:
        """Send what waits for one worker, until nothing does."""
        queue = self._queues[address]
        try:
            while queue and self._exception is None:
                pieces, size = self._next_message(queue)
                start = monotonic()
                try:
                    await self._send(address, pieces)
                finally:
                    self._count(-size)
                self.send_seconds += monotonic() - start
                self.messages += 1
                self.sent_bytes += size
                await self._notify()
        except Exception as error:
            await self.fail(error)
        finally:
            self._under_way[address] -= 1
            self._senders.discard(asyncio.current_task())  # type: ignore[arg-type]
            if not self._is_closed:
                await self._notify()

    def _next_message(self, queue: deque[Piece]) -> tuple[list[Piece], int]:
        pieces, size = [], 0
        while queue and (not pieces or size + queue[0].nbytes <= self._message_bytes):
            piece = queue.popleft()
            pieces.append(piece)
            size += piece.nbytes
        return pieces, size
