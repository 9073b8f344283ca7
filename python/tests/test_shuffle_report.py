"""What tools/dask_suite/shuffle_report.py makes of the runs with each buffer."""

import importlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = "distributed/shuffle/tests/test_shuffle.py::test_a"
PASSED = {"outcome": "passed"}
FAILED = {"outcome": "failed", "failure": "call: t.py:1: boom"}


@pytest.fixture
def shuffle_report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools/dask_suite"))
    yield importlib.import_module("shuffle_report")
    for name in ("shuffle_report", "report"):
        del sys.modules[name]


@pytest.fixture
def runs(shuffle_report):
    """All pass, and shuffle once."""
    names = ("stock", *shuffle_report.BUFFERS)
    return {
        name: shuffle_report.Run({TEST: PASSED}, {TEST: 1}, Counter(runs=1))
        for name in names
    }


def test_who_passes_on_our_engine_in_each_buffer_is_no_problem(shuffle_report, runs):
    assert shuffle_report.judge(runs, [], whole=True) == ([], set())


@pytest.mark.parametrize("buffer", ["auto", "memory", "disk"])
def test_each_buffer_is_held_against_stock(shuffle_report, runs, buffer):
    runs[buffer].outcomes[TEST] = FAILED
    problems, _ = shuffle_report.judge(runs, [], whole=True)
    assert problems == [f"`{buffer}`: {TEST}: failed: {FAILED['failure']}"]


def test_who_passes_without_our_engine_is_a_problem(shuffle_report, runs):
    runs["disk"].shuffles.clear()
    problems, _ = shuffle_report.judge(runs, [], whole=True)
    assert problems == [f"`disk`: {TEST}: passed, and not on our engine"]
    runs["stock"].shuffles.clear()  # one that does not shuffle at all is none
    assert shuffle_report.judge(runs, [], whole=True) == ([], set())


def test_a_listed_test_is_excused_in_each_buffer(shuffle_report, runs):
    for buffer in shuffle_report.BUFFERS:
        runs[buffer].outcomes[TEST] = FAILED
        runs[buffer].shuffles.clear()
    listed = [shuffle_report.CannotHold((TEST,), "a == b", "boom", "because")]
    problems, excused = shuffle_report.judge(runs, listed, whole=True)
    assert (problems, excused) == ([], {TEST})
    text = shuffle_report.result(runs, problems, excused, listed, "somewhere")
    assert "### Cannot pass: 1" in text and "`a == b`: because" in text


def test_the_page_says_what_each_module_and_buffer_did(shuffle_report, runs):
    runs["memory"].outcomes["dask/dataframe/tests/test_shuffle.py::test_b"] = FAILED
    runs["stock"].outcomes["dask/dataframe/tests/test_shuffle.py::test_b"] = {
        "outcome": "started"
    }
    text = shuffle_report.result(runs, [], set(), [], "somewhere")
    counts = "1 passed, 0 failed"
    assert f"| distributed/shuffle/test_shuffle |{f' {counts} |' * 4}\n" in text
    assert (
        "| dask/dataframe/test_shuffle | 0 passed, 1 failed | 0 passed, 0 failed "
        "| 0 passed, 1 failed | 0 passed, 0 failed |"
    ) in text
    assert "- `disk`: 1 passing tests with 1 runs of our engine" in text
    assert "### Do not pass on stock either: 1" in text


def test_who_passes_when_run_again_is_told(shuffle_report, runs):
    runs["disk"].outcomes[TEST] = {**PASSED, "reruns": 1}
    runs["auto"].outcomes[TEST] = {**FAILED, "reruns": 2}
    assert shuffle_report.not_at_once(runs) == [f"`{TEST}`: disk, failed 1 of 2 times"]


def write_piece(folder, name, when, outcomes, runs, figures):
    """What pytest_on.sh leaves of a piece; it has ended in the second `when`."""
    prefix = folder / name
    prefix.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"test": test, **found}) for test, found in outcomes.items()]
    prefix.with_suffix(".jsonl").write_text("\n".join(lines))
    os.utime(prefix.with_suffix(".jsonl"), (when, when))
    if runs is not None:
        prefix.with_suffix(".runs.json").write_text(json.dumps(runs))
    if figures is not None:
        text = json.dumps({"shuffle": figures})
        prefix.with_suffix(".figures.json").write_text(text)


def test_a_run_is_read_from_all_its_pieces(shuffle_report, tmp_path):
    figures = dict.fromkeys(shuffle_report.DID, 3)
    write_piece(tmp_path, "auto/a/test_a", 10, {"a": PASSED}, {"a": 2}, figures)
    write_piece(tmp_path, "auto/b/test_b", 20, {"b": FAILED}, {"b": 1}, figures)
    auto = shuffle_report.read_run(tmp_path, "auto")
    assert auto.outcomes == {"a": {"test": "a", **PASSED}, "b": {"test": "b", **FAILED}}
    assert auto.shuffles == {"a": 2, "b": 1}
    assert auto.did == dict.fromkeys(shuffle_report.DID, 6)
    write_piece(tmp_path, "stock/a/test_a", 10, {"a": PASSED}, {"a": 2}, None)
    stock = shuffle_report.read_run(tmp_path, "stock")
    assert stock.outcomes == {"a": {"test": "a", **PASSED}}
    assert not any(stock.did.values())


def test_a_test_has_the_outcome_of_the_piece_that_ended_last(shuffle_report, tmp_path):
    again = {"a": {**FAILED, "reruns": 2}}
    write_piece(tmp_path, "disk/named-1", 30, {"a": PASSED}, {"a": 1}, None)
    write_piece(tmp_path, "disk/z/test_a", 10, again, {}, None)
    disk = shuffle_report.read_run(tmp_path, "disk")
    assert disk.outcomes == {"a": {"test": "a", **PASSED, "reruns": 3}}
    assert disk.shuffles == {"a": 1}


def test_who_passed_before_as_well_did_not_fail(shuffle_report, tmp_path):
    write_piece(tmp_path, "auto/z/test_a", 10, {"a": PASSED}, {"a": 1}, None)
    write_piece(tmp_path, "auto/named-1", 30, {"a": PASSED}, {"a": 1}, None)
    auto = shuffle_report.read_run(tmp_path, "auto")
    assert auto.outcomes == {"a": {"test": "a", **PASSED}}


def test_a_piece_that_was_ended_has_its_outcomes(shuffle_report, tmp_path):
    write_piece(tmp_path, "auto/a", 10, {"a": {"outcome": "started"}}, None, None)
    auto = shuffle_report.read_run(tmp_path, "auto")
    assert auto.outcomes == {"a": {"test": "a", "outcome": "started"}}
    assert auto.shuffles == {} and not any(auto.did.values())


def test_the_list_of_what_cannot_pass_can_be_read(shuffle_report):
    text = shuffle_report.CANNOT_HOLD.read_text(encoding="utf-8")
    listed = shuffle_report.suite_report.read_cannot_hold(text)
    assert all(entry.tests and entry.failure for entry in listed)
    assert [entry.sometimes for entry in listed].count(True) == 1
