"""A pytest plugin: leaves how many runs of DataFrame shuffles each test made.

    -p shuffle_runs --runs FILE

FILE has a number by test id, of the tests that made any in the test process: Dask's own
runs, and over Spillway those of its engine. A test that shuffles on stock has to do so
on our engine.
"""

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--runs", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    made = ours() if "spillway" in sys.modules else stock()
    config.pluginmanager.register(Counter(made, config.getoption("--runs")))


def ours() -> Callable[[], int]:
    """What gives the number of runs that were made so far, over Spillway."""
    import spillway

    return lambda: spillway.stats()["shuffle"]["runs"]


def stock() -> Callable[[], int]:
    """What gives the number of runs that were made so far, on stock Dask."""
    from distributed.shuffle._shuffle import DataFrameShuffleSpec

    made = 0
    make = DataFrameShuffleSpec.create_run_on_worker

    def count(*args: object, **kwargs: object) -> object:
        nonlocal made
        made += 1
        return make(*args, **kwargs)

    DataFrameShuffleSpec.create_run_on_worker = count
    return lambda: made


class Counter:
    """Takes the difference over each test, set-up and tear-down included."""

    def __init__(self, made: Callable[[], int], file: Path) -> None:
        self._made, self._file = made, file
        self._runs_of: dict[str, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        before = self._made()
        try:
            return (yield)
        finally:
            if runs := self._made() - before:
                self._runs_of[item.nodeid] = runs

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps(self._runs_of, indent=1), encoding="utf-8")
