"""Dask's comm interface over a native connection."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Awaitable
from functools import partial
from typing import Any, ClassVar

import dask
from dask.utils import parse_bytes
from distributed.comm.core import Comm, CommClosedError

from spillway import _native, offload_counts
from spillway.dask import (
    handshake,
    hook_offload,
    hook_values,
    offload_setting,
    packed,
    shared_files,
    undecoded,
)
from spillway.dask.decode import decode, loads
from spillway.dask.decode_cost import decode_bytes
from spillway.dask.encode import NEVER_SPLIT, encode, encode_plain
from spillway.dask.greeting import Greeting
from spillway.dask.offload_threads import in_thread
from spillway.dask.outgoing_message import OutgoingMessage, dumps
from spillway.dask.queue_limit import configured_limit, is_small, limit_in_force
from spillway.dask.same_host import SECRET_BYTES, place_of
from spillway.dask.stream import Stream

logger = logging.getLogger(__name__)


def reason_of(error: _native.SpillwayError) -> str:
    """What ended a connection, as our comms say it."""
    return f"{error.status}: {error.strerror}"


class SpillwayComm(Comm):
    """A Dask comm whose messages are framed, sent, received and placed by the library.

    Reads and writes are whole messages in Dask's own format, so the peer may be a stock
    one. `read` and `write` raise `CommClosedError` once the connection has ended.
    """

    # Buffers go to a stock peer in shards of this many bytes.
    max_shard_size: ClassVar[int] = parse_bytes(
        dask.config.get("distributed.comm.shard")
    )

    def __init__(
        self,
        stream: Stream,
        local_addr: str,
        peer_addr: str,
        deserialize: bool = True,
        offload_bytes: int = offload_setting.AUTO_BYTES,
        *,
        is_maker: bool = False,
        greeting: Greeting | None = None,
        listener: Any = None,
    ) -> None:
        self._stream = stream
        self._has_policy = hook_offload.is_in_force()
        self._encode_value = hook_values.encoder()
        self._turn: asyncio.Future | None = None
        stream.offload_bytes = offload_bytes
        # What the peer has been told already, and that until it is written once more.
        self._greeting = self._said = greeting
        self._is_maker = is_maker
        self._listener = listener
        self._offer: dict[str, Any] | None = None
        self._names_processes = False
        self._takes_files = False  # as we said
        place = place_of(stream.loop)
        if place is not None:
            self._offer = place.offer(
                os.urandom(SECRET_BYTES) if is_maker else place.secret
            )
        # Dask's connect() reads these two by name.
        self._local_addr = local_addr
        self._peer_addr = peer_addr
        super().__init__(deserialize=deserialize)
        self._is_closing = False
        self._queue_limit = configured_limit()
        self._finalizer = weakref.finalize(self, _close_dangling, stream, repr(self))
        self._finalizer.atexit = False

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def offload(self) -> int:
        """From how many bytes on (de)serialisation and compression leave the event
        loop; 0 for never. Can be set at any time, to whatever `spillway.comm.offload`
        takes (offload_setting.py). Where Dask says `allow_offload = False`, as it does
        for all connections of a scheduler, nothing ever leaves the loop."""
        return self._stream.offload_bytes

    @offload.setter
    def offload(self, value: object) -> None:
        self._stream.offload_bytes = offload_setting.parse(value)

    def _offload_bytes(self) -> int:
        if not self.allow_offload:
            return offload_setting.NEVER
        return self._stream.offload_bytes

    def closed(self) -> bool:
        return self._is_closing or not self._stream.is_open()

    def handshake_info(self) -> dict[str, Any]:
        if self._greeting is not None:
            return dict(self._greeting.info)
        self._takes_files = (
            self._is_maker
            and self._offer is not None
            and packed.is_anybody()
            and shared_files.why_not(self._peer_addr) is None
        )
        ours = handshake.ours(self._offer, takes_files=self._takes_files)
        return {**super().handshake_info(), **ours}

    @property
    def peer_features(self) -> frozenset[str]:
        """Features that the peer and we have in common; none with a stock peer."""
        return handshake.features_in_common(self.remote_info)

    @property
    def sends_files(self) -> bool:
        """Whether there are threads that send what is in files, from there."""
        return self._stream.has_threads

    @property
    def gives_files(self) -> bool:
        """Whether the peer takes values that we have on disk as files, not as bytes."""
        return self._names_processes and handshake.takes_files(self.remote_info)

    def _meet(self) -> None:
        """After the handshake, which is Dask's: if the peer may share our host, expect
        it where we said."""
        theirs = handshake.host_offer(self.remote_info)
        # The one that we offered, which an ended connection may have outlived.
        place = place_of(self._stream.loop) if self._stream.is_open() else None
        if place is not None:
            self._names_processes = place.names_processes_of(theirs)
            place.meet(self._stream, self._offer, theirs, is_maker=self._is_maker)
        self._offer = None

    async def read(self, deserializers: Any = None) -> Any:
        try:
            if self._offer is not None and self.remote_info:
                self._meet()
            if (store := packed.receiver()) is not None:
                self._stream.receive_values(store)
            elif (store := packed.scattered_to(self._listener)) is not None:
                self._stream.receive_values(store, packed.SCATTERED)
            frames = self._stream.receive()
            if frames is None:
                frames = await self._stream.wait_message()
        except _native.SpillwayError as error:
            # There is nothing left to read, and who is told so need not close.
            self._stream.abort()
            raise self._closed_error(error) from error
        except BaseException:
            # Cancelled, perhaps with half a message read: the stream is of no use.
            self.abort()
            raise
        try:
            return await self._decode(frames, deserializers)
        except EOFError as error:
            self.abort()
            raise CommClosedError(f"in {self}: aborted on truncated data") from error
        except shared_files.CannotTake as error:
            # Who asks again asks by a new connection, on which it will be sent.
            shared_files.refuse(error, self._peer_addr)
            self.abort()
            raise CommClosedError(f"in {self}: {error}") from error

    async def _decode(self, frames: list, deserializers: Any) -> Any:
        if len(frames) == 1 and self._has_policy:
            return loads(frames, self.deserialize, deserializers)
        is_packed = packed.is_wanted(frames[0], self._listener)
        how = (
            *(self.deserialize, deserializers, undecoded.is_wanted()),
            *(is_packed, self._takes_files),
        )
        if self._reads_files(frames, is_packed and deserializers is None):
            return await in_thread(loads, frames, *how)
        if self._has_policy:
            message = await self._decode_by_policy(frames, is_packed, how)
        else:
            message = await decode(frames, *how, allow_offload=self.allow_offload)
        if is_packed:
            packed.note(message)
        return message

    def _reads_files(self, frames: list, are_kept: bool) -> bool:
        """Whether values have to be read from files of the peer's, for somebody who
        wants them decoded: that is nothing for the loop, however small the message."""
        return self._takes_files and not are_kept and shared_files.are_named(frames)

    async def _decode_by_policy(
        self, frames: list, is_packed: bool, how: tuple[Any, ...]
    ) -> Any:
        size, offload_bytes = self._stream.received_bytes, self._offload_bytes()
        # What stays serialised costs nothing, and a scheduler is not to look.
        if (
            offload_bytes != offload_setting.NEVER
            and self.deserialize
            and not is_packed
            and size >= offload_bytes
            and decode_bytes(frames, size) >= offload_bytes
        ):
            offload_counts.add("decoded", "offloaded", size)
            return await in_thread(loads, frames, *how)
        offload_counts.add("decoded", "inline", size)
        return loads(frames, *how)

    async def write(
        self, msg: Any, serializers: Any = None, on_error: str = "message"
    ) -> int:
        if self._said is not None:
            return self._write_what_was_said(msg)
        if self.closed():
            raise CommClosedError(f"in {self}: closed")
        if self._offer is not None and self.remote_info:
            self._meet()
        if self._has_policy:
            message = OutgoingMessage(
                msg,
                self._offload_bytes(),
                lambda: self._dumps_options(serializers, on_error),
                self._encode_value,
            )
            frames = message.encode_here()
            if frames is None or self._turn is not None:
                return await self._write_in_turn(message, frames)
            size = await self._send(frames)
            if not message.is_plain:
                offload_counts.add("encoded", "inline", size)
            return size
        plain, size = encode_plain(msg)
        if plain is not None:
            frames = [plain]
        else:
            frames = await encode(
                msg,
                size,
                allow_offload=self.allow_offload,
                dumps=self._encode_value
                and partial(dumps, encode_value=self._encode_value),
                **self._dumps_options(serializers, on_error),
            )
        return await self._send(frames)

    def _dumps_options(self, serializers: Any, on_error: str) -> dict[str, Any]:
        return {
            "serializers": serializers,
            "on_error": on_error,
            "context": {
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            },
            "frame_split_size": (
                NEVER_SPLIT if "unsplit" in self.peer_features else self.max_shard_size
            ),
        }

    async def _write_in_turn(
        self, message: OutgoingMessage, frames: list | None
    ) -> int:
        """Send a message after those that were written before it and are still being
        encoded in threads. They may be encoded side by side."""
        loop = asyncio.get_running_loop()
        before, turn = self._turn, loop.create_future()
        self._turn = turn
        place = "inline" if frames is not None else "offloaded"
        try:
            if frames is None:
                frames = await message.encode_elsewhere()
            if before is not None and not before.done():
                await asyncio.wait([before])
        finally:
            # Who comes next waits for all before it, also when this one gave up.
            if before is None or before.done():
                _end_turn(turn)
            else:
                before.add_done_callback(lambda _: _end_turn(turn))
            if self._turn is turn and turn.done():
                self._turn = None
        # At once, unless there is no room for it; what is small need not wait for that.
        size = await self._send(frames)
        if not message.is_plain:
            offload_counts.add("encoded", place, size)
        return size

    async def _send(self, frames: list) -> int:
        # Nothing of it has been sent: who is cancelled here may go on with the comm.
        if self._stream.queued_bytes():
            await self._wait_for_room(frames)
        try:
            return self._stream.send(frames)
        except _native.SpillwayError as error:
            if self._stream.is_open():
                raise  # refused before a byte was sent; the comm is as it was
            raise self._closed_error(error) from error
        except BaseException:
            self.abort()
            raise

    async def _wait_for_room(self, frames: list) -> None:
        limit_bytes = limit_in_force(self._queue_limit)
        if limit_bytes and self._stream.is_full(limit_bytes) and not is_small(frames):
            await self._stream.wait_for_room(limit_bytes)

    def _write_what_was_said(self, msg: Any) -> int:
        greeting, self._said = self._said, None
        if msg != greeting.info:
            self.abort()
            raise RuntimeError(
                f"in {self}: the handshake info {greeting.info!r} has been sent, and "
                f"cannot be replaced by {msg!r}"
            )
        return greeting.wire_bytes

    def _closed_error(self, error: _native.SpillwayError) -> CommClosedError:
        self._finalizer.detach()
        return CommClosedError(f"in {self}: {reason_of(error)}")

    def close(self) -> Awaitable[None]:
        """Close after what is queued has been sent. From now on the comm is closed for
        whoever uses it; a second call does not wait for the first.

        Not a coroutine function: with nothing queued it closes before it returns, also
        when the caller does not await the result.
        """
        self._finalizer.detach()
        if not self._is_closing:
            self._is_closing = True
            if self._stream.queued_bytes() and not self._stream.loop.is_closed():
                return self._stream.loop.create_task(self._flush_and_close())
            self._stream.abort()
        return _done(self._stream.loop)

    async def _flush_and_close(self) -> None:
        try:
            await self._stream.flush()
        finally:
            self._stream.abort()

    def abort(self) -> None:
        self._finalizer.detach()
        self._stream.abort()


def _end_turn(turn: asyncio.Future) -> None:
    if not turn.done():
        turn.set_result(None)


def _done(loop: asyncio.AbstractEventLoop) -> asyncio.Future:
    """A future that is done, for whoever awaits it: a comm may outlive its loop, and
    then be closed on another one, or on none."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        pass
    done = loop.create_future()
    done.set_result(None)
    return done


def _close_dangling(stream: Stream, comm: str) -> None:
    """A comm was dropped without being closed; may run in any thread."""
    if not stream.is_open():
        return
    logger.warning("Closing dangling connection in %s", comm)
    if stream.loop.is_closed():
        stream.abort()
    else:
        stream.loop.call_soon_threadsafe(stream.abort)
