"""What every test may count on: it starts and ends on stock Dask."""

import pytest
from spillway.dask import disable


@pytest.fixture(autouse=True)
def stock_dask(monkeypatch):
    monkeypatch.delenv("SPILLWAY_DISABLE", raising=False)
    disable()
    yield
    disable()
