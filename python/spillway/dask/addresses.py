"""The numeric addresses behind the names of hosts, to connect to or to listen on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any


async def resolve(host: str, port: int) -> list[tuple[str, int]]:
    """Numeric addresses of a host name, in the order of the system's preference.

    Raises
    ------
    socket.gaierror
        When the name is not known.
    """
    try:
        found = socket.getaddrinfo(
            host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME:
            raise
        # A real name: the look-up may block, so it goes to a thread.
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
    return list(dict.fromkeys(_numeric(address) for *_, address in found))


async def passive_hosts(host: str, port: int) -> list[str]:
    """Numeric hosts to bind for a listening host: IPv4 before IPv6, as Dask prefers."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return list(dict.fromkeys(_numeric(address)[0] for *_, address in found))


def _numeric(address: tuple[Any, ...]) -> tuple[str, int]:
    """Host and port of a socket address; an IPv6 scope goes into the host's text."""
    host, port = address[:2]
    if len(address) == 4 and address[3] and "%" not in host:
        host = f"{host}%{address[3]}"
    return host, port
