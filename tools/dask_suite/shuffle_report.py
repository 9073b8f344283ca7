"""Compares Dask's tests that shuffle, over Spillway with each buffer, with stock Dask.

    shuffle_report.py FOLDER --tests-from TEXT [--whole] [--docs FILE]

FOLDER is what `tools/dask_suite.sh --shuffles` left, in a folder for stock and for each
buffer. Of each piece, which is a module or tests that were run again, it has the
outcomes (.jsonl, by record_outcomes.py) and which tests shuffled (.runs.json, by
shuffle_runs.py), and of each buffer the test process's spillway.stats()
(.figures.json). Writes FOLDER/result.md, and with --docs puts it into that file. Exits
with 1 when report.py would, or a test shuffles on stock and not on our engine.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report as suite_report
from report import CannotHold, Outcomes

BUFFERS = ("auto", "memory", "disk")
CANNOT_HOLD = Path(__file__).with_name("cannot_hold_shuffles.toml")
DID = ("runs", "rows_in", "sent_bytes", "written_bytes")
BEGIN = (
    "<!-- The result of shuffles, by tools/dask_suite.sh --shuffles --update-docs -->"
)
END = "<!-- End of the result of shuffles -->"


@dataclass(frozen=True)
class Run:
    """All the tests, once."""

    outcomes: Outcomes
    shuffles: dict[str, int]
    """Runs of shuffles by test, in the test process."""
    did: Counter[str]
    """What our engine did, by the figures of spillway.stats(); on stock nothing."""


def read_run(folder: Path, name: str) -> Run:
    """All pieces of one. A test that is in several has the outcome of the last one."""
    run = Run({}, {}, Counter())
    pieces = sorted((folder / name).rglob("*.jsonl"), key=_when)
    for piece in pieces:
        for test, found in suite_report.read_outcomes(piece).items():
            earlier = run.outcomes.get(test, {"outcome": "passed"})
            failed = earlier.get("reruns", 0) + (
                earlier["outcome"] in ("failed", "started")
            )
            if failed:
                found["reruns"] = found.get("reruns", 0) + failed
            run.outcomes[test] = found
        run.shuffles.update(_read(piece.with_suffix(".runs.json"), {}))
        figures = _read(piece.with_suffix(".figures.json"), {"shuffle": {}})
        run.did.update({what: figures["shuffle"].get(what, 0) for what in DID})
    return run


def _when(file: Path) -> int:
    return file.stat().st_mtime_ns


def _read(file: Path, otherwise: Any) -> Any:
    """What is in a file, which a piece that was ended has not left."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else otherwise


def without_our_engine(stock: Run, ours: Run) -> list[str]:
    """The tests that shuffle on stock, and passed over Spillway with no run of ours."""
    return [
        test
        for test in stock.shuffles
        if ours.outcomes.get(test, {}).get("outcome") == "passed"
        and test not in ours.shuffles
    ]


def what_ran(ours: Run) -> str:
    """A line on what our engine did."""
    did = ours.did
    passed = sum(
        ours.outcomes[test]["outcome"] == "passed"
        for test in ours.shuffles
        if test in ours.outcomes
    )
    return (
        f"{passed} passing tests with {did['runs']:,} runs of our engine: "
        f"{did['rows_in']:,} rows in, {did['sent_bytes'] / 1e6:,.0f} MB sent, "
        f"{did['written_bytes'] / 1e6:,.0f} MB written to disk"
    )


def table(runs: dict[str, Run]) -> list[str]:
    """How many tests of each module passed and did not, as Markdown."""
    rows = [
        f"| module | {' | '.join(runs)} |",
        f"| --- |{' --- |' * len(runs)}",
    ]
    modules = dict.fromkeys(map(_module, runs["stock"].outcomes))
    for module in modules:
        cells = []
        for run in runs.values():
            count = Counter(
                found["outcome"]
                for test, found in run.outcomes.items()
                if _module(test) == module
            )
            # A run that was ended leaves tests that have only started.
            count["failed"] += count.pop("started", 0)
            found = {"passed": 0, "failed": 0, **count}
            cells.append(
                ", ".join(f"{number} {what}" for what, number in found.items())
            )
        rows.append(f"| {module} | {' | '.join(cells)} |")
    return rows


def _module(test: str) -> str:
    file = Path(test.partition("::")[0])
    return str(file.parent.parent / file.stem)


def judge(
    runs: dict[str, Run], listed: list[CannotHold], whole: bool
) -> tuple[list[str], set[str]]:
    """The problems of all buffers, and the tests that are excused."""
    stock, problems, excused = runs["stock"], [], set()
    for buffer in BUFFERS:
        ours = runs[buffer]
        verdict = suite_report.judge(stock.outcomes, ours.outcomes, listed, whole)
        problems += [f"`{buffer}`: {problem}" for problem in verdict.problems]
        problems += [
            f"`{buffer}`: {test}: passed, and not on our engine"
            for test in without_our_engine(stock, ours)
        ]
        excused |= set(verdict.excused)
    return problems, excused


def not_at_once(runs: dict[str, Run]) -> list[str]:
    """The tests that passed when they were run again, as Markdown."""
    return [
        f"`{test}`: {name}, failed {found['reruns']} of {found['reruns'] + 1} times"
        for name, run in runs.items()
        for test, found in run.outcomes.items()
        if found["outcome"] == "passed" and found.get("reruns")
    ]


def result(
    runs: dict[str, Run],
    problems: list[str],
    excused: set[str],
    listed: list[CannotHold],
    tests_from: str,
) -> str:
    """The result as Markdown."""
    stock = runs["stock"]
    on_stock = [
        f"`{test}`: {suite_report.first_failure(found)}"
        for test, found in stock.outcomes.items()
        if found["outcome"] in ("failed", "started")
    ]
    return "\n".join(
        [
            suite_report.provenance(tests_from),
            "",
            *table(runs),
            "",
            f"{len(stock.shuffles)} of them shuffle in their own process on stock.",
            "",
            *(f"- `{buffer}`: {what_ran(runs[buffer])}." for buffer in BUFFERS),
            "",
            *suite_report.section("Pass on stock and not on Spillway", problems),
            "",
            f"### Cannot pass: {len(excused)}",
            *suite_report.reasons(listed, excused),
            "",
            *suite_report.section("Do not pass on stock either", on_stock),
            "",
            *suite_report.section("Pass, and did not at once", not_at_once(runs)),
        ]
    )


def main(arguments: list[str]) -> int:
    options = suite_report.parse(arguments)

    runs = {name: read_run(options.folder, name) for name in ("stock", *BUFFERS)}
    listed = suite_report.read_cannot_hold(CANNOT_HOLD.read_text(encoding="utf-8"))
    problems, excused = judge(runs, listed, options.whole)
    text = result(runs, problems, excused, listed, options.tests_from)
    (options.folder / "result.md").write_text(text + "\n", encoding="utf-8")
    if options.docs:
        page = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(
            suite_report.put_into(page, text, BEGIN, END), encoding="utf-8"
        )
    print(text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
