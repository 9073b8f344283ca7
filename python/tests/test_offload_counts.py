"""Counts of what was encoded and decoded where."""

import threading

from spillway import offload_counts


def test_each_direction_and_place_is_counted_apart():
    before = offload_counts.read()
    offload_counts.add("encoded", "offloaded", 70)
    offload_counts.add("encoded", "offloaded", 30)
    after = offload_counts.read()
    assert after["encoded"]["offloaded"] == {
        "count": before["encoded"]["offloaded"]["count"] + 2,
        "bytes": before["encoded"]["offloaded"]["bytes"] + 100,
    }
    before["encoded"]["offloaded"] = after["encoded"]["offloaded"]
    assert after == before


def test_what_was_read_stays():
    read = offload_counts.read()
    offload_counts.add("decoded", "inline", 1)
    assert offload_counts.read() != read


def test_threads_count_together():
    before = offload_counts.read()["decoded"]["inline"]["count"]

    def count():
        for _ in range(5000):
            offload_counts.add("decoded", "inline", 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offload_counts.read()["decoded"]["inline"]["count"] == before + 20_000
