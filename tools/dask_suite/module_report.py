"""What runs of the same modules on stock Dask and over Spillway amount to.

A test counts as passed on a plane when it has passed there once: run_modules.py runs
again what did not pass. report.py judges what is left.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import report as suite_report
from report import Outcomes

PLANES = ("stock", "spillway")
CANNOT_HOLD = Path(__file__).with_name("cannot_hold_large.toml")
BEGIN = "<!-- The large result, by tools/dask_suite.sh --large --update-docs -->"
END = "<!-- End of the large result -->"

FINE = {"passed", "skipped", "xfailed", "xpassed"}
COUNTED = {"failed": "failed", "started": "failed", "not run": "failed"}
"""Where an outcome is counted, when not under its own name."""

Runs = dict[str, dict[str, list[dict[str, str]]]]
"""By plane and test id: the outcomes of its runs, in their order."""


def read_runs(folder: Path) -> Runs:
    """All the outcomes in a folder of run_modules.py's."""
    runs: Runs = {plane: {} for plane in PLANES}
    for plane, found in runs.items():
        files = (folder / plane).glob("*.jsonl")
        for file in sorted(files, key=lambda file: (_is_alone(file), file.name)):
            for test, outcome in suite_report.read_outcomes(file).items():
                found.setdefault(test, []).append(outcome)
    return runs


def _is_alone(file: Path) -> bool:
    return file.name.startswith("alone-")


def settle(runs: Runs) -> tuple[Outcomes, Outcomes]:
    """One outcome for each test, on stock and over Spillway."""
    tests = list(dict.fromkeys([*runs["stock"], *runs["spillway"]]))
    stock, ours = (
        {test: _settle(runs[plane].get(test, [])) for test in tests} for plane in PLANES
    )
    return stock, ours


def _settle(outcomes: list[dict[str, str]]) -> dict[str, str]:
    for found in outcomes:
        if found["outcome"] == "passed":
            return found
    return outcomes[-1] if outcomes else {"outcome": "not run"}


def unsettled(runs: Runs) -> list[str]:
    """Tests that are not yet fine on both planes alike."""
    stock, ours = settle(runs)
    return [
        test
        for test, found in stock.items()
        if found["outcome"] not in FINE or found["outcome"] != ours[test]["outcome"]
    ]


def unsteady(runs: Runs) -> list[str]:
    """Tests that pass on both planes, and not each time, as Markdown."""
    lines = []
    for test, found in settle(runs)[0].items():
        on_stock, on_ours = (runs[plane].get(test, []) for plane in PLANES)
        failures = [*_failures(on_stock), *_failures(on_ours)]
        if failures and found["outcome"] == _settle(on_ours)["outcome"] == "passed":
            lines.append(
                f"`{test}`: {len(_failures(on_stock))} of {len(on_stock)} on stock, "
                f"{len(_failures(on_ours))} of {len(on_ours)} over Spillway: "
                f"{suite_report.first_failure(failures[-1])}"
            )
    return lines


def _failures(outcomes: list[dict[str, str]]) -> list[dict[str, str]]:
    return [found for found in outcomes if found["outcome"] != "passed"]


def table(stock: Outcomes, ours: Outcomes, problems: Iterable[str]) -> list[str]:
    """How many tests of each module passed and did not, as Markdown."""
    rows = ["| module | stock | Spillway | differ |", "| --- | --- | --- | --- |"]
    differ = Counter(_module(problem) for problem in problems)
    for module in dict.fromkeys(map(_module, stock)):
        counts = [
            Counter(
                COUNTED.get(found["outcome"], found["outcome"])
                for test, found in outcomes.items()
                if _module(test) == module
            )
            for outcomes in (stock, ours)
        ]
        cells = [
            ", ".join(
                f"{count[outcome]} {outcome}"
                for outcome in dict.fromkeys(["passed", "failed", "skipped", *count])
            )
            for count in counts
        ]
        rows.append(f"| {module} | {cells[0]} | {cells[1]} | {differ[module]} |")
    return rows


def _module(test: str) -> str:
    return Path(test.partition("::")[0]).stem


def what_moved(folder: Path) -> tuple[str | None, list[str]]:
    """What all modules moved over Spillway, and those that moved nothing."""
    total: dict[str, Any] = {
        "pid": None,
        "messages": Counter(sent=0, received=0),
        "bytes": Counter(sent=0, received=0),
    }
    children, idle = [], []
    for file in sorted((folder / "spillway").glob("test_*.figures.json")):
        figures = json.loads(file.read_text(encoding="utf-8"))
        module = file.name.removesuffix(".figures.json")
        if suite_report.what_moved(figures, []) is None:
            idle.append(module)
        for what in ("messages", "bytes"):
            total[what].update(
                {way: figures[what][way] for way in ("sent", "received")}
            )
        for child in file.with_name(f"{module}.processes").glob("*.json"):
            moved = json.loads(child.read_text(encoding="utf-8"))
            if moved["pid"] != figures["pid"]:
                children.append(moved)
    return suite_report.what_moved(total, children), idle


def report(folder: Path, tests_from: str, whole: bool, docs: Path | None) -> int:
    """Write FOLDER/result.md, and with docs put it into that page. Returns what the
    tool is to exit with: 1 when a test that passes on stock never passed over Spillway,
    as report.py has it, or when a module moved nothing."""
    runs = read_runs(folder)
    stock, ours = settle(runs)
    listed = suite_report.read_cannot_hold(CANNOT_HOLD.read_text(encoding="utf-8"))
    verdict = suite_report.judge(stock, ours, listed, whole)
    moved, idle = what_moved(folder)
    verdict.problems += [f"{module}: Spillway moved nothing" for module in idle]
    text = "\n".join(
        [
            suite_report.provenance(tests_from),
            "",
            *table(stock, ours, [*verdict.problems, *verdict.excused]),
            "",
            moved or "Spillway moved nothing.",
            "",
            *suite_report.section(
                "Pass on stock and not on Spillway", verdict.problems
            ),
            "",
            f"### Cannot pass: {len(verdict.excused)}",
            *suite_report.reasons(listed, set(verdict.excused)),
            "",
            *suite_report.section(
                "Do not pass on stock either",
                [
                    f"`{test}` ({ours[test]['outcome']} over Spillway): "
                    f"{suite_report.first_failure(stock[test])}"
                    for test in verdict.fail_on_stock
                ],
            ),
            "",
            *suite_report.section(
                "Pass on both, and not each time (how often they failed)",
                unsteady(runs),
            ),
        ]
    )
    (folder / "result.md").write_text(text + "\n", encoding="utf-8")
    if docs:
        page = docs.read_text(encoding="utf-8")
        docs.write_text(suite_report.put_into(page, text, BEGIN, END), encoding="utf-8")
    print(text)
    return 1 if verdict.problems or moved is None else 0
