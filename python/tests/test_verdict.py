"""When a difference is claimed."""

import math
import random
import statistics

import pytest

from spillway.compare.verdict import Quartiles, judge, quartiles


def test_quartiles_are_the_middle_half():
    assert quartiles([5, 1, 4, 2, 3]) == Quartiles(2, 3, 4)
    assert quartiles([7]) == Quartiles(7, 7, 7)


def test_a_large_steady_difference_is_claimed():
    stock, ours = [10.0, 11, 10.5, 10.2, 10.8], [5.0, 5.4, 5.3, 5.2, 5.3]
    verdict = judge(stock, ours, 0.01)
    assert verdict.is_less is True
    assert verdict.ratio.median == pytest.approx(0.5, abs=0.01)
    assert judge(ours, stock, 0.01).is_less is False


def test_the_interval_is_students():
    """Of logarithms with this mean and deviation the 99% interval ends at 4.604 times
    the standard error."""
    shape = [-1.5, -0.5, 0, 0.5, 1.5]
    error = statistics.stdev(shape) / math.sqrt(5)
    for quantile, expected in ((4.5, None), (4.7, True)):
        ratios = [math.exp(one - quantile * error) for one in shape]
        assert judge([1.0] * 5, ratios, 1e-9).is_less is expected


def test_one_run_that_went_astray_makes_no_difference():
    assert judge([10.0] * 5, [10, 10.1, 9.9, 10, 40], 0.01).is_less is None
    assert judge([10.0] * 5, [7, 7.1, 6.9, 7, 30], 0.01).is_less is None


def test_what_is_steady_and_tiny_is_none():
    assert judge([10.0] * 5, [9.9] * 5, 0.01).is_less is None
    assert judge([10.0] * 5, [9.7] * 5, 0.01).is_less is True


def test_two_rounds_are_too_few():
    assert judge([10.0] * 2, [5.0] * 2, 0.01).is_less is None
    assert judge([10.0] * 3, [5.0] * 3, 0.01).is_less is True


def test_what_is_less_than_noise_is_equal():
    verdict = judge([0.0, 0.0, 5.0], [90.0, 80.0, 0.0], 100)
    assert verdict == (Quartiles(1, 1, 1), None)
    assert judge([0.0] * 3, [1000.0] * 3, 100).ratio.median == 10


def claims(effect, rounds=5, noise=0.05, times=1000):
    choose = random.Random(8)

    def runs(mean):
        return [mean * math.exp(choose.gauss(0, noise)) for _ in range(rounds)]

    found = [judge(runs(1), runs(effect), 1e-9).is_less for _ in range(times)]
    return sum(one is not None for one in found) / times


@pytest.mark.parametrize("rounds", [3, 5, 9])
def test_equal_sides_are_found_equal(rounds):
    assert claims(1, rounds=rounds) <= 0.015


def test_a_third_less_is_found_in_noise_of_a_twentieth():
    assert claims(0.67) > 0.9
