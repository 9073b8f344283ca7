"""What tools/dask_suite/run_modules.py runs again, and what it ends."""

import asyncio
import importlib
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSED, FAILED = {"outcome": "passed"}, {"outcome": "failed", "failure": "boom"}


@pytest.fixture
def run_modules(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools/dask_suite"))
    yield importlib.import_module("run_modules")
    for name in ("run_modules", "module_report", "report"):
        del sys.modules[name]


def run_again(run_modules, passes_at):
    """The runs of test a, which fails at first and over Spillway passes when alone for
    the time `passes_at`."""
    runs = {"stock": {"a": [PASSED], "b": [PASSED]}}
    runs["spillway"] = {"a": [FAILED], "b": [PASSED]}
    alone = []

    async def run_alone(plane, name, test):
        alone.append((plane, name, test))
        times = sum(before[0] == plane for before in alone)
        passes = plane == "stock" or times == passes_at
        runs[plane][test].append(PASSED if passes else FAILED)
        return True

    assert asyncio.run(run_modules.run_again(run_alone, lambda: runs))
    return alone


@pytest.mark.parametrize(("passes_at", "times"), [(1, 1), (2, 2), (9, 3)])
def test_what_failed_runs_alone_on_both_until_it_passes(run_modules, passes_at, times):
    assert run_again(run_modules, passes_at) == [
        (plane, f"alone-{attempt}-1", "a")
        for attempt in range(1, times + 1)
        for plane in ("stock", "spillway")
    ]


def fake_pytest(run_modules, monkeypatch, tmp_path, lines):
    script = tmp_path / "pytest_on.sh"
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    script.chmod(0o755)
    monkeypatch.setattr(run_modules, "PYTEST_ON", script)
    return run_modules.Suite(tmp_path)


@pytest.mark.parametrize(("status", "ended_well"), [(0, True), (1, False)])
def test_a_run_that_ends_badly_is_told(
    run_modules, monkeypatch, tmp_path, status, ended_well
):
    suite = fake_pytest(
        run_modules,
        monkeypatch,
        tmp_path,
        [f'echo "$@" >{tmp_path}/given', f"exit {status}"],
    )
    processors = os.sched_getaffinity(0)
    ran = asyncio.run(suite.run("stock", "test_t", "d/test_t.py", processors))
    assert ran is ended_well
    given = (tmp_path / "given").read_text().split()
    assert given == [
        str(tmp_path),
        "stock",
        f"{suite.runs}/stock/test_t",
        "d/test_t.py",
    ]


def test_what_a_run_leaves_behind_is_ended(run_modules, monkeypatch, tmp_path):
    """The child holds the write end of a pipe, which ends when the child does."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    suite = fake_pytest(
        run_modules, monkeypatch, tmp_path, [f"sleep 600 >&{write_end} &"]
    )
    create = asyncio.create_subprocess_exec

    def create_with_pipe(*command, **options):
        return create(*command, pass_fds=[write_end], **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create_with_pipe)
    assert asyncio.run(suite.run("stock", "t", "t.py", os.sched_getaffinity(0)))
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        assert pipe.read() == b""
