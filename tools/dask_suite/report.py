"""Compares Dask's tests over Spillway with the same tests on stock Dask.

    report.py FOLDER --tests-from TEXT [--whole] [--docs FILE]

FOLDER is what tools/dask_suite.sh left: stock.jsonl and spillway.jsonl (written by
record_outcomes.py), spillway.figures.json (the test process's spillway.stats()) and
spillway.processes/ (what child processes left). Writes FOLDER/result.md, and with
--docs puts it into that file. Exits with 1 when a test that passes on stock does not
pass on Spillway and cannot_hold.toml does not say why, when that list is not true, or
when nothing moved.
"""

import argparse
import json
import platform
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

CANNOT_HOLD = Path(__file__).with_name("cannot_hold.toml")
BEGIN = "<!-- The result, by tools/dask_suite.sh --update-docs -->"
END = "<!-- End of the result -->"

Outcomes = dict[str, dict[str, Any]]
"""By test id: "outcome", "failure" when it failed, "reruns" when it was run again."""


@dataclass(frozen=True)
class CannotHold:
    """Tests with an assertion about Dask's inside that Spillway cannot make true."""

    tests: tuple[str, ...]
    """Ids; one without parameters stands for all that it has."""
    assertion: str
    failure: str
    """Part of what such a test must fail with; nothing else is excused."""
    why: str
    sometimes: bool = False
    """Whether it is chance if the assertion holds: such a test may pass."""


@dataclass
class Verdict:
    problems: list[str]
    excused: list[str]
    fail_on_stock: list[str]


