"""Shuffles that lose what they count on, and what is left of them."""

import asyncio
import errno
import gc
import re
import time
import weakref
from types import SimpleNamespace

import pytest
from distributed.core import error_message
from distributed.protocol import dumps, loads
from distributed.shuffle._exceptions import P2PConsistencyError, ShuffleClosedError

import spillway
from spillway import _native
from spillway.dask import (
    shuffle_again,
    shuffle_errors,
    shuffle_memory,
    shuffle_peers,
    shuffle_pressure,
)
from spillway.dask.shuffle_message import Piece, Pieces
from spillway.dask.shuffle_run import DataFrameRun
from test_hook_shuffle import cluster, frame, whole

pytestmark = pytest.mark.timeout(120)

LIMIT_S = 30


async def test_a_run_goes_though_connections_stay(monkeypatch):
    runs = []
    init = DataFrameRun.__init__

    def note(run, *args):
        init(run, *args)
        runs.append(weakref.ref(run))

    monkeypatch.setattr(DataFrameRun, "__init__", note)
    async with cluster() as (client, _):
        out = await client.compute(frame().shuffle("key", npartitions=5))
        assert len(out) == len(whole())
        deadline = time.monotonic() + LIMIT_S
        while any(run() is not None for run in runs) and time.monotonic() < deadline:
            gc.collect()
            await asyncio.sleep(0.01)
        assert [run() for run in runs] == [None, None]


async def test_who_has_left_is_not_without_an_engine():
    class Scheduler:
        async def identity(self, n_workers):
            ours = {"spillway": {"shuffle_version": shuffle_peers.VERSION}}
            return {"workers": {"tcp://a": ours, "tcp://b": {}}}

    asked = ["tcp://a", "tcp://b", "tcp://left"]
    assert await shuffle_peers.without_engine(Scheduler(), asked) == ["tcp://b"]


class LoneWorker:
    """As much of one as a run needs to keep rows."""

    address = "tcp://a"
    memory_manager = SimpleNamespace(
        memory_limit=1 << 30, memory_target_fraction=0.6, memory_spill_fraction=0.7
    )

    def __init__(self, directory):
        self.local_directory = str(directory)


@pytest.mark.parametrize("repeats", [False, True])
def test_a_run_whose_loop_was_closed_without_it_lets_go(tmp_path, repeats):
    """As of a cluster in a process that is interrupted, and goes on."""
    shuffle_id = f"given-up-{repeats}"
    if repeats:
        shuffle_again.note(shuffle_id)
    worker, data = LoneWorker(tmp_path), whole().assign(place=0)
    spec = SimpleNamespace(
        id=shuffle_id, column="place", meta=data.iloc[:0], drop_column=True
    )
    spec.npartitions = 1

    async def begin():
        plugin = SimpleNamespace(worker=worker, _executor=None)
        run = DataFrameRun(spec, 1, {0: "tcp://a"}, None, plugin)
        run._keep_own(run._split(data, 0))
        assert of_now("open_runs") == before["open_runs"] + 1
        assert of_now("memory_bytes") > before["memory_bytes"]
        return run

    def of_now(name):
        return spillway.stats()["shuffle"][name]

    before = spillway.stats()["shuffle"]
    run = asyncio.run(begin())
    for name in ("open_runs", "memory_bytes"):
        assert of_now(name) == before[name]
    assert worker not in shuffle_pressure._watches
    assert run._again is None or run._again._file.closed
    with pytest.raises(ShuffleClosedError):
        run.get_output_partition(0, "key")


@pytest.mark.parametrize("phase", ["transfer", "barrier"])
async def test_a_full_disk_of_another_worker_is_told_at_once(monkeypatch, phase):
    full = OSError(errno.ENOSPC, "No space left on device")
    tries = []

    async def take(run, message):
        if phase == "barrier":  # when the tasks that send have ended
            while not run.transferred:
                await asyncio.sleep(0.01)
        tries.append(message.sequence)
        raise shuffle_errors.out_of_disk(full)

    monkeypatch.setattr(DataFrameRun, "_take", take)
    if phase == "transfer":
        monkeypatch.setattr(shuffle_memory, "outbox_bytes", lambda *_: 0)
    async with cluster() as (client, _):
        future = client.compute(frame().shuffle("key", npartitions=5))
        with pytest.raises(RuntimeError) as raised:
            await asyncio.wait_for(future, LIMIT_S)
    told = f"{raised.value}, by {raised.value.__cause__}"
    assert re.search("No space left .* larger disk", told), told
    # A message that is refused is not sent again, and each worker sends two at a time.
    assert len(tries) <= 2 * 2


def over(reason):
    """A run that is over."""
    run = object.__new__(DataFrameRun)
    vars(run).update(id="a", run_id=1, local_address="tcp://a", transferred=False)
    vars(run).update(closed=True, _exception=reason)
    return run


def test_what_fails_in_a_run_that_is_over_says_why_it_is():
    closed = _native.SpillwayError(0, "partitions are closed")
    for reason in (
        P2PConsistencyError("a[1] forgotten"),
        RuntimeError("a[1] forgotten"),
    ):
        with pytest.raises(P2PConsistencyError, match="forgotten"):
            with over(reason)._saying_why_it_is_over():
                raise closed
    with pytest.raises(ShuffleClosedError), over(None)._saying_why_it_is_over():
        raise closed
    run = over(None)
    run.closed = False
    with pytest.raises(OSError, match="are closed"), run._saying_why_it_is_over():
        raise closed


def test_why_a_run_is_over_keeps_nothing_of_whom_it_was_told():
    run = over(P2PConsistencyError("a[1] forgotten"))
    with pytest.raises(P2PConsistencyError) as raised:
        run.raise_if_closed()
    assert raised.value is not run._exception
    assert run._exception.__traceback__ is None


async def test_a_run_that_the_scheduler_does_not_know_any_more_is_said_to_be_stale():
    async def refuse(**_):
        return loads(dumps(error_message(P2PConsistencyError("Request stale"))))

    run = over(None)
    run.worker_for = {3: "tcp://b"}
    run._worker = SimpleNamespace(
        scheduler=SimpleNamespace(shuffle_restrict_task=refuse)
    )
    with pytest.raises(P2PConsistencyError, match="Request stale"):
        await run._ensure_output_worker(3, "key")


async def test_rows_of_a_layout_that_is_not_here_are_said_to_be_missing():
    run = over(None)
    vars(run).update(closed=False, _taken={}, _foreign_layouts={})
    message = Pieces("tcp://b", 1, [Piece(7, 0, 1, b"", b"", b"")])
    with pytest.raises(RuntimeError, match="lacks rows: of input 7 tcp://b sent"):
        await run.receive(message)
    assert "lacks rows" in str(run._exception)
