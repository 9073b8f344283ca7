"""Connecting: to the first address of a host that answers, and a comm on that."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import CommClosedError, Connector
from distributed.comm.tcp import RequireEncryptionMixin

from spillway import _native
from spillway.dask import offload_setting
from spillway.dask.addresses import resolve
from spillway.dask.comm import SpillwayComm, reason_of
from spillway.dask.connection_settings import connection_settings
from spillway.dask.stream import Stream

# A second address is tried beside the first after this long without an answer, so that
# a network that swallows packets of one family does not cost a whole timeout. The value
# is the one of RFC 8305, 5.
NEXT_ADDRESS_AFTER_S = 0.25


class SpillwayConnector(Connector, RequireEncryptionMixin):
    prefix: ClassVar[str] = "spillway://"
    comm_class: ClassVar[type[SpillwayComm]] = SpillwayComm
    encrypted = False

    async def connect(
        self, address: str, deserialize: bool = True, **connection_args: Any
    ) -> SpillwayComm:
        self._check_encryption(address, connection_args)
        offload_bytes = offload_setting.of_connection(connection_args)
        host, port = parse_host_port(address)
        try:
            stream = await open_stream(await resolve(host, port))
        except _native.SpillwayError as error:
            raise CommClosedError(
                f"in {self!r}, connecting to {self.prefix}{address}: {reason_of(error)}"
            ) from error
        try:
            local = self.prefix + unparse_host_port(*stream.local())
        except _native.SpillwayError as error:
            raise CommClosedError(f"in {self!r}: {reason_of(error)}") from error
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


async def open_stream(addresses: Iterable[tuple[str, int]]) -> Stream:
    """Connect to the first of some numeric addresses that answers.

    Raises
    ------
    spillway._native.SpillwayError
        What the first address answered, when none could be reached.
    """
    loop = asyncio.get_running_loop()
    waiting = list(addresses)
    attempts: dict[asyncio.Task, None] = {}
    first_error: BaseException | None = None
    try:
        while waiting or attempts:
            if waiting:
                host, port = waiting.pop(0)
                attempts[loop.create_task(_attempt(host, port))] = None
            done, _ = await asyncio.wait(
                attempts,
                timeout=NEXT_ADDRESS_AFTER_S if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                del attempts[task]
                if (error := task.exception()) is None:
                    return task.result()
                if not isinstance(error, OSError):
                    raise error
                first_error = first_error or error
    finally:
        for task in attempts:
            task.cancel()
            task.add_done_callback(_abort_late_stream)
    if first_error is None:
        raise OSError("no address to connect to")
    raise first_error


async def _attempt(host: str, port: int) -> Stream:
    loop = asyncio.get_running_loop()
    connection = _native.Connection.connect(host, port, **connection_settings(loop))
    stream = Stream(connection, loop)
    try:
        await stream.connected()
    except BaseException:
        stream.abort()
        raise
    return stream


def _abort_late_stream(task: asyncio.Task) -> None:
    """A second attempt that succeeded although the first had already won."""
    if not task.cancelled() and task.exception() is None:
        task.result().abort()
