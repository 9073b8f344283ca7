"""Counts of values."""

import threading

from spillway import value_counts


def test_each_way_is_counted_apart():
    before = value_counts.read()
    value_counts.add("pickled")
    value_counts.add("pickled")
    assert value_counts.read() == {**before, "pickled": before["pickled"] + 2}


def test_threads_count_together():
    before = value_counts.read()["failed"]

    def count():
        for _ in range(5000):
            value_counts.add("failed")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value_counts.read()["failed"] == before + 20_000
