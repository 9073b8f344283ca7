"""A worker collects garbage when it has grown by more than its values."""

import gc

import pytest

from spillway.dask.garbage import GarbageWatch

ALLOWANCE = 100


class Process:
    """Has so much beyond its values, some of it garbage."""

    def __init__(self, size):
        self.size, self.garbage, self.asked = size, 0, 0
        self.is_throttled = False
        self.values = 0
        self.watch = GarbageWatch(self.memory, ALLOWANCE, self.collect)
        self.values = 5000

    def memory(self):
        return self.values + self.size + self.garbage

    def collect(self):
        self.asked += 1
        if not self.is_throttled:
            gc.collect()
            self.garbage = 0

    def looks(self, size, garbage=0):
        self.size, self.garbage = size, self.garbage + garbage
        self.watch.look(self.values)
        return self.asked


@pytest.fixture(autouse=True)
def no_collections_of_its_own():
    gc.disable()
    yield
    gc.enable()


def test_not_for_what_modules_and_tasks_take():
    process = Process(1000)
    assert process.looks(1000 + ALLOWANCE) == 0


def test_when_there_is_more_than_that():
    process = Process(1000)
    assert process.looks(1000, garbage=ALLOWANCE + 1) == 1
    assert process.garbage == 0


def test_what_a_collection_left_is_no_garbage():
    process = Process(1000)
    assert process.looks(2000) == 1
    assert process.looks(2000 + ALLOWANCE) == 1
    assert process.looks(2000, garbage=ALLOWANCE + 1) == 2


def test_it_is_told_from_what_was_least():
    process = Process(1000)
    assert process.looks(500) == 0
    assert process.looks(500, garbage=ALLOWANCE + 1) == 1


def test_a_collection_that_was_put_off_is_asked_for_again():
    process = Process(1000)
    process.is_throttled = True
    assert process.looks(1000, garbage=2 * ALLOWANCE) == 1
    process.is_throttled = False
    assert process.looks(1000) == 2
    assert process.garbage == 0
