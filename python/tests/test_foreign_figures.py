"""What is asked of a cluster as its client closes, and what is left when it fails."""

import os

import pytest

from spillway import foreign_figures, process_stats

SCHEDULER, WORKER = "tcp://10.0.0.1:8786", "tcp://10.0.0.2:40000"


class Client:
    """As much of a Dask client as is asked; each answer may be an exception."""

    def __init__(self, identity=None, scheduler=None, workers=None):
        self.scheduler = self
        self.address = SCHEDULER
        self.answers = {
            "identity": identity or {"address": SCHEDULER},
            "scheduler": scheduler or {"pid": 1},
            "workers": workers or {WORKER: {"pid": 2}},
        }

    def _answer(self, name):
        answer = self.answers[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def identity(self):
        return self._answer("identity")

    async def run_on_scheduler(self, function):
        return self._answer("scheduler")

    async def run(self, function, on_error):
        assert on_error == "return"
        return self._answer("workers")


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv(process_stats.VARIABLE, str(tmp_path))
    monkeypatch.setattr(process_stats, "_addresses", {})
    monkeypatch.setattr(process_stats, "_written", None)
    return tmp_path


def left(directory):
    """By address, what lies in the directory."""
    return {
        address: process
        for process in process_stats.collect(directory)
        for addresses in process["addresses"].values()
        for address in addresses
    }


async def test_the_answers_of_a_foreign_cluster_are_left(directory):
    await foreign_figures.dask_teardown(Client())
    files = left(directory)
    assert files.keys() == {SCHEDULER, WORKER}
    assert files[SCHEDULER]["pid"] == 1 and files[WORKER]["pid"] == 2
    assert all(process["is_foreign"] for process in files.values())


async def test_a_process_that_cannot_answer_is_left_as_a_problem(directory):
    missing = ModuleNotFoundError("No module named 'spillway'")
    client = Client(scheduler=missing, workers={WORKER: missing})
    await foreign_figures.dask_teardown(client)
    for process in left(directory).values():
        assert process["problem"] == "ModuleNotFoundError: No module named 'spillway'"


@pytest.mark.parametrize("where", ["identity", "workers"])
@pytest.mark.parametrize("error", [OSError("closed"), TimeoutError()])
async def test_a_cluster_that_is_gone_is_left_as_a_problem(directory, where, error):
    await foreign_figures.dask_teardown(Client(**{where: error}))
    (process,) = process_stats.collect(directory)
    assert process["addresses"] == {"scheduler": [SCHEDULER]}
    assert type(error).__name__ in process["problem"]


async def test_a_cluster_that_leaves_its_own_figures_is_not_asked(directory):
    process_stats.write("scheduler", SCHEDULER)
    await foreign_figures.dask_teardown(Client(scheduler=AssertionError("asked")))
    (process,) = process_stats.collect(directory)
    assert process["pid"] == os.getpid()


async def test_a_cluster_of_our_own_that_leaves_none_is_not_foreign(directory):
    await foreign_figures.dask_teardown(Client(scheduler={"pid": os.getpid()}))
    files = left(directory)
    assert files[SCHEDULER]["addresses"] == {"scheduler": [SCHEDULER]}
    assert not files[WORKER]["is_foreign"]


async def test_without_a_directory_nothing_is_asked(monkeypatch):
    monkeypatch.delenv(process_stats.VARIABLE, raising=False)
    await foreign_figures.dask_teardown(Client(identity=AssertionError("asked")))
