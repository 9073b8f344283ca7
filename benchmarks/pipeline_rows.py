"""The pipelines of pipelines/: what is asked of each, its rounds and their tables."""

import dataclasses
import math
import pathlib
import re
import statistics
import sys
import time
from collections.abc import Iterable

import kept_rounds
from stock_variants import TASKS, variants

from spillway.compare.run_figures import FIGURES, shown
from spillway.compare.side import RunOnSide, Side, spillway_side, stock_side
from spillway.compare.verdict import quartiles

HERE = pathlib.Path(__file__).resolve().parent
PREFIX = "pipelines/"
SPILLWAY = "Spillway"
NEVER_SLOWER, ELSE = 0.97, 1.1
LIMIT_S = 120
"""A run that takes longer hangs, and counts as failed."""
SECONDS = re.compile(r"^seconds: ([0-9.]+)$", re.MULTILINE)
UNITS = {figure.name: figure.unit for figure in FIGURES}
SHOWN = ("cpu_s", "peak_bytes", "socket_bytes", "written_bytes", "worker_lag_s")


@dataclasses.dataclass(frozen=True)
class Bars:
    """Times faster than the best of stock's variants, and other figures' shares. With
    the task-based shuffle stock is a row of its own, which is to be slower."""

    must: float = NEVER_SLOWER
    aim: float = ELSE
    shares: dict[str, float] = dataclasses.field(default_factory=dict)
    """At most so much of what the best of stock's variants has, by figure."""
    has_shuffles: bool = False
    has_spills: bool = False


PIPELINES = {
    PREFIX + name: bars
    for name, bars in {
        "tpch_joins": Bars(1.2, 1.4, has_shuffles=True),
        "h2o_groupby_join": Bars(has_shuffles=True),
        "groupby_apply": Bars(1.4, 1.55, has_shuffles=True),
        "skewed_merge": Bars(1.6, 2, has_shuffles=True),
        "climate_rechunk": Bars(has_spills=True),
        "covariance": Bars(
            shares={"worker_lag_s": 0.1, "written_bytes": 0.6}, has_spills=True
        ),
        "image_overlap": Bars(),
        "model_fanout": Bars(1.8, 2.4),
        "records_bag": Bars(),
        "task_tree": Bars(),
    }.items()
}


def measure(name: str, rounds: int, stock: pathlib.Path) -> None:
    """Run a pipeline once on each side and round; who begins takes turns."""
    sides = _sides(PIPELINES[name], stock)
    order = list(sides)
    for _ in range(rounds):
        at, runs, digests = time.time(), {}, set()
        first = len(kept_rounds.read(name)) % len(order)
        for side in order[first:] + order[:first]:
            run = sides[side].run(str(HERE / f"{name}.py"), [], LIMIT_S)
            runs[side] = _figures(f"{name} on {side}", side, run)
            if run.code == 0:
                digests.add(run.answer.digest)
        if len(digests) != 1:
            sys.exit(f"{name}: the answers differ: {digests}")
        kept_rounds.add(name, at, {"runs": runs})


def _sides(bars: Bars, stock: pathlib.Path) -> dict[str, Side]:
    environments = variants(bars.has_shuffles, bars.has_spills)
    found = {name: stock_side(stock, one) for name, one in environments.items()}
    return {**found, SPILLWAY: spillway_side()}


def _figures(name: str, side: str, run: RunOnSide) -> dict:
    """Of a run; that one of stock's fails is a figure too."""
    if run.code != 0:
        if side == SPILLWAY:
            sys.exit(f"{name} failed: {run.notes}\n{run.errors_end}")
        reasons = [*run.notes, *run.errors_end.splitlines()[-1:]]
        return {"failed": "; ".join(reasons)[:200]}
    if run.not_on_spillway is not None:
        sys.exit(f"{name}: {run.not_on_spillway}")
    found = SECONDS.search(run.output_end)
    assert found is not None, f"{name} did not say how long it took"
    return {"seconds": float(found[1]), **run.figures}


