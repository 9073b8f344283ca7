"""What a listener has said to whoever connects, before Python hears of it.

The side that accepts a connection begins Dask's handshake. What it says then does not
depend on who connects, but for one thing: whether both have the same address. So it is
prepared when the listener starts, and the library's threads say it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from distributed.comm.core import Comm

from spillway.dask.encode import encode_plain

HEADER_BYTES = 24
"""What goes before the frame of a message that has one: three numbers."""


class Greeting:
    """Handshake info that is sent before there is a comm to send it."""

    __slots__ = ("frame", "info")

    def __init__(self, info: dict[str, Any]) -> None:
        frame, _ = encode_plain(info)
        if frame is None:
            raise ValueError(f"the handshake info is no plain message: {info!r}")
        self.info = info
        self.frame: bytes = frame

    @property
    def wire_bytes(self) -> int:
        return HEADER_BYTES + len(self.frame)


class _NoStream:
    """In the place of the stream of a comm that is made only to be asked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop

    def is_open(self) -> bool:
        return False


def greetings(
    make_comm: Callable[[Any, str, str], Comm],
    prefix: str,
    loop: asyncio.AbstractEventLoop,
) -> dict[bool, Greeting]:
    """What the accepted comms of a loop say, by whether their peer has the address that
    it connected to. They are made of a stream, and of their own address and the peer's.

    Raises
    ------
    ValueError
        When that cannot be prepared.
    """
    here, there = (f"{prefix}127.0.0.{i}:1" for i in (1, 2))
    return {
        here == peer: Greeting(make_comm(_NoStream(loop), here, peer).handshake_info())
        for peer in (here, there)
    }
