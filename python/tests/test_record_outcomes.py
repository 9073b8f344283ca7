"""What tools/dask_suite/record_outcomes.py leaves of tests that pytest runs again."""

import importlib.util
import io
import json
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "tools/dask_suite/record_outcomes.py"


@pytest.fixture
def record_outcomes():
    spec = importlib.util.spec_from_file_location("record_outcomes", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attempt(recorder, number, call):
    """What pytest-rerunfailures has pytest report of one run of a test."""
    recorder.pytest_runtest_logstart("t")
    for when in ("setup", "call", "teardown"):
        outcome = call if when == "call" else "passed"
        report = pytest.TestReport("t", ("t.py", 1, "t"), {}, outcome, None, when)
        report.rerun = number
        recorder.pytest_runtest_logreport(report)


@pytest.mark.parametrize("last", ["passed", "failed"])
def test_what_is_run_again_has_an_outcome_when_it_is_over(record_outcomes, last):
    record = io.StringIO()
    recorder = record_outcomes.Recorder(record)
    for number, call in enumerate(["rerun", "rerun", last]):
        attempt(recorder, number, call)
    attempt(recorder, 0, "passed")
    lines = [json.loads(line) for line in record.getvalue().splitlines()]
    assert [line["outcome"] for line in lines] == [
        *["started"] * 3,
        last,
        "started",
        "passed",
    ]
    assert [line.get("reruns") for line in lines] == [None] * 3 + [2, None, None]