def _by_side(name: str, figure: str) -> dict[str, list[float]]:
    """A figure of all rounds, by side. Of a run that failed it is endless."""
    rounds = kept_rounds.read(name)
    return {
        side: [one["runs"][side].get(figure, math.inf) for one in rounds]
        for side in rounds[0]["runs"]
    }


def _best(values: dict[str, list[float]]) -> str:
    """The variant of stock whose median is the least; of those with P2P shuffles."""
    stock = [side for side in values if side not in (SPILLWAY, TASKS)]
    return min(stock, key=lambda side: statistics.median(values[side]))


def table(names: Iterable[str] = PIPELINES) -> str:
    """Each pipeline against the best of stock's variants, and task-based shuffles."""
    lines = [
        "| pipeline | figure | stock | it | Spillway | ratio (middle half) "
        "| rounds | must | aim | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, bars in _measured(names):
        values = _by_side(name, "seconds")
        held_against = [(_best(values), bars.must, bars.aim)]
        if bars.has_shuffles:
            held_against.append((TASKS, 1, ELSE))
        for other, must, aim in held_against:
            pairs = zip(values[other], values[SPILLWAY], strict=True)
            ratios = [theirs / ours for theirs, ours in pairs]
            lines.append(_line(name, "times faster", other, values, ratios, must, aim))
        for figure, share in bars.shares.items():
            values = _by_side(name, figure)
            best = _best(values)
            pairs = zip(values[SPILLWAY], values[best], strict=True)
            ratios = [ours / theirs for ours, theirs in pairs]
            lines.append(_line(name, figure, best, values, ratios, share, None))
    return "\n".join(lines)


def _line(
    name: str,
    figure: str,
    best: str,
    values: dict[str, list[float]],
    ratios: list[float],
    must: float,
    aim: float | None,
) -> str:
    low, middle, high = quartiles(ratios)
    is_there = middle <= must if aim is None else middle >= must
    state = kept_rounds.state(is_there, len(ratios))
    unit = UNITS.get(figure, "s")
    medians = [shown(statistics.median(values[one]), unit) for one in (best, SPILLWAY)]
    return (
        f"| {name.removeprefix(PREFIX)} | {figure} | {best} | {medians[0]} "
        f"| {medians[1]} | {middle:.3g} ({low:.3g} to {high:.3g}) | {len(ratios)} "
        f"| {'at most' if aim is None else 'at least'} {must} | {aim or ''} | {state} |"
    )


def variants_table() -> str:
    """The medians of the seconds of all sides."""
    sides = [*variants(has_shuffles=True, has_spills=True), SPILLWAY]
    lines = [f"| pipeline | {' | '.join(sides)} |", "|---" * (len(sides) + 1) + "|"]
    for name, _ in _measured():
        values = _by_side(name, "seconds")
        cells = [
            f"{statistics.median(values[side]):.3g}" if side in values else ""
            for side in sides
        ]
        lines.append(f"| {name.removeprefix(PREFIX)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figures_table() -> str:
    """The medians of what else was measured, on stock as it comes and on Spillway."""
    titles = {figure.name: figure.title for figure in FIGURES}
    lines = [
        f"| pipeline | {' | '.join(titles[name] for name in SHOWN)} |",
        "|---" * (len(SHOWN) + 1) + "|",
    ]
    for name, _ in _measured():
        cells = []
        for figure in SHOWN:
            values = _by_side(name, figure)
            pair = [statistics.median(values[one]) for one in ("stock", SPILLWAY)]
            cells.append(" / ".join(shown(one, UNITS[figure]) for one in pair))
        lines.append(f"| {name.removeprefix(PREFIX)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _measured(names: Iterable[str] = PIPELINES) -> list[tuple[str, Bars]]:
    return [(name, PIPELINES[name]) for name in names if kept_rounds.read(name)]
