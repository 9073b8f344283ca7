"""Whole clusters of processes: what workers send each other, and what becomes of it
when processes are restarted or killed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading

import numpy
import pytest
from distributed import Client, LocalCluster, wait
from distributed.protocol import to_serialize

import spillway
from comm_pairs import OURS, comms, exchanged
from message_shapes import MIB, noise
from spillway.dask import enable

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("nothing_is_left")]


@contextlib.asynccontextmanager
async def cluster(workers=2, **options):
    options = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",
        "asynchronous": True,
        **options,
    }
    async with (
        LocalCluster(**options) as made,
        Client(made, asynchronous=True) as client,
    ):
        await client.wait_for_workers(workers, timeout=60)
        yield client


async def addresses(client):
    return sorted(await client.nthreads())


def array_of(seed, size):
    return numpy.random.default_rng(seed).integers(0, 256, size, "u1")


def described(array):
    """What a worker finds of an array that it was sent."""
    return {
        "sum": int(array.sum(dtype="u8")),
        "writeable": array.flags.writeable,
        "aligned": array.ctypes.data % 64 == 0,
        "owner": type(array.base).__module__,
    }


async def check_scatter_and_gather(client):
    sent = [noise(3 * MIB), noise(100), noise(0)]
    futures = await client.scatter(sent, broadcast=True)
    for future, array in zip(futures, sent, strict=True):
        got = await future
        assert (got == array).all()
        assert got.flags.writeable
    total = client.submit(lambda arrays: sum(a.nbytes for a in arrays), futures)
    assert await total == 3 * MIB + 100
    results = await client.gather(client.map(array_of, range(8), size=MIB))
    for seed, array in enumerate(results):
        assert (array == array_of(seed, MIB)).all()


def moved(before, after, way):
    return {
        worker: after[worker]["bytes"][way] - before[worker]["bytes"][way]
        for worker in after
    }


async def test_what_workers_and_clients_send_goes_by_spillway():
    enable()
    async with cluster() as client:
        await check_scatter_and_gather(client)
        source, target = await addresses(client)
        before = await client.run(spillway.stats)
        future = client.submit(array_of, 1, 30 * MIB, workers=[source])
        got = await client.submit(described, future, workers=[target])
        after = await client.run(spillway.stats)
    assert got == {
        "sum": int(array_of(1, 30 * MIB).sum(dtype="u8")),
        "writeable": True,
        "aligned": True,
        "owner": "spillway._native",
    }
    for stats in after.values():
        assert stats["parts"]["transport"] == {"on": True, "why_off": None}
    assert 30 * MIB < moved(before, after, "sent")[source] < 31 * MIB
    assert 30 * MIB < moved(before, after, "received")[target] < 31 * MIB
    assert moved(before, after, "received")[source] < MIB


async def test_protocol_spillway_needs_no_enable():
    async with cluster(protocol="spillway") as client:
        assert client.scheduler.address.startswith("spillway://")
        source, target = await addresses(client)
        assert source.startswith("spillway://127.0.0.1:")
        future = client.submit(array_of, 1, 3 * MIB, workers=[source])
        got = await client.submit(described, future, workers=[target])
        assert got["owner"] == "spillway._native"
        stats = await client.run(spillway.stats)
        assert min(s["bytes"]["received"] for s in stats.values()) > 0
        assert max(s["bytes"]["sent"] for s in stats.values()) > 3 * MIB


async def test_restart():
    enable()
    async with cluster() as client:
        before = await client.run(os.getpid)
        await client.restart(timeout=60)
        after = await client.run(os.getpid)
        assert not set(before.values()) & set(after.values())
        assert await client.submit(sum, [1, 2]) == 3
        stats = await client.run(spillway.stats)
        assert all(s["parts"]["transport"]["on"] for s in stats.values())


class DiesWhileItIsSent:
    """Sent the first time, it kills its process once some of its bytes are out."""

    def __init__(self, mark, array):
        self.mark = mark
        self.array = array

    def __reduce__(self):
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            start = spillway.stats()["bytes"]["sent"]
            threading.Thread(target=die_after, args=(start + MIB,)).start()
        return DiesWhileItIsSent, (self.mark, self.array)


def die_after(bytes_sent):
    while spillway.stats()["bytes"]["sent"] < bytes_sent:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def make_dying(mark):
    return DiesWhileItIsSent(mark, array_of(5, 300 * MIB))


def sum_of(value):
    return int(value.array.sum(dtype="u8"))


async def test_a_worker_killed_while_it_sends_is_made_up_for(tmp_path):
    enable()
    mark = str(tmp_path / "has died")
    async with cluster() as client:
        source, target = await addresses(client)
        options = {"workers": [source], "allow_other_workers": True}
        future = client.submit(make_dying, mark, **options)
        await wait(future)
        total = await client.submit(sum_of, future, workers=[target])
        assert total == int(array_of(5, 300 * MIB).sum(dtype="u8"))
        assert os.path.exists(mark)
        stats = (await client.run(spillway.stats, workers=[target]))[target]
        assert stats["budget"]["in_flight"] == 0


async def test_two_clusters_in_one_process():
    enable()
    async with cluster(workers=1) as one:
        async with cluster(workers=1) as other:
            results = await asyncio.gather(
                one.submit(array_of, 1, MIB), other.submit(array_of, 2, MIB)
            )
            for seed, array in enumerate(results, 1):
                assert (array == array_of(seed, MIB)).all()
        assert await one.submit(sum, [1, 2]) == 3


def test_several_loops_in_threads():
    """Each loop has connections of its own; the library is shared."""
    wrong = []

    async def trade(number):
        async with comms(OURS, OURS) as (near, far):
            for step in range(20):
                array = array_of(number * 100 + step, 300_000)
                got = await exchanged(near, far, {"x": to_serialize(array), "n": step})
                if got["n"] != step or not (got["x"] == array).all():
                    wrong.append((number, step))

    def run(number):
        try:
            asyncio.run(trade(number))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Deployed by Dask's own commands


@contextlib.contextmanager
def dask_command(*arguments):
    path = os.pathsep.join(filter(None, sys.path))  # for what is pickled by reference
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # stock Dask can miss a signal at its end
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def deployed(tmp_path, scheduler, workers):
    """A scheduler and workers with the given arguments, and a client."""
    file = tmp_path / "scheduler.json"
    with contextlib.ExitStack() as stack:
        where = ("--scheduler-file", str(file), "--dashboard-address", ":0")
        stack.enter_context(dask_command("scheduler", *where, *scheduler))
        async with Client(scheduler_file=str(file), asynchronous=True) as client:
            for name, arguments in enumerate(workers):
                common = ("--name", f"w{name}", "--nthreads", "1", "--no-dashboard")
                place = (client.scheduler.address,)
                stack.enter_context(dask_command("worker", *place, *common, *arguments))
            await client.wait_for_workers(len(workers), timeout=60)
            yield client


PRELOAD = ("--preload", "spillway.dask.preload")
LOOPBACK = ("--host", "127.0.0.1", "--port", "0")


@pytest.mark.parametrize(
    "scheduler", [(), PRELOAD], ids=["stock scheduler", "spillway scheduler"]
)
async def test_stock_and_spillway_workers_trade_arrays(tmp_path, scheduler):
    async with deployed(
        tmp_path, (*LOOPBACK, *scheduler), [PRELOAD, ("--no-nanny",)]
    ) as client:
        info = (await client.scheduler.identity())["workers"]
        by_name = {worker["name"]: address for address, worker in info.items()}
        ours, stock = by_name["w0"], by_name["w1"]
        for source, target in ((ours, stock), (stock, ours)):
            size = 80 * MIB  # more than a shard
            future = client.submit(array_of, 3, size, workers=[source], pure=False)
            got = await client.submit(described, future, workers=[target], pure=False)
            assert got["sum"] == int(array_of(3, size).sum(dtype="u8"))
            assert got["writeable"]
            assert (got["owner"] == "spillway._native") == (target == ours)
        stats = await client.run(spillway.stats)
        assert stats[ours]["bytes"]["sent"] > 80 * MIB
        assert stats[ours]["bytes"]["received"] > 80 * MIB
        assert stats[stock]["bytes"] == {"sent": 0, "received": 0}


@pytest.mark.parametrize(
    ("scheduler", "worker"),
    [
        (("--host", "spillway://[::1]:0"), ("--nanny",)),
        (("--protocol", "spillway", *LOOPBACK), ("--interface", "lo", "--no-nanny")),
    ],
    ids=["IPv6, with nannies", "interface, without"],
)
async def test_the_scheme_spillway_on_the_command_line(tmp_path, scheduler, worker):
    async with deployed(tmp_path, scheduler, [worker] * 2) as client:
        assert client.scheduler.address.startswith("spillway://")
        source, target = await addresses(client)
        assert source.startswith("spillway://")
        future = client.submit(array_of, 1, 3 * MIB, workers=[source])
        got = await client.submit(described, future, workers=[target])
        assert got["owner"] == "spillway._native"
