"""What every test may count on: it starts and ends on stock Dask."""

import gc
import time

import dask
import pytest
from distributed.comm.registry import backends

from comm_pairs import charged
from spillway.dask import disable
from spillway.dask.loop_bridge import THREADS_KEY

# A thread that decoded a message lets go of it after the loop has gone on.
LET_GO_S = 5


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Processes that share the tests cannot send each other lone surrogates, which some
    tests have in what they log."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode())
        for name, text in report.sections
    ]
    return report


@pytest.fixture(autouse=True)
def stock_dask(monkeypatch):
    monkeypatch.delenv("SPILLWAY_DISABLE", raising=False)
    monkeypatch.delitem(backends, "spillway", raising=False)
    disable()
    yield
    disable()


@pytest.fixture
def nothing_is_left():
    """Whatever a test does, the budget is as it was when its objects are gone."""
    if any(charged().values()):
        gc.collect()  # what an earlier test left in cycles
    before = charged()
    yield
    deadline = time.monotonic() + LET_GO_S
    while charged() != before and time.monotonic() < deadline:
        gc.collect()
    assert charged() == before


@pytest.fixture(params=["same_host", "stream"])
def way(request, monkeypatch):
    """How bodies go to a process of this machine."""
    if request.param == "stream":
        monkeypatch.setenv("SPILLWAY_DISABLE", "same_host")
    return request.param


@pytest.fixture
def threads_are_on():
    """Also where the whole suite runs without."""
    with dask.config.set({THREADS_KEY: "auto"}):
        yield
