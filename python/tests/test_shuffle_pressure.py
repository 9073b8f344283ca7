"""Rows of shuffles leave memory while their worker's process has too much."""

import asyncio
import logging

import pytest
from distributed.core import Status
from distributed.shuffle._exceptions import P2PConsistencyError

from spillway.dask import shuffle_pressure
from spillway.dask.shuffle_errors import out_of_disk
from spillway.dask.shuffle_pressure import LEAST_BYTES, Watch
from spillway.dask.shuffle_run import DataFrameRun
from test_hook_shuffle import Counted, cluster, frame, sorted_rows, whole

pytestmark = pytest.mark.timeout(60)

MIB = 1 << 20
AIM = 600 * MIB


class Process:
    """A worker with as much memory as a test says."""

    nbytes = 0
    status = Status.running

    @property
    def monitor(self):
        return self

    def get_process_memory(self):
        return self.nbytes


class Run:
    """Notes what it is told."""

    def __init__(self, held, error=None):
        self.held_bytes, self.error = held, error
        self.limits, self.writes, self.reason = [], 0, None

    def limit_memory(self, nbytes):
        self.limits.append(nbytes)

    async def make_room(self):
        self.writes += 1
        if self.error is not None:
            raise self.error

    async def give_up(self, error):
        self.reason = error


@pytest.fixture
def shuffled(monkeypatch):
    """How much all shuffles of the process have."""
    budget = {"shuffled": 0}
    monkeypatch.setattr(shuffle_pressure._native, "figures", lambda: {"budget": budget})
    return budget


async def test_the_largest_writes_what_is_too_much_and_all_are_limited(shuffled):
    process, small, large = Process(), Run(40 * MIB), Run(100 * MIB)
    watch = Watch(process, AIM)
    watch.add(small)
    watch.add(large)
    shuffled["shuffled"] = 140 * MIB
    process.nbytes = AIM + 30 * MIB
    await watch.look()
    assert small.limits == large.limits == [110 * MIB]
    assert (small.writes, large.writes) == (0, 1)
    process.nbytes = AIM + 500 * MIB
    await watch.look()
    assert small.limits[1:] == large.limits[1:] == [LEAST_BYTES]
    process.nbytes = AIM
    await watch.look()
    assert small.limits[2:] == large.limits[2:] == [None]
    assert (small.writes, large.writes) == (0, 2)
    watch.remove(small)
    watch.remove(large)


async def test_little_is_left_alone(shuffled):
    process, run = Process(), Run(LEAST_BYTES)
    watch = Watch(process, AIM)
    watch.add(run)
    shuffled["shuffled"] = LEAST_BYTES
    process.nbytes = 2 * AIM
    await watch.look()
    assert run.limits == [] and run.writes == 0
    watch.remove(run)


async def test_who_cannot_write_keeps_its_rows(shuffled, caplog, monkeypatch):
    monkeypatch.setattr(shuffle_pressure, "TRY_AGAIN_S", 0)
    process, run = Process(), Run(100 * MIB, OSError("the disk is full"))
    watch = Watch(process, AIM)
    watch.add(run)
    shuffled["shuffled"] = 100 * MIB
    process.nbytes = 2 * AIM
    with caplog.at_level(logging.WARNING, "spillway"):
        for _ in range(3):
            await watch.look()
    assert run.limits == 3 * [LEAST_BYTES, None]
    assert caplog.text.count("the disk is full") == 1
    assert run.reason is None
    watch.remove(run)


async def test_a_full_disk_is_asked_again_after_a_while(shuffled):
    process, run = Process(), Run(100 * MIB, OSError("the disk is full"))
    watch = Watch(process, AIM)
    watch.add(run)
    shuffled["shuffled"] = 100 * MIB
    process.nbytes = 2 * AIM
    await watch.look()
    await watch.look()
    assert run.writes == 1
    watch.remove(run)


async def test_a_run_ends_that_would_keep_its_worker_paused(shuffled, monkeypatch):
    monkeypatch.setattr(shuffle_pressure, "TRY_AGAIN_S", 0)
    process, run = Process(), Run(100 * MIB, OSError("the disk is full"))
    watch = Watch(process, AIM)
    watch.add(run)
    shuffled["shuffled"] = 100 * MIB
    process.nbytes, process.status = 2 * AIM, Status.paused
    await watch.look()
    assert run.reason is None
    await watch.look()
    assert run.reason is run.error
    watch.remove(run)


async def test_rows_of_a_run_leave_before_values_do(monkeypatch):
    wrote = asyncio.Event()
    make_room, barrier = DataFrameRun.make_room, DataFrameRun.barrier

    async def make_room_and_tell(run):
        await make_room(run)
        wrote.set()

    async def barrier_behind_it(run, run_ids):
        await wrote.wait()
        return await barrier(run, run_ids)

    monkeypatch.setattr(shuffle_pressure, "LEAST_BYTES", 1000)
    monkeypatch.setattr(DataFrameRun, "make_room", make_room_and_tell)
    monkeypatch.setattr(DataFrameRun, "barrier", barrier_behind_it)
    async with cluster(memory_limit="4GiB") as (client, workers):
        for worker in workers:  # above the target, and below where values leave
            worker.monitor.get_process_memory = lambda: int(0.65 * (4 << 30))
        with Counted() as did:
            out = await client.compute(frame().shuffle("key", npartitions=5))
    assert did.written_bytes == did.read_bytes > 0
    assert sorted_rows(out).equals(whole())


async def test_a_run_that_has_ended_fails_its_tasks_and_no_later_ones(monkeypatch):
    barrier = DataFrameRun.barrier

    async def end_before_it(run, run_ids):
        await run.give_up(out_of_disk(OSError(28, "no space left")))
        return await barrier(run, run_ids)

    async with cluster() as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr(DataFrameRun, "barrier", end_before_it)
            with pytest.raises(P2PConsistencyError, match="no space left"):
                await client.compute(frame().shuffle("key", npartitions=5))
        out = await client.compute(frame().shuffle("key", npartitions=6))
    assert sorted_rows(out).equals(whole())
