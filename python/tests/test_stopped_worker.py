"""A worker that is stopped in the middle of transfers, and goes on after a while.

Two seconds here; `SPILLWAY_TEST_STOPPED_S=60` for as long as it takes Dask and the
kernel to get impatient."""

import asyncio
import os
import signal
import zlib

import numpy
import pytest
from distributed import Client, LocalCluster, wait

import spillway
from message_shapes import MIB
from spillway.dask import enable

pytestmark = pytest.mark.usefixtures("nothing_is_left")

STOPPED_S = float(os.environ.get("SPILLWAY_TEST_STOPPED_S", "2"))
ARRAYS = 12
SIZE = 24 * MIB
OWN = 200


def array_of(seed):
    return numpy.frombuffer(numpy.random.default_rng(seed).bytes(SIZE), "u1")


def checksum(array):
    return zlib.crc32(array)


@pytest.mark.timeout(120 + 4 * STOPPED_S)
async def test_it_goes_on_where_it_was(way):
    enable()
    async with (
        LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address=":0", asynchronous=True
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        await client.wait_for_workers(3)
        pids = await client.run(os.getpid)
        first, second, third = sorted(pids)
        arrays = client.map(array_of, range(ARRAYS), workers=[first])
        await wait(arrays)
        # It is stopped while it sends, and while it is about to receive.
        taken = client.map(checksum, arrays, workers=[second])
        back = client.map(array_of, range(100, 100 + ARRAYS), workers=[third])
        given = client.map(checksum, back, workers=[first])
        # The first one has no copy of this. If it had, Dask might ask it for that, or
        # drop the other one (ReduceReplicas), though it is stopped.
        own = client.submit(array_of, OWN, workers=[third], priority=1)
        await wait([own])
        await wait(taken, return_when="FIRST_COMPLETED")
        os.kill(pids[first], signal.SIGSTOP)
        try:
            # The time is what is tested: nobody can be asked whether it is over.
            await asyncio.sleep(STOPPED_S)
            # Meanwhile the others do what does not need it.
            other = client.submit(checksum, own, workers=[second])
            assert await asyncio.wait_for(other, 60) == checksum(array_of(OWN))
        finally:
            os.kill(pids[first], signal.SIGCONT)
        expected = [checksum(array_of(seed)) for seed in range(ARRAYS)]
        assert await client.gather(taken) == expected
        expected = [checksum(array_of(seed)) for seed in range(100, 100 + ARRAYS)]
        assert await client.gather(given) == expected
        stats = (await client.run(spillway.stats)).values()
        assert sum(one["bytes"]["received"] for one in stats) > 2 * ARRAYS * SIZE
        assert all(one["budget"]["in_flight"] == 0 for one in stats)
