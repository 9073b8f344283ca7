"""Whether a run was one on Spillway."""

from spillway.compare import spillway_proof


def left(pid, roles=("worker",), *, moved=5, packs=0, runs=0, why_off=None, **changes):
    """What a process leaves."""
    return {
        "pid": pid,
        "addresses": {role: [f"tcp://127.0.0.1:{pid}"] for role in roles},
        "started": [],
        "is_last": True,
        "parts": {"transport": {"on": why_off is None, "why_off": why_off}},
        "messages": {"sent": moved, "received": 0},
        "connections": {"opened": 1, "closed": 0, "failed": 0},
        "store": {"packs": packs},
        "shuffle": {"runs": runs},
        "same_host": {"bytes_sent": 0},
        **changes,
    }


SCRIPT = left(1, ("script", "client", "scheduler", "nanny"))


def test_a_cluster_on_spillway_counts():
    assert spillway_proof.why_not([SCRIPT, left(2)], {2: {"worker"}}) is None


def test_a_script_without_a_cluster_does_not():
    reason = spillway_proof.why_not([left(1, ("script",), moved=0)], {})
    assert "made no cluster" in reason


def test_a_cluster_of_others_does_not():
    foreign = left(2, is_foreign=True)
    assert "did not start" in spillway_proof.why_not([SCRIPT, foreign], {})


def test_a_process_on_stock_is_found_by_the_probe():
    reason = spillway_proof.why_not([SCRIPT], {1: {"scheduler"}, 2: {"worker"}})
    assert reason == "the worker process 2 ran on stock Dask"


def test_a_silent_process_is_a_fault():
    reason = spillway_proof.why_not([SCRIPT, left(2, moved=0)], {})
    assert "worker tcp://127.0.0.1:2 moved nothing through Spillway" in reason


def test_what_was_switched_off_everywhere_does_not_count():
    off = "SPILLWAY_DISABLE=all"
    processes = [left(pid, moved=0, why_off=off) for pid in (2, 3)]
    reason = spillway_proof.why_not(processes, {})
    assert reason == f"nothing went through Spillway: {off}"


def test_a_part_alone_counts_and_the_rest_is_told():
    off = "SPILLWAY_DISABLE=transport"
    for used in ({"packs": 3}, {"runs": 3}):
        processes = [left(2, moved=0, why_off=off, **used)]
        assert spillway_proof.why_not(processes, {}) is None
        assert spillway_proof.notes(processes) == [
            f"off on Spillway's side: transport: {off}"
        ]


def test_what_goes_past_sockets_is_told():
    (note,) = spillway_proof.notes([left(2, same_host={"bytes_sent": 9})])
    assert "not over sockets" in note
    assert spillway_proof.notes([left(2)]) == []