def read_outcomes(file: Path) -> Outcomes:
    """The last that is known of each test."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line["test"]: line for line in lines}


def read_cannot_hold(text: str) -> list[CannotHold]:
    entries = tomllib.loads(text)["cannot_hold"]
    return [
        CannotHold(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries
    ]


def judge(
    stock: Outcomes, ours: Outcomes, listed: Iterable[CannotHold], whole: bool
) -> Verdict:
    """Hold ours against stock. `whole` says that every listed test was to be run."""
    verdict = Verdict([], [], [])
    reasons = {test: entry for entry in listed for test in entry.tests}
    pass_on_stock = set()
    for test, found in stock.items():
        if found["outcome"] in ("failed", "started"):
            verdict.fail_on_stock.append(test)
        if found["outcome"] != "passed":
            continue
        name = test if test in reasons else test.partition("[")[0]
        pass_on_stock.add(name)
        outcome = ours.get(test, {"outcome": "not run"})
        problem = _problem(outcome, reasons.get(name))
        if problem:
            verdict.problems.append(f"{test}: {problem}")
        elif outcome["outcome"] != "passed":
            verdict.excused.append(test)
    for name in reasons if whole else ():
        if name not in pass_on_stock:
            verdict.problems.append(f"{name}: listed, but does not pass on stock")
    return verdict


def _problem(found: dict[str, str], listed: CannotHold | None) -> str | None:
    """What is wrong with the outcome of a test that passes on stock."""
    outcome, failure = found["outcome"], found.get("failure", "")
    if listed is None:
        return None if outcome == "passed" else f"{outcome}: {failure}"
    if outcome == "passed" and listed.sometimes:
        return None
    if outcome == "passed":
        return "listed as one that cannot pass, and passes"
    if outcome != "failed" or listed.failure not in failure:
        return f"listed for {listed.failure!r}, but {outcome}: {failure}"
    return None


def what_moved(figures: dict[str, Any], processes: list[dict[str, Any]]) -> str | None:
    """A line on what Spillway moved, None when it moved nothing in the test process."""
    if not figures["messages"]["sent"] or not figures["messages"]["received"]:
        return None
    line = f"Pytest {_sent_and_received(figures)}"
    children = [child for child in processes if child["pid"] != figures["pid"]]
    if children:
        total = {
            what: {
                way: sum(child[what][way] for child in children)
                for way in ("sent", "received")
            }
            for what in ("messages", "bytes")
        }
        line += f"; {len(children)} child processes {_sent_and_received(total)}"
    return line + "."


def _sent_and_received(figures: dict[str, Any]) -> str:
    messages, size = figures["messages"], figures["bytes"]
    return " and ".join(
        f"{way} {messages[way]:,} messages ({size[way] / 1e6:,.0f} MB)"
        for way in ("sent", "received")
    )


def result(
    stock: Outcomes,
    ours: Outcomes,
    verdict: Verdict,
    listed: list[CannotHold],
    moved: str | None,
    tests_from: str,
) -> str:
    """The result as Markdown."""
    return "\n".join(
        [
            provenance(tests_from),
            "",
            *_table(stock, ours),
            "",
            moved or "Spillway moved nothing.",
            "",
            *section("Pass on stock and not on Spillway", verdict.problems),
            "",
            f"### Cannot pass: {len(verdict.excused)}",
            *reasons(listed, set(verdict.excused)),
            "",
            *section(
                "Do not pass on stock either",
                [
                    f"`{test}`: {first_failure(stock[test])}"
                    for test in verdict.fail_on_stock
                ],
            ),
        ]
    )


def provenance(tests_from: str) -> str:
    """What was run, where and when."""
    return (
        f"{date.today()}, Spillway {_spillway()}, distributed "
        f"{version('distributed')}, Tornado {version('tornado')}, Python "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}. "
        f"The tests are those of Dask's {tests_from}."
    )


def _spillway() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(CANNOT_HOLD.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    changed = " with changes" if git("status", "--porcelain") else ""
    return f"{version('spillway')} at {git('rev-parse', '--short', 'HEAD')}{changed}"


def _table(stock: Outcomes, ours: Outcomes) -> list[str]:
    counts = [
        Counter(found["outcome"] for found in run.values()) for run in (stock, ours)
    ]
    rows = [
        f"| {outcome} | {counts[0][outcome]} | {counts[1][outcome]} |"
        for outcome in sorted(counts[0] | counts[1])
    ]
    return ["| | stock | Spillway |", "| --- | --- | --- |", *rows]


def reasons(listed: list[CannotHold], excused: set[str]) -> Iterable[str]:
    """Why the excused tests cannot pass, as Markdown."""
    names = excused | {test.partition("[")[0] for test in excused}
    for entry in listed:
        tests = [test for test in entry.tests if test in names]
        if tests:
            yield ""
            yield from (f"- `{test}`" for test in tests)
            yield ""
            yield f"  `{entry.assertion}`: {' '.join(entry.why.split())}"


def section(title: str, lines: list[str]) -> list[str]:
    """A list with how many it has in its title, as Markdown."""
    items = ["", *(f"- {line}" for line in lines)] if lines else []
    return [f"### {title}: {len(lines)}", *items]


def first_failure(found: dict[str, str]) -> str:
    """Of the phases of a test the first that failed."""
    return found.get("failure", "not finished").partition("\n")[0]


def put_into(page: str, text: str, begin: str, end: str) -> str:
    """The page with the text between two of its lines."""
    before, found_begin, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end:
        raise SystemExit(f"the page lacks {begin} or {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def parse(arguments: list[str]) -> argparse.Namespace:
    """What the reports are told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests-from", required=True)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--docs", type=Path)
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)

    stock = read_outcomes(options.folder / "stock.jsonl")
    ours = read_outcomes(options.folder / "spillway.jsonl")
    listed = read_cannot_hold(CANNOT_HOLD.read_text(encoding="utf-8"))
    verdict = judge(stock, ours, listed, options.whole)
    figures_file = options.folder / "spillway.figures.json"
    figures = json.loads(figures_file.read_text(encoding="utf-8"))
    children = (options.folder / "spillway.processes").glob("*.json")
    moved = what_moved(
        figures, [json.loads(child.read_text(encoding="utf-8")) for child in children]
    )

    text = result(stock, ours, verdict, listed, moved, options.tests_from)
    (options.folder / "result.md").write_text(text + "\n", encoding="utf-8")
    if options.docs:
        page = options.docs.read_text(encoding="utf-8")
        options.docs.write_text(put_into(page, text, BEGIN, END), encoding="utf-8")
    print(text)
    return 1 if verdict.problems or moved is None else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
