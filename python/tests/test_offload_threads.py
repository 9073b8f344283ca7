"""Threads for offloaded work: several, as needed, in nobody's way."""

import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest
from distributed.metrics import context_meter

from spillway.dask import offload_threads
from spillway.dask.offload_threads import OffloadThreads, in_thread

PATIENCE_S = 30


def threads_of(pool):
    """The names of the threads in which its work is."""
    return {pool.submit(threading.current_thread).result(PATIENCE_S).name}


def test_there_is_none_until_there_is_work():
    def count():
        return sum(t.name.startswith("spillway-offload") for t in threading.enumerate())

    before = count()
    pool = OffloadThreads(3)
    assert count() == before
    assert threads_of(pool) == {"spillway-offload-1"}
    assert count() == before + 1


def test_one_is_enough_for_work_that_comes_in_turn():
    pool = OffloadThreads(3)
    first = pool.submit(threading.current_thread).result(PATIENCE_S)
    waiting = threading.Event()
    # It waits again once it has begun something else.
    pool.submit(waiting.set).result(PATIENCE_S)
    assert threads_of(pool) <= {first.name, "spillway-offload-2"}


def test_work_runs_side_by_side_up_to_the_limit():
    pool = OffloadThreads(3)
    together = threading.Barrier(3)
    met = [pool.submit(together.wait, PATIENCE_S) for _ in range(6)]
    assert sorted(one.result(PATIENCE_S) for one in met) == [0, 0, 1, 1, 2, 2]
    assert pool._count == 3


def test_a_thread_without_work_ends(monkeypatch):
    monkeypatch.setattr(offload_threads, "IDLE_S", 0.01)
    pool = OffloadThreads(2)
    together = threading.Barrier(2)

    def work():
        together.wait(PATIENCE_S)
        return threading.current_thread()

    for _ in range(3):
        working = [pool.submit(work) for _ in range(2)]
        threads = {one.result(PATIENCE_S) for one in working}
        assert len(threads) == 2
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    assert pool._count == 0


def test_what_came_first_begins_first():
    pool = OffloadThreads(1)
    gate, begun = threading.Event(), []
    held = pool.submit(gate.wait, PATIENCE_S)
    done = [pool.submit(begun.append, number) for number in range(20)]
    gate.set()
    held.result(PATIENCE_S)
    for one in done:
        one.result(PATIENCE_S)
    assert begun == list(range(20))


def test_errors_are_the_callers():
    pool = OffloadThreads(1)
    failed = pool.submit(int, "x")
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result(PATIENCE_S)
    assert pool.submit(int, "5").result(PATIENCE_S) == 5


def test_what_is_cancelled_before_it_began_does_not_run():
    pool = OffloadThreads(1)
    gate, ran = threading.Event(), []
    held = pool.submit(gate.wait, PATIENCE_S)
    cancelled = pool.submit(ran.append, 1)
    assert cancelled.cancel()
    gate.set()
    held.result(PATIENCE_S)
    pool.submit(ran.append, 2).result(PATIENCE_S)
    assert ran == [2]


async def test_in_thread_has_the_callers_context():
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("mine")
    digested = []

    def work(number):
        with context_meter.meter("work"):
            return number, variable.get(), threading.current_thread().name

    with context_meter.add_callback(
        lambda *args: digested.append(args[0]), allow_offload=True
    ):
        number, value, thread = await in_thread(work, 7)
    await asyncio.sleep(0)  # the thread's metrics are digested by the loop
    assert (number, value) == (7, "mine")
    assert thread.startswith("spillway-offload-")
    assert sorted(digested) == ["offload", "work"]


def test_a_forked_child_has_threads_of_its_own():
    script = (
        "import os, threading\n"
        "from spillway.dask.offload_threads import OffloadThreads\n"
        "pool = OffloadThreads(2)\n"
        "gate = threading.Event()\n"
        "held = pool.submit(gate.wait)\n"
        "queued = [pool.submit(gate.wait) for _ in range(3)]\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os._exit(pool.submit(int, '5').result(30))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
        "gate.set(); held.result(30)\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert shown == "5\n"


@pytest.mark.timeout(60)
def test_an_ending_interpreter_does_not_wait_for_work():
    script = (
        "import threading\n"
        "from spillway.dask.offload_threads import OffloadThreads\n"
        "pool = OffloadThreads(2)\n"
        "begun = threading.Event()\n"
        "pool.submit(lambda: (begun.set(), threading.Event().wait()))\n"
        "for _ in range(5): pool.submit(threading.Event().wait)\n"
        "begun.wait()\n"
        "print('ends')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
