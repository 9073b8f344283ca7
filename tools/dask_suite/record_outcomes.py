"""A pytest plugin: leaves the outcome of each test in a file as the test ends.

    -p record_outcomes --record FILE --expect-distributed VERSION

One JSON object a line: {"test": id, "outcome": word, "failure": text}. A line with the
outcome "started" comes first, so a test that takes its process down is known as well.
Lines of one test replace the earlier ones. When pytest has run it again (--reruns) the
line has "reruns" too, how often.
"""

import json
from pathlib import Path
from typing import Any, TextIO

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, required=True)
    parser.addoption("--expect-distributed", required=True)


def pytest_configure(config: pytest.Config) -> None:
    check_distributed(config.getoption("--expect-distributed"), config.rootpath)
    record = config.getoption("--record").open("w", encoding="utf-8")
    config.pluginmanager.register(Recorder(record))
    config.add_cleanup(record.close)


def check_distributed(version: str, root: Path) -> None:
    """Refuse another distributed than the one that the tests were laid over."""
    import distributed

    found = f"{distributed.__version__} in {Path(distributed.__file__).parent.parent}"
    if found != f"{version} in {root}":
        raise pytest.UsageError(
            f"the suite is for distributed {version} in {root}, this is {found}"
        )


class Recorder:
    """Sums up the phases of each test: set-up, the test itself, tear-down."""

    def __init__(self, record: TextIO) -> None:
        self._record = record
        self._reports: list[pytest.TestReport] = []
        self._runs_again = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._reports = []
        self._runs_again = False
        self._write(test=nodeid, outcome="started")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._runs_again |= report.outcome == "rerun"
        self._reports.append(report)
        if report.when == "teardown" and not self._runs_again:
            reruns = getattr(report, "rerun", 0)
            again = {"reruns": reruns} if reruns else {}
            self._write(test=report.nodeid, **sum_up(self._reports), **again)

    def _write(self, **line: Any) -> None:
        self._record.write(json.dumps(line) + "\n")
        self._record.flush()


def sum_up(reports: list[pytest.TestReport]) -> dict[str, str]:
    """One outcome for all phases of a test."""
    failed = [report for report in reports if report.failed]
    if failed:
        failure = "\n".join(describe(report) for report in failed)
        return {"outcome": "failed", "failure": failure}
    for report in reports:
        if hasattr(report, "wasxfail"):
            return {"outcome": "xfailed" if report.skipped else "xpassed"}
        if report.skipped:
            return {"outcome": "skipped"}
    return {"outcome": "passed"}


def describe(report: pytest.TestReport) -> str:
    """What was raised, and by which line of which file."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        return f"{report.when}: {report.longreprtext}"
    place = f"{Path(crash.path).name}:{crash.lineno}"
    return f"{report.when}: {place}: {crash.message}"
