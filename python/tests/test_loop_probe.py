"""The preload that says what runs in a process and how late its loop is, and who reads
what it leaves."""

import ast
import asyncio
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillway.compare import loop_probe, probe_files


class Server:
    """What Dask's servers are to the probe."""

    def __init__(self):
        self.workers = {}


class Worker(Server):
    pass


class Nanny(Server):
    pass


class Scheduler(Server):
    pass


class OwnWorker(Worker):
    """As a user derives one."""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv(loop_probe.DIRECTORY_VARIABLE, str(tmp_path))
    return tmp_path


async def run_beside(server, block_s=0.0):
    await loop_probe.dask_setup(server)
    await asyncio.sleep(2 * loop_probe.PERIOD_S)
    time.sleep(block_s)
    await asyncio.sleep(2 * loop_probe.PERIOD_S)
    await loop_probe.dask_teardown(server)
    await asyncio.sleep(0)


async def test_a_loop_that_was_blocked_was_late(directory):
    await run_beside(OwnWorker(), block_s=0.3)
    found = probe_files.read(directory)
    assert found.roles == {os.getpid(): {"worker"}}
    assert found.worst_lag_s["worker"] > 0.27


async def test_the_worst_of_all_workers_counts(directory):
    await run_beside(Worker(), block_s=0.3)
    await run_beside(Worker())
    assert probe_files.read(directory).worst_lag_s["worker"] > 0.27


async def test_teardown_ends_it(directory):
    before = len(asyncio.all_tasks())
    await run_beside(Worker())
    assert len(asyncio.all_tasks()) == before


async def test_a_nanny_is_told_and_not_measured(directory):
    await run_beside(Nanny())
    found = probe_files.read(directory)
    assert found.roles == {os.getpid(): {"nanny"}} and found.worst_lag_s == {}


async def test_workers_without_the_probe_are_known_by_their_scheduler(directory):
    scheduler = Scheduler()
    scheduler.workers = {
        "tcp://a:1": SimpleNamespace(pid=os.getpid()),
        "tcp://a:2": SimpleNamespace(pid=17),
    }
    await run_beside(Worker())
    await run_beside(scheduler)
    found = probe_files.read(directory)
    assert found.unprobed == {17}
    assert found.roles == {os.getpid(): {"worker", "scheduler"}, 17: {"worker"}}
    assert found.worst_lag_s["scheduler"] >= 0


def test_it_needs_nothing_that_stock_does_not_have():
    tree = ast.parse(Path(loop_probe.__file__).read_text())
    imported = {
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))
