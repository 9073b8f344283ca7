"""Some seeds of the simulated exchange, and that it finds what is broken on purpose."""

import contextlib
from collections import Counter
from unittest import mock

import pytest

import simulated_exchange
from simulated_disk import Partitions
from simulated_exchange import Wrong, simulate
from simulated_weather import Weather
from spillway import shuffle_figures
from spillway.dask import shuffle_again
from spillway.dask.shuffle_outbox import Outbox
from spillway.dask.shuffle_run import DataFrameRun

pytestmark = pytest.mark.timeout(300)

SEEDS = 60
ENOUGH = 60
"""Seeds in which what is broken has to show."""


@pytest.fixture(autouse=True)
def installed():
    with simulated_exchange.installed():
        yield


def test_rows_are_right_or_there_is_an_error_and_nothing_is_left():
    before, seen = shuffle_figures.read(), Counter()
    for seed in range(1, SEEDS + 1):
        try:
            simulation = simulate(seed)
        except Exception as error:
            error.add_note(f"python python/tests/simulated_exchange.py {seed} 1")
            raise
        seen.update(name for what in simulation.loop.trace for name in what[1:])
        seen.update(end is None for end in simulation.cluster.ended.values())
    now = shuffle_figures.read()
    # It did what it is for.
    for what in ("lost", "answer lost", "late", "kill", "leave", "restart"):
        assert seen[what] > 0, what
    for name in ("repeats", "restarts", "written_bytes", "rows_out"):
        assert now[name] > before[name], name
    assert seen[True] > seen[False] > 0


def test_a_seed_runs_again_as_it_ran():
    for seed in range(1, 4):
        assert simulate(seed).loop.trace == simulate(seed).loop.trace


# What is broken.


def takes_messages_twice():
    take = DataFrameRun._take

    async def take_again(run, message):
        run._taken.clear()
        await take(run, message)

    return mock.patch.object(DataFrameRun, "_take", take_again)


def compares_nothing():
    return mock.patch.object(DataFrameRun, "_compare", lambda run, sums: None)


def orders_inputs_backwards():
    init = Partitions.__init__

    def init_backwards(self, *given):
        init(self, *given)
        put = self.put
        self.put = lambda types, input, *rest: put(types, 99 - input, *rest)

    return mock.patch.object(Partitions, "__init__", init_backwards)


def leaves_a_file_open():
    return mock.patch.object(shuffle_again.KeptFrames, "close", lambda self: None)


def waits_for_ever_once_it_is_closed():
    async def close(outbox):
        outbox._queues.clear()
        outbox.waiting_bytes = 0

    return mock.patch.object(Outbox, "close", close)


def fails_as_if_it_were_not_reached():
    @contextlib.contextmanager
    def failing(run):
        try:
            yield
        except Exception as error:
            run.fail(error)
            raise

    return mock.patch.object(DataFrameRun, "_failing", failing)


BROKEN = {
    takes_messages_twice: {"answer_lost": 0.3},
    compares_nothing: {"forgotten": 0.3},
    orders_inputs_backwards: {},
    leaves_a_file_open: {"fails_behind": 0.5},
    waits_for_ever_once_it_is_closed: {"disk_bytes": 1},
    fails_as_if_it_were_not_reached: {"disk_bytes": 5000},
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_found(broken):
    weather = Weather()
    vars(weather).update(BROKEN[broken])
    with (
        mock.patch.object(Weather, "by_chance", lambda random: weather),
        broken(),
        pytest.raises(Wrong),
    ):
        for seed in range(1, ENOUGH + 1):
            simulate(seed)
