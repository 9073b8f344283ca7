"""What every test of the extension starts from and must leave behind."""

import gc

import pytest
from loopback import budget, connected


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Whatever a test does, the budget is as it was when its objects are gone."""
    if any(budget().values()):
        gc.collect()  # what an earlier test left in cycles
    before = budget()
    yield
    assert budget() == before


@pytest.fixture
def pair():
    """Two connected ends."""
    near, far = connected()
    yield near, far
    for end in (near, far):
        end.connection.close()
        end.messages.clear()
