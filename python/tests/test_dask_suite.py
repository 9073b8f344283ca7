"""What tools/dask_suite/report.py takes for a failure, and what docs show of it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _load():
    file = ROOT / "tools/dask_suite/report.py"
    spec = importlib.util.spec_from_file_location("dask_suite_report", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


report = _load()
LISTED = report.CannotHold(("a",), "x.stream", "no attribute 'stream'", "because")
PASSED = {"outcome": "passed"}
AS_LISTED = {"outcome": "failed", "failure": "call: t.py:1: no attribute 'stream'"}


def judge(stock, ours, listed=(), whole=True):
    return report.judge(stock, ours, listed, whole)


def test_what_passes_on_both_is_no_problem():
    verdict = judge({"a": PASSED}, {"a": PASSED})
    assert (verdict.problems, verdict.excused, verdict.fail_on_stock) == ([], [], [])


@pytest.mark.parametrize("outcome", ["failed", "skipped", "xfailed", "started"])
def test_what_passes_on_stock_only_is_a_problem(outcome):
    verdict = judge({"a": PASSED}, {"a": {"outcome": outcome, "failure": "boom"}})
    assert verdict.problems == [f"a: {outcome}: boom"]


def test_what_was_not_run_is_a_problem():
    assert judge({"a": PASSED}, {}).problems == ["a: not run: "]


def test_what_fails_on_stock_is_no_problem_and_is_told():
    verdict = judge({"a": AS_LISTED}, {"a": AS_LISTED})
    assert (verdict.problems, verdict.fail_on_stock) == ([], ["a"])


def test_a_listed_test_is_excused():
    verdict = judge({"a": PASSED}, {"a": AS_LISTED}, [LISTED])
    assert (verdict.problems, verdict.excused) == ([], ["a"])


@pytest.mark.parametrize(
    "found",
    [
        {"outcome": "failed", "failure": "call: Failed: Timeout (>120.0s)"},
        {"outcome": "started"},
        PASSED,
    ],
)
def test_a_listed_test_is_excused_for_nothing_else(found):
    verdict = judge({"a": PASSED}, {"a": found}, [LISTED])
    assert len(verdict.problems) == 1 and verdict.excused == []


def test_a_listed_test_must_pass_on_stock():
    assert judge({}, {}, [LISTED]).problems
    assert judge({"a": AS_LISTED}, {"a": AS_LISTED}, [LISTED]).problems
    assert not judge({}, {}, [LISTED], whole=False).problems


def test_a_listed_test_without_parameters_is_listed_with_all_of_them():
    stock = {"a[1]": PASSED, "a[2]": PASSED}
    verdict = judge(stock, {"a[1]": AS_LISTED, "a[2]": AS_LISTED}, [LISTED])
    assert (verdict.problems, verdict.excused) == ([], ["a[1]", "a[2]"])
    verdict = judge(stock, {"a[1]": AS_LISTED, "a[2]": PASSED}, [LISTED])
    assert verdict.problems == ["a[2]: listed as one that cannot pass, and passes"]


def test_a_listed_test_that_fails_sometimes_may_pass():
    listed = report.CannotHold(("a",), "x", "boom", "because", sometimes=True)
    failed = {"outcome": "failed", "failure": "call: t.py:1: boom"}
    for found, excused in ((PASSED, []), (failed, ["a"])):
        verdict = judge({"a": PASSED}, {"a": found}, [listed])
        assert (verdict.problems, verdict.excused) == ([], excused)
    assert judge({"a": PASSED}, {"a": AS_LISTED}, [listed]).problems


def test_nothing_moved_is_told():
    some, none = {"sent": 2, "received": 2}, {"sent": 0, "received": 0}
    moved = {"pid": 1, "messages": some, "bytes": some}
    assert report.what_moved({**moved, "messages": none}, [moved]) is None
    assert "1 child processes sent 2 messages" in report.what_moved(
        moved, [moved, {**moved, "pid": 2}]
    )


def test_the_last_line_of_a_test_counts(tmp_path):
    file = tmp_path / "run.jsonl"
    file.write_text(
        '{"test": "a", "outcome": "started"}\n{"test": "a", "outcome": "passed"}\n'
        '{"test": "b", "outcome": "started"}\n'
    )
    outcomes = report.read_outcomes(file)
    assert [found["outcome"] for found in outcomes.values()] == ["passed", "started"]


def test_the_page_keeps_what_is_around_the_result():
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    assert report.put_into(page, "new", report.BEGIN, report.END) == page.replace(
        "old", "new"
    )
    with pytest.raises(SystemExit):
        report.put_into("a page without marks", "new", report.BEGIN, report.END)


def test_the_page_shows_the_list_as_it_is():
    page = (ROOT / "docs/dask_suite.md").read_text(encoding="utf-8")
    listed = report.read_cannot_hold(report.CANNOT_HOLD.read_text(encoding="utf-8"))
    assert listed
    for entry in listed:
        for test in entry.tests:
            assert f"- `{test}`" in page
        assert f"`{entry.assertion}`" in page
