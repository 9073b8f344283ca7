"""What a comparison prints, its JSON and its chart."""

import io
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from spillway.compare import bar_chart, comparison_table
from spillway.compare.comparison import SPILLWAY, STOCK, Comparison
from spillway.compare.run_figures import FIGURES, shown


def comparison(rounds=5, **ratios):
    """In which stock has 10 s or 10 GB of all, and Spillway times a ratio, if any."""
    found = Comparison(notes=["mind this"])
    for number in range(rounds):
        runs = {STOCK: {}, SPILLWAY: {}}
        for figure in FIGURES:
            base = (10 if figure.unit == "s" else 10e9) * (1 + number / 100)
            ratio = ratios.get(figure.name, 1)
            runs[STOCK][figure.name] = base
            runs[SPILLWAY][figure.name] = None if ratio is None else base * ratio
        found.rounds.append(runs)
    return found


def printed(found):
    text = io.StringIO()
    console = Console(file=text, width=80, highlight=False, markup=False)
    comparison_table.show(found, console)
    return text.getvalue()


def test_each_figure_has_its_medians_its_middle_half_and_its_verdict():
    text = printed(comparison(wall_s=0.5, cpu_s=2))
    lines = [line.split() for line in text.splitlines()]
    assert ["wall", "time", "10.2", "s", "5.1", "s", "0.5", "2.00x", "faster"] in lines
    assert ["10.1", "to", "10.3", "s", "5.05", "to", "5.15", "s"] in lines
    assert ["CPU", "10.2", "s", "20.4", "s", "2", "2.00x", "more"] in lines
    assert text.count("no difference") == len(FIGURES) - 2
    assert "Rounds: 5." in text and "Note: mind this." in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_what_one_side_has_not_is_left_out():
    assert "sockets" in printed(comparison())
    assert "sockets" not in printed(comparison(socket_bytes=None))


def test_with_two_rounds_nothing_is_claimed():
    text = printed(comparison(rounds=2, wall_s=0.5))
    assert "faster" not in text and text.count("too few rounds") == len(FIGURES)


def test_json_has_figures_verdicts_and_all_runs():
    found = comparison_table.as_json(
        comparison(wall_s=0.5, scheduler_cpu_s=None), "s.py", ("-x",)
    )
    assert (found["script"], found["arguments"]) == ("s.py", ["-x"])
    wall = found["figures"]["wall_s"]
    assert wall["verdict"] == "2.00x faster" and wall["unit"] == "s"
    assert wall["stock"]["median"] == pytest.approx(10.2)
    assert wall["ratio"] == {"low": 0.5, "median": 0.5, "high": 0.5}
    assert "scheduler_cpu_s" not in found["figures"]
    assert len(found["rounds"]) == 5
    assert found["rounds"][0]["order"] == [STOCK, SPILLWAY]
    assert found["rounds"][0]["spillway"]["wall_s"] == 5
    assert found["notes"] == ["mind this"]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0123, "s", "12.3 ms"),
        (1.5, "s", "1.5 s"),
        (1234.5, "s", "1234 s"),
        (0, "bytes", "0 bytes"),
        (999, "bytes", "999 bytes"),
        (2.5e6, "bytes", "2.5 MB"),
        (12.34e9, "bytes", "12.3 GB"),
    ],
)
def test_figures_are_shown_in_three_digits(value, unit, text):
    assert shown(value, unit) == text


SVG = "{http://www.w3.org/2000/svg}"


def test_the_chart_has_bars_as_long_as_the_medians():
    text = bar_chart.draw(comparison(wall_s=0.5, socket_bytes=None), "s.py <1>")
    root = ElementTree.fromstring(text)
    words = [one.text for one in root.iter(f"{SVG}text")]
    assert words[0] == "s.py <1>"
    assert "2.00x faster" in words and "no difference" in words
    assert "over sockets" not in words
    _, *bars = root.iter(f"{SVG}rect")
    stock, ours = (float(bar.get("width")) for bar in bars[2:4])
    assert ours == pytest.approx(stock / 2, rel=0.01)
    assert len(bars) == 2 + 2 * (len(FIGURES) - 1)
    height = float(root.get("height"))
    assert all(float(bar.get("y")) + 15 < height for bar in bars)


def test_the_chart_of_nothing_but_zeros_is_drawn():
    found = comparison()
    for runs in found.rounds:
        for side in runs.values():
            side["written_bytes"] = 0
    root = ElementTree.fromstring(bar_chart.draw(found, "s"))
    assert "0 bytes" in [one.text for one in root.iter(f"{SVG}text")]
