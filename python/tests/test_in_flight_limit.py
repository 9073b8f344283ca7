"""What many peers send at once stays under one limit, and all of it arrives."""

import asyncio
import contextlib
import zlib

import dask
import numpy
import pytest
from distributed import system
from distributed.protocol import to_serialize

from comm_pairs import OURS, charged, comms, soon
from message_shapes import MIB, noise
from spillway import _native, stats
from spillway.dask import pool_trimmer
from spillway.dask.in_flight_limit import KEY, LEAST_BYTES, limit_in_force

pytestmark = pytest.mark.usefixtures("nothing_is_left", "threads_are_on")

PEERS = 6
BODY = 12 * MIB
LIMIT = 18 * MIB


@pytest.fixture
def limited():
    with dask.config.set({KEY: LIMIT}):
        pool_trimmer.limit_memory("test", system.MEMORY_LIMIT)
        try:
            yield
        finally:
            pool_trimmer.forget_limit("test")
    pool_trimmer.forget_limit("nobody")  # and the library knows it


def body_of(number):
    return numpy.roll(noise(BODY), number)


async def test_many_peers_at_once(way, limited):
    async def write(near, number):
        for _ in range(2):
            await near.write(to_serialize(body_of(number)))

    async def read(far):
        return [zlib.crc32((await far.read()).data) for _ in range(2)]

    peak = 0

    async def sample(done):
        nonlocal peak
        while not done.is_set():
            peak = max(peak, charged()["in_flight"])
            await asyncio.sleep(0)

    before = stats()["budget"]["held_back"]
    async with contextlib.AsyncExitStack() as stack:
        pairs = [
            await stack.enter_async_context(comms(OURS, OURS)) for _ in range(PEERS)
        ]
        done = asyncio.Event()
        sampler = asyncio.create_task(sample(done))
        received = await soon(
            asyncio.gather(
                *(read(far) for _, far in pairs),
                *(write(near, number) for number, (near, _) in enumerate(pairs)),
            )
        )
        done.set()
        await sampler
    expected = [zlib.crc32(body_of(number).data) for number in range(PEERS)]
    assert received[:PEERS] == [[crc, crc] for crc in expected]
    budget = stats()["budget"]
    assert budget["in_flight_limit"] == LIMIT
    assert budget["held_back"] > before
    assert 0 < peak <= LIMIT + MIB  # regions are rounded up, small messages come in


def test_by_default_it_is_a_share_of_memory():
    assert limit_in_force(10 << 30) == 3 << 30
    assert limit_in_force(MIB) == LEAST_BYTES


@pytest.mark.parametrize(("value", "limit"), [(0, 0), (12, 12), ("2 MiB", 2 * MIB)])
def test_it_is_configured(value, limit):
    with dask.config.set({KEY: value}):
        assert limit_in_force(10 << 30) == limit


@pytest.mark.parametrize("value", [-1, "much", None, [1]])
def test_what_is_no_size_is_refused(value):
    with dask.config.set({KEY: value}), pytest.raises(ValueError, match="1 GiB"):
        limit_in_force(10 << 30)


def test_the_library_is_told_with_each_limit_of_memory(monkeypatch):
    told = []
    monkeypatch.setattr(_native, "limit_in_flight", told.append)
    pool_trimmer.limit_memory("one", 4 << 30)
    pool_trimmer.forget_limit("one")
    assert told == [limit_in_force(4 << 30), limit_in_force(system.MEMORY_LIMIT)]


@pytest.mark.parametrize("limit", [-1, 2**63, None, 1.5])
def test_a_limit_that_is_none_is_refused(limit):
    with pytest.raises((TypeError, ValueError)):
        _native.limit_in_flight(limit)
