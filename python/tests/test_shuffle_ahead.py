"""Which partition a run says is likely to be read next."""

from types import SimpleNamespace

import pytest
from distributed.collections import HeapSet

from spillway.dask.shuffle_run import DataFrameRun


class Task:
    """As much of Dask's as waits for its turn."""

    def __init__(self, key, priority):
        self.key, self.priority = key, priority


def expected(key, waiting, partition=4):
    """The places that a run with partitions 4 and 7 expects."""
    ready = HeapSet(key=lambda task: task.priority)
    tasks = [Task(waiting, (i,)) for i, waiting in enumerate(waiting)]
    for task in tasks:
        ready.add(task)
    places = []
    run = SimpleNamespace(
        _worker=SimpleNamespace(state=SimpleNamespace(ready=ready)),
        _place_of={4: 0, 7: 1},
        _partitions=SimpleNamespace(expect=places.append),
    )
    DataFrameRun._expect_next(run, partition, key)
    assert len(ready) == len(tasks)
    return places


@pytest.mark.parametrize("name", [("out",), ("out", "deeper")])
def test_the_first_that_waits_is_expected(name):
    assert expected((*name, 4), [(*name, 7), (*name, 4)]) == [1]


@pytest.mark.parametrize(
    "waiting",
    [
        [],
        ["out"],
        [("other", 7)],
        [("out", 9)],
        [("out", 7, 0)],
        [("other", 7), ("out", 7)],
    ],
)
def test_of_another_nothing_is(waiting):
    assert expected(("out", 4), waiting) == []


@pytest.mark.parametrize("key", ["out", ("out", 5), ("out", 4, 0)])
def test_a_task_whose_key_says_no_partition_says_nothing(key):
    assert expected(key, [("out", 7)]) == []
