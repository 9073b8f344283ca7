"""Dask's comm interface over native connections: the schemes tcp and spillway."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
import os
import socket
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

import dask
from dask.utils import parse_bytes
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.tcp import BaseTCPBackend, RequireEncryptionMixin
from distributed.comm.utils import ensure_concrete_host

from spillway import _native, offload_counts
from spillway.dask import hook_offload, hook_values, offload_setting, undecoded
from spillway.dask.connection_settings import connection_settings
from spillway.dask.decode import decode, loads
from spillway.dask.decode_cost import decode_bytes
from spillway.dask.encode import NEVER_SPLIT, encode, encode_plain
from spillway.dask.greeting import Greeting, greetings
from spillway.dask.loop_bridge import LoopBridge, bridge_of
from spillway.dask.offload_threads import in_thread
from spillway.dask.outgoing_message import OutgoingMessage, dumps
from spillway.dask.queue_limit import configured_limit, is_small, limit_in_force
from spillway.dask.same_host import SECRET_BYTES, place_of
from spillway.dask.stream import Stream, open_stream, resolve

logger = logging.getLogger(__name__)

# What two Spillway peers tell each other in the handshake; a stock peer ignores it.
# The wire version changes when what one sends cannot be read by the other; features are
# names that both must have before either uses one.
HANDSHAKE_KEY = "spillway"
WIRE_VERSION = 1
FEATURES: tuple[str, ...] = ("unsplit",)
# What a peer needs to know to share memory with us, if it shares our host.
HOST_KEY = "host"

# Binding to an ephemeral port on two families can meet a port that one of them has in
# use; another is then drawn.
BIND_ATTEMPTS = 5
# Out of descriptors, accepting again at once would only spin.
ACCEPT_AGAIN_AFTER_S = 0.1


def _reason(error: _native.SpillwayError) -> str:
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
    ) -> None:
        self._stream = stream
        self._has_policy = hook_offload.is_in_force()
        self._encode_value = hook_values.encoder()
        self._turn: asyncio.Future | None = None
        stream.offload_bytes = offload_bytes
        # What the peer has been told already, and that until it is written once more.
        self._greeting = self._said = greeting
        self._is_maker = is_maker
        self._offer: dict[str, Any] | None = None
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
        ours: dict[str, Any] = {"wire": WIRE_VERSION, "features": FEATURES}
        if self._offer is not None:
            ours[HOST_KEY] = self._offer
        return {**super().handshake_info(), HANDSHAKE_KEY: ours}

    @property
    def peer_features(self) -> frozenset[str]:
        """Features that the peer and we have in common; none with a stock peer."""
        theirs = self.remote_info.get(HANDSHAKE_KEY)
        if not isinstance(theirs, dict) or theirs.get("wire") != WIRE_VERSION:
            return frozenset()
        names = theirs.get("features")
        if not isinstance(names, tuple):
            return frozenset()
        return frozenset(name for name in FEATURES if name in names)

    def _meet(self) -> None:
        """After the handshake, which is Dask's: if the peer may share our host, expect
        it where we said."""
        theirs = self.remote_info.get(HANDSHAKE_KEY)
        # The one that we offered, which an ended connection may have outlived.
        place = place_of(self._stream.loop) if self._stream.is_open() else None
        if (
            place is not None
            and isinstance(theirs, dict)
            and theirs.get("wire") == WIRE_VERSION
        ):
            place.meet(
                self._stream,
                self._offer,
                theirs.get(HOST_KEY),
                is_maker=self._is_maker,
            )
        self._offer = None

    async def read(self, deserializers: Any = None) -> Any:
        try:
            if self._offer is not None and self.remote_info:
                self._meet()
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
            if self._has_policy:
                return await self._decode(frames, deserializers)
            return await decode(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
                keep_failures=undecoded.is_wanted(),
            )
        except EOFError as error:
            self.abort()
            raise CommClosedError(f"in {self}: aborted on truncated data") from error

    async def _decode(self, frames: list, deserializers: Any) -> Any:
        if len(frames) == 1:
            return loads(frames, self.deserialize, deserializers)
        how = self.deserialize, deserializers, undecoded.is_wanted()
        size, offload_bytes = self._stream.received_bytes, self._offload_bytes()
        # What stays serialised costs nothing, and a scheduler is not to look.
        if (
            offload_bytes != offload_setting.NEVER
            and self.deserialize
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
        return CommClosedError(f"in {self}: {_reason(error)}")

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


def _is_running_here(loop: asyncio.AbstractEventLoop | None) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _close_dangling(stream: Stream, comm: str) -> None:
    """A comm was dropped without being closed; may run in any thread."""
    if not stream.is_open():
        return
    logger.warning("Closing dangling connection in %s", comm)
    if stream.loop.is_closed():
        stream.abort()
    else:
        stream.loop.call_soon_threadsafe(stream.abort)


class SpillwayConnector(Connector, RequireEncryptionMixin):
    prefix: ClassVar[str] = "spillway://"
    comm_class: ClassVar[type[SpillwayComm]] = SpillwayComm
    encrypted = False

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> SpillwayComm:
        self._check_encryption(address, connection_args)
        offload_bytes = _offload_bytes(connection_args)
        host, port = parse_host_port(address)
        try:
            stream = await open_stream(await resolve(host, port))
        except _native.SpillwayError as error:
            raise CommClosedError(
                f"in {self!r}, connecting to {self.prefix}{address}: {_reason(error)}"
            ) from error
        try:
            local = self.prefix + unparse_host_port(*stream.local())
        except _native.SpillwayError as error:
            raise CommClosedError(f"in {self!r}: {_reason(error)}") from error
        return self.comm_class(
            stream,
            local,
            self.prefix + address,
            deserialize,
            offload_bytes,
            is_maker=True,
        )


class TakeoverConnector(SpillwayConnector):
    prefix = "tcp://"


class SpillwayListener(BaseListener, RequireEncryptionMixin):
    prefix: ClassVar[str] = "spillway://"
    comm_class: ClassVar[type[SpillwayComm]] = SpillwayComm
    encrypted = False

    def __init__(
        self,
        address: str,
        comm_handler: Callable[[Comm], Any],
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        **connection_args: Any,
    ) -> None:
        super().__init__()
        self._check_encryption(address, connection_args)
        _offload_bytes(connection_args)  # raises now what it would for each connection
        self._connection_args = connection_args
        self.ip, self.port = parse_host_port(address, default_port)
        self.comm_handler = comm_handler
        self.deserialize = deserialize
        self.allow_offload = allow_offload
        self.default_host = default_host
        self._listeners: list[_native.Listener] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bridge: LoopBridge | None = None  # while it is started
        self._tasks: set[asyncio.Task] = set()
        self._aborts_handshakes = False
        self._bound: tuple[str, int] | None = None
        # What each of them says on its own.
        self._greetings: dict[_native.Listener, dict[bool, Greeting]] = {}

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        bridge_of(self._loop)  # what is wrong with it shows here, not at each peer
        addresses = await _passive_addresses(self.ip, self.port)
        backlog = int(dask.config.get("distributed.comm.socket-backlog"))
        for attempt in range(BIND_ATTEMPTS):
            try:
                self._listeners = _listen(addresses, self.port, backlog)
                break
            except OSError as error:
                if (
                    self.port != 0
                    or error.errno != errno.EADDRINUSE
                    or attempt == BIND_ATTEMPTS - 1
                ):
                    raise
        self._bound = self._listeners[0].local()
        self._bridge = bridge_of(self._loop)
        self._bridge.join(self)
        self._serve_on_threads()
        for listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _serve_on_threads(self) -> None:
        """Where the loop has threads, let them accept, greet and begin to receive. Who
        has changed how the handshake begins says it later, on the loop."""
        settings = connection_settings(self._loop)
        if "completions" not in settings:
            return
        said: dict[bool, Greeting] = {}
        if type(self).on_connection is BaseListener.on_connection:
            said = greetings(self.comm_class, self.prefix, self._loop)
        frames = {same_host: each.frame for same_host, each in said.items()}
        for listener in self._listeners:
            try:
                listener.serve(
                    greeting=frames.get(False, b""),
                    greeting_same_host=frames.get(True, b""),
                    **settings,
                )
            except OSError as error:
                logger.warning(
                    "Connections to %s are accepted by their event loop alone: %s",
                    self.listen_address,
                    error,
                )
            else:
                self._greetings[listener] = said

    def stop(self) -> None:
        """Accept no more. Who has been told our half of the handshake counts as
        connected there, and is served."""
        if _is_running_here(self._loop):
            for listener in self._greetings:
                self._accept(listener)
        listeners, self._listeners = self._listeners, []
        self._greetings.clear()
        for listener in listeners:
            self._loop.remove_reader(listener.fileno())
            listener.close()
        bridge, self._bridge = self._bridge, None
        if bridge is not None:
            bridge.leave(self)

    def abort_handshaking_comms(self) -> None:
        """Close those that are not served yet, once the listener is stopped."""
        self._aborts_handshakes = True  # of those that have no comm yet
        super().abort_handshaking_comms()

    def _accept(self, listener: _native.Listener) -> None:
        while listener in self._listeners:
            try:
                connection = listener.accept(**connection_settings(self._loop))
            except OSError as error:
                logger.warning(
                    "Listener on %s cannot accept a connection: %s",
                    self.listen_address,
                    error,
                )
                self._loop.remove_reader(listener.fileno())
                self._loop.call_later(
                    ACCEPT_AGAIN_AFTER_S, self._accept_again, listener
                )
                return
            if connection is None:
                return
            stream = Stream(connection, self._loop)
            said = self._greetings.get(listener, {})
            task = self._loop.create_task(self._serve(stream, said))
            self._tasks.add(task)
            task.add_done_callback(self._served)

    def _accept_again(self, listener: _native.Listener) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener.fileno(), self._accept, listener)
            self._accept(listener)  # threads wait for that

    def _served(self, task: asyncio.Task) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "The handler of a connection to %s failed",
                self.prefix + unparse_host_port(*self._bound),
                exc_info=error,
            )

    async def _serve(self, stream: Stream, said: dict[bool, Greeting]) -> None:
        try:
            local = self.prefix + unparse_host_port(*stream.local())
        except _native.SpillwayError:
            stream.abort()  # gone before it was served
            return
        greeting = said.get(stream.local()[0] == stream.peer()[0])
        if not self._listeners and (greeting is None or self._aborts_handshakes):
            # Stopped between accept and here; nobody would answer the handshake.
            stream.abort()
            return
        peer = self.prefix + unparse_host_port(*stream.peer())
        offload_bytes = _offload_bytes(self._connection_args)
        comm = self.comm_class(
            stream, local, peer, self.deserialize, offload_bytes, greeting=greeting
        )
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            logger.info("Connection from %s closed before handshake completed", peer)
            return
        served = self.comm_handler(comm)
        if inspect.isawaitable(served):
            await served

    def get_host_port(self) -> tuple[str, int]:
        if self._bound is None:
            raise ValueError("the listener has not been started")
        return self._bound

    @property
    def listen_address(self) -> str:
        return self.prefix + unparse_host_port(*self.get_host_port())

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        host = ensure_concrete_host(host, default_host=self.default_host)
        return self.prefix + unparse_host_port(host, port)


class TakeoverListener(SpillwayListener):
    prefix = "tcp://"


def _offload_bytes(connection_args: dict[str, Any]) -> int:
    """What the arguments of a connection or listener say about offloading, and without
    a word of theirs what the configuration says, in bytes."""
    given = connection_args.get(offload_setting.ARGUMENT)
    if given is None:
        return offload_setting.configured()
    return offload_setting.parse(given)


async def _passive_addresses(host: str, port: int) -> list[str]:
    """Numeric hosts to bind for a listening host: IPv4 before IPv6, as Dask prefers."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    hosts = []
    for _, _, _, _, address in found:
        text = address[0]
        if len(address) == 4 and address[3] and "%" not in text:
            text = f"{text}%{address[3]}"
        hosts.append(text)
    return list(dict.fromkeys(hosts))


def _listen(hosts: list[str], port: int, backlog: int) -> list[_native.Listener]:
    """Listen on all hosts, on one port. An address that this machine does not have is
    passed over as long as another can be had."""
    listeners: list[_native.Listener] = []
    missing: OSError | None = None
    try:
        for host in hosts:
            try:
                listener = _native.Listener(host, port, backlog)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
                continue
            listeners.append(listener)
            port = listener.local()[1]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    if not listeners:
        raise missing or OSError(f"no address to listen on for {hosts}")
    return listeners


class SpillwayBackend(BaseTCPBackend):
    """Serves spillway://, the explicit way. Address handling is Dask's own for TCP."""

    _connector_class = SpillwayConnector
    _listener_class = SpillwayListener


class TakeoverBackend(BaseTCPBackend):
    """Serves tcp:// in Dask's place."""

    _connector_class = TakeoverConnector
    _listener_class = TakeoverListener
