"""What `spillway compare` prints, and its JSON."""

import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from spillway import __version__
from spillway.compare.comparison import SPILLWAY, STOCK, Comparison
from spillway.compare.run_figures import FIGURES, Figure, shown
from spillway.compare.verdict import (
    LEAST_ROUNDS,
    Quartiles,
    Verdict,
    judge,
    quartiles,
)


def show(comparison: Comparison, console: Console) -> None:
    """Print the table, its rule, and what has to be known of the runs."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    table.add_column("")
    for name in ("stock", "Spillway", "Spillway/stock"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    rounds = len(comparison.rounds)
    for figure in FIGURES:
        stock = comparison.values(STOCK, figure.name)
        spillway = comparison.values(SPILLWAY, figure.name)
        if stock is None or spillway is None:
            continue
        verdict = judge(stock, spillway, figure.least)
        table.add_row(
            figure.title.replace(", ", "\n"),
            _cell(quartiles(stock), figure.unit),
            _cell(quartiles(spillway), figure.unit),
            _ratios(verdict.ratio),
            in_words(figure, verdict, rounds),
        )
    console.print(table)
    console.print(
        f"Rounds: {rounds}. Medians, with the middle half. A difference is claimed "
        "where the 99% interval of the mean ratio leaves out 1, and the median is 2% "
        "off.",
        style="dim",
    )
    for note in comparison.notes:
        console.print(f"Note: {note}.", soft_wrap=True)


def in_words(figure: Figure, verdict: Verdict, rounds: int) -> str:
    """Such as "1.60x faster", or "no difference"."""
    if rounds < LEAST_ROUNDS:
        return "too few rounds"
    if verdict.is_less is None:
        return "no difference"
    ratio = verdict.ratio.median
    factor = 1 / ratio if verdict.is_less else ratio
    digits = ".2f" if factor < 10 else ".0f"
    return f"{factor:{digits}}x {figure.less if verdict.is_less else figure.more}"


def as_json(
    comparison: Comparison, script: str, arguments: Sequence[str]
) -> dict[str, Any]:
    """All that was found, each run's figures too."""
    return {
        "script": script,
        "arguments": list(arguments),
        "versions": {
            "spillway": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("dask", "distributed")},
        },
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "figures": {
            figure.name: _figure_as_json(comparison, figure)
            for figure in FIGURES
            if comparison.values(STOCK, figure.name) is not None
        },
        "notes": comparison.notes,
        "rounds": [{"order": list(runs), **runs} for runs in comparison.rounds],
    }


def _figure_as_json(comparison: Comparison, figure: Figure) -> dict[str, Any]:
    stock = comparison.values(STOCK, figure.name)
    spillway = comparison.values(SPILLWAY, figure.name)
    verdict = judge(stock, spillway, figure.least)
    return {
        "unit": figure.unit,
        STOCK: quartiles(stock)._asdict(),
        SPILLWAY: quartiles(spillway)._asdict(),
        "ratio": verdict.ratio._asdict(),
        "verdict": in_words(figure, verdict, len(comparison.rounds)),
    }


def _cell(values: Quartiles, unit: str) -> str:
    low, median, high = (shown(value, unit) for value in values)
    if low == high:
        return median
    number, _, name = low.partition(" ")
    same_unit = high.endswith(f" {name}")
    return f"{median}\n{number if same_unit else low} to {high}"


def _ratios(ratio: Quartiles) -> str:
    low, median, high = (f"{value:.3g}" for value in ratio)
    return median if low == high else f"{median}\n{low} to {high}"
