"""Many small tasks: a simulation for each of many parameters, and a tree that unites
what they found.

Each of the tasks (`delayed`) draws a few numbers and counts them, and each eight of the
results are united by a task until one is left. The answer is that count, and which
simulations did best.

A result is an array of a kilobyte: `--gb` says how many there are. There is no input:
what the tasks draw is their work.
"""

import argparse

import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client
from pipeline import Pipeline

BINS = 116
DRAWS = 1000
BEST = 10
TOGETHER = 8


def tasks_of(options: argparse.Namespace) -> int:
    return max(BEST, round(options.gb * 1e6))


def simulate(number: int) -> tuple[np.ndarray, list]:
    """How many draws fell into each bin, and how good that is of which simulation."""
    bins = np.random.default_rng(number).integers(0, BINS, DRAWS)
    counts = np.bincount(bins, minlength=BINS)
    return counts, [(int(counts.max()), -number)]


def unite(found: list[tuple[np.ndarray, list]]) -> tuple[np.ndarray, list]:
    counts = np.sum([counts for counts, _ in found], axis=0)
    best = sorted((one for _, best in found for one in best), reverse=True)
    return counts, best[:BEST]


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    simulated, united = delayed(simulate), delayed(unite)
    level = [simulated(number) for number in range(tasks_of(options))]
    while len(level) > 1:
        level = [
            united(level[start : start + TOGETHER])
            for start in range(0, len(level), TOGETHER)
        ]
    return answer(*level[0].compute())


def answer(counts: np.ndarray, best: list) -> pd.DataFrame:
    rows = [("bin", number, int(count)) for number, count in enumerate(counts)]
    rows += [("best", -simulation, most) for most, simulation in best]
    return pd.DataFrame(rows, columns=["what", "number", "count"])


def expected(options: argparse.Namespace) -> pd.DataFrame:
    return answer(*unite([simulate(number) for number in range(tasks_of(options))]))


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.005).main()
