"""Whether two sides of pairs of runs differ, and by how much.

The rule: the ratio of the two sides in each pair is taken, and a difference is claimed
when the 99% interval of their geometric mean (Student's t, of their logarithms) leaves
out 1 and their median is 2% away from it or more. With few rounds the interval is wide,
so that only what is large or very steady counts, and one run that went astray widens it
too: what is doubtful is no difference. Of eleven figures of two equal sides one in ten
comparisons claims one.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEAST_ROUNDS = 3
LEAST_CHANGE = 0.02
# Two-sided 99% quantiles of Student's t, by degrees of freedom from 1 on; for more than
# there are here the last one is a little too careful.
_T = (
    *(63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169),
    *(3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845),
    *(2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750),
)


class Quartiles(NamedTuple):
    """The middle half of some values, around their median."""

    low: float
    median: float
    high: float


class Verdict(NamedTuple):
    """Of one figure."""

    ratio: Quartiles
    """Spillway's figure over stock's, in the pairs."""
    is_less: bool | None
    """Whether Spillway's is the smaller one; None when no difference can be claimed."""


def quartiles(values: Sequence[float]) -> Quartiles:
    """Of one value it is that value."""
    if len(values) < 2:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def judge(stock: Sequence[float], spillway: Sequence[float], least: float) -> Verdict:
    """The verdict on values that are pairs in their order. What is below `least`, which
    is more than 0, counts as that much: such figures are noise, or nothing."""
    ratios = [
        max(ours, least) / max(theirs, least)
        for theirs, ours in zip(stock, spillway, strict=True)
    ]
    ratio = quartiles(ratios)
    if len(ratios) < LEAST_ROUNDS:
        return Verdict(ratio, None)
    logarithms = [math.log(one) for one in ratios]
    mean = statistics.fmean(logarithms)
    quantile = _T[min(len(ratios) - 1, len(_T)) - 1]
    reach = quantile * statistics.stdev(logarithms) / math.sqrt(len(ratios))
    if mean + reach < 0 and ratio.median <= 1 - LEAST_CHANGE:
        return Verdict(ratio, True)
    if mean - reach > 0 and ratio.median >= 1 + LEAST_CHANGE:
        return Verdict(ratio, False)
    return Verdict(ratio, None)
