"""Listening: who connects gets a comm, which Dask's handler is given once both sides
have shaken hands."""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import dask
from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError
from distributed.comm.tcp import RequireEncryptionMixin
from distributed.comm.utils import ensure_concrete_host

from spillway import _native
from spillway.dask import offload_setting
from spillway.dask.addresses import passive_hosts
from spillway.dask.comm import SpillwayComm
from spillway.dask.connection_settings import connection_settings
from spillway.dask.greeting import Greeting, greetings
from spillway.dask.loop_bridge import LoopBridge, bridge_of
from spillway.dask.stream import Stream

logger = logging.getLogger(__name__)

# Binding to an ephemeral port on two families can meet a port that one of them has in
# use; another is then drawn.
BIND_ATTEMPTS = 5
# Out of descriptors, accepting again at once would only spin.
ACCEPT_AGAIN_AFTER_S = 0.1


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
        # Raises now what it would for each connection.
        offload_setting.of_connection(connection_args)
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
        hosts = await passive_hosts(self.ip, self.port)
        backlog = int(dask.config.get("distributed.comm.socket-backlog"))
        for attempt in range(BIND_ATTEMPTS):
            try:
                self._listeners = _listen(hosts, self.port, backlog)
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

    def hold_from(self, size: int) -> None:
        """Let messages of so many bytes wait until they are read by who accepts them,
        where threads would receive them before."""
        for listener in self._listeners:
            listener.hold_from(size)

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
        offload_bytes = offload_setting.of_connection(self._connection_args)
        comm = self.comm_class(
            *(stream, local, peer, self.deserialize, offload_bytes),
            greeting=greeting,
            listener=self,
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


def _is_running_here(loop: asyncio.AbstractEventLoop | None) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
