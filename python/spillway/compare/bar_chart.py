"""The medians of both sides as bars, with the middle half across their ends, as SVG."""

from html import escape

from spillway.compare.comparison import SPILLWAY, STOCK, Comparison
from spillway.compare.comparison_table import in_words
from spillway.compare.run_figures import FIGURES, Figure, shown
from spillway.compare.verdict import Quartiles, judge, quartiles

_WIDTH = 760
_LABELS = 200
_BARS = 360
"""How long the longest bar of a figure is, with its middle half: each figure has a
scale of its own, for they have different units."""
_BAR, _ROW, _TOP = 15, 46, 56
_COLOURS = {STOCK: "#9aa5b1", SPILLWAY: "#1f77b4"}
_TITLES = {STOCK: "stock", SPILLWAY: "Spillway"}


def draw(comparison: Comparison, title: str) -> str:
    """A picture of all figures that both sides have."""
    rows = [
        figure
        for figure in FIGURES
        if comparison.values(STOCK, figure.name) is not None
    ]
    height = _TOP + _ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(12, 20, title, 'font-size="14" font-weight="bold"'),
        *_legend(len(comparison.rounds)),
    ]
    for number, figure in enumerate(rows):
        parts += _row(comparison, figure, _TOP + _ROW * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(rounds: int) -> list[str]:
    parts, left = [], 12
    for side, colour in _COLOURS.items():
        parts.append(_bar(left, 32, 12, 12, colour))
        parts.append(_text(left + 18, 42, _TITLES[side]))
        left += 90
    words = f"medians of {rounds} rounds, lines: the middle half, less is better"
    return [*parts, _text(left, 42, words, 'fill="#555"')]


def _row(comparison: Comparison, figure: Figure, top: int) -> list[str]:
    values = {side: comparison.values(side, figure.name) for side in (STOCK, SPILLWAY)}
    middles = {side: quartiles(found) for side, found in values.items()}
    verdict = judge(values[STOCK], values[SPILLWAY], figure.least)
    words = in_words(figure, verdict, len(comparison.rounds))
    scale = _BARS / max(figure.least, *(one.high for one in middles.values()))
    parts = [
        _text(12, top + 14, figure.title, 'font-weight="bold"'),
        _text(12, top + 30, words, 'fill="#555"'),
    ]
    for number, (side, middle) in enumerate(middles.items()):
        y = top + number * (_BAR + 2)
        parts += _measured(middle, scale, y, _COLOURS[side], figure.unit)
    return parts


def _measured(
    middle: Quartiles, scale: float, y: float, colour: str, unit: str
) -> list[str]:
    low, end, high = (_LABELS + value * scale for value in middle)
    centre = y + _BAR / 2
    return [
        _bar(_LABELS, y, end - _LABELS, _BAR, colour),
        f'<path d="M{low:.1f} {centre}H{high:.1f}M{low:.1f} {centre - 3}v6'
        f'M{high:.1f} {centre - 3}v6" stroke="black" fill="none"/>',
        _text(high + 8, y + 12, shown(middle.median, unit)),
    ]


def _bar(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" '
        f'fill="{colour}"/>'
    )


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
