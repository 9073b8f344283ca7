"""Names of hosts become numeric addresses."""

import asyncio
import socket

import pytest

from spillway.dask.addresses import resolve


async def test_numbers_need_no_look_up(monkeypatch):
    async def never(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    assert await resolve("127.0.0.1", 80) == [("127.0.0.1", 80)]
    assert await resolve("::1", 80) == [("::1", 80)]


async def test_names_are_looked_up():
    assert ("127.0.0.1", 80) in await resolve("localhost", 80)


async def test_unknown_names():
    with pytest.raises(socket.gaierror):
        await resolve("no.such.host.invalid", 80)


async def test_a_name_with_several_addresses_gives_each_once(monkeypatch):
    async def found(*arguments, **options):
        family, kind = socket.AF_INET6, socket.SOCK_STREAM
        return [
            (family, kind, 6, "", ("fe80::1", 80, 0, 0)),
            (family, kind, 6, "", ("fe80::1", 80, 0, 3)),
            (family, kind, 6, "", ("fe80::1%lo", 80, 0, 1)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", 80)),
            (socket.AF_INET, kind, 6, "", ("127.0.0.1", 80)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    assert await resolve("a.name", 80) == [
        ("fe80::1", 80),
        ("fe80::1%3", 80),
        ("fe80::1%lo", 80),
        ("127.0.0.1", 80),
    ]
