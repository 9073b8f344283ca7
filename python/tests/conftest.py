"""What every test may count on: it starts and ends on stock Dask."""

import gc

import pytest
from distributed.comm.registry import backends
from spillway import stats
from spillway.dask import disable


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
    before = charged()
    yield
    if charged() != before:
        gc.collect()
    assert charged() == before


def charged():
    """The bytes that the budget has charged now, by account."""
    budget = stats()["budget"]
    return {account: budget[account] for account in ("held", "queued", "in_flight")}
