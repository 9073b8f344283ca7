"""What tools/dask_suite/module_report.py makes of several runs of one test."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSED, SKIPPED = {"outcome": "passed"}, {"outcome": "skipped"}
FAILED = {"outcome": "failed", "failure": "call: t.py:1: boom\nteardown: t.py:2: more"}


@pytest.fixture
def module_report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools/dask_suite"))
    yield importlib.import_module("module_report")
    for name in ("module_report", "report"):
        del sys.modules[name]


def runs_of(stock, ours):
    return {"stock": {"t.py::a": stock}, "spillway": {"t.py::a": ours}}


@pytest.mark.parametrize(
    ("stock", "ours", "again"),
    [
        ([PASSED], [PASSED], False),
        ([SKIPPED], [SKIPPED], False),
        ([PASSED], [FAILED], True),
        ([FAILED], [PASSED], True),
        ([FAILED], [FAILED], True),
        ([PASSED], [SKIPPED], True),
        ([PASSED], [{"outcome": "started"}], True),
        ([PASSED], [], True),
        ([PASSED, PASSED], [FAILED, PASSED], False),
        ([PASSED, FAILED], [FAILED, PASSED], False),
    ],
)
def test_a_test_runs_again_until_it_passed_on_both(module_report, stock, ours, again):
    assert module_report.unsettled(runs_of(stock, ours)) == ["t.py::a"] * again


def test_a_test_that_only_one_plane_knows_is_not_run_on_the_other(module_report):
    stock, ours = module_report.settle(
        {"stock": {}, "spillway": {"t.py::a": [PASSED, FAILED]}}
    )
    assert stock == {"t.py::a": {"outcome": "not run"}}
    assert ours == {"t.py::a": PASSED}


def test_a_failure_that_does_not_stay_is_told_with_its_count(module_report):
    (line,) = module_report.unsteady(runs_of([PASSED, PASSED], [FAILED, PASSED]))
    assert (
        line == "`t.py::a`: 0 of 2 on stock, 1 of 2 over Spillway: call: t.py:1: boom"
    )
    assert module_report.unsteady(runs_of([PASSED], [PASSED])) == []
    # This one is a difference, and told as that.
    assert module_report.unsteady(runs_of([PASSED], [FAILED])) == []


def test_the_table_counts_by_module(module_report):
    stock = {
        "d/test_x.py::a": PASSED,
        "d/test_x.py::b": PASSED,
        "test_y.py::c": SKIPPED,
    }
    ours = {**stock, "d/test_x.py::b": {"outcome": "not run"}}
    rows = module_report.table(stock, ours, ["d/test_x.py::b: not run: "])
    assert [row.split(" | ")[1:] for row in rows[2:]] == [
        ["2 passed, 0 failed, 0 skipped", "1 passed, 1 failed, 0 skipped", "1 |"],
        ["0 passed, 0 failed, 1 skipped", "0 passed, 0 failed, 1 skipped", "0 |"],
    ]


def write_run(folder, plane, name, outcomes, moved=0):
    folder = folder / plane
    (folder / f"{name}.processes").mkdir(parents=True)
    lines = [json.dumps({"test": test, **found}) for test, found in outcomes.items()]
    (folder / f"{name}.jsonl").write_text("\n".join(lines))
    ways = {"sent": moved, "received": moved}
    figures = {"pid": 1, "messages": ways, "bytes": ways}
    if plane == "spillway":
        (folder / f"{name}.figures.json").write_text(json.dumps(figures))
        for pid in (1, 2):
            child = folder / f"{name}.processes" / f"{pid}.json"
            child.write_text(json.dumps({**figures, "pid": pid}))


def test_the_runs_of_a_test_are_in_their_order(module_report, tmp_path):
    for plane in ("stock", "spillway"):
        write_run(tmp_path, plane, "alone-2-1", {"t.py::a": SKIPPED})
        write_run(tmp_path, plane, "alone-1-1", {"t.py::a": PASSED})
        write_run(tmp_path, plane, "test_t", {"t.py::a": FAILED})
    for found in module_report.read_runs(tmp_path).values():
        outcomes = [run["outcome"] for run in found["t.py::a"]]
        assert outcomes == ["failed", "passed", "skipped"]


def test_a_module_that_moved_nothing_is_told(module_report, tmp_path):
    write_run(tmp_path, "spillway", "test_s", {}, moved=2)
    write_run(tmp_path, "spillway", "test_t", {}, moved=3)
    moved, idle = module_report.what_moved(tmp_path)
    assert "sent 5 messages" in moved and "2 child processes sent 5 messages" in moved
    assert idle == []
    write_run(tmp_path, "spillway", "test_u", {})
    assert module_report.what_moved(tmp_path)[1] == ["test_u"]


@pytest.mark.parametrize(("ours", "status"), [(PASSED, 0), (FAILED, 1)])
def test_the_report_fails_for_a_difference(module_report, tmp_path, ours, status):
    write_run(tmp_path, "stock", "test_t", {"test_t.py::a": PASSED})
    write_run(tmp_path, "spillway", "test_t", {"test_t.py::a": ours}, moved=1)
    page = tmp_path / "page.md"
    page.write_text(f"before\n{module_report.BEGIN}\nold\n{module_report.END}\nafter\n")
    assert module_report.report(tmp_path, "1.0", False, page) == status
    assert f"and not on Spillway: {status}\n" in page.read_text()
    assert "old" not in page.read_text()


def test_the_report_fails_when_a_module_moved_nothing(module_report, tmp_path):
    for plane in ("stock", "spillway"):
        write_run(tmp_path, plane, "test_t", {"test_t.py::a": PASSED})
    assert module_report.report(tmp_path, "1.0", False, None) == 1
