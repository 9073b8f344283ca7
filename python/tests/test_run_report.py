"""The table that `spillway run` ends with, and its verdict on silent processes."""

import io

import pytest
from rich.console import Console

from spillway import run_report


def left(pid=1, addresses=None, **changes):
    """What a worker leaves that was on and moved nothing, with changes."""
    return {
        "pid": pid,
        "addresses": addresses or {"worker": [f"tcp://127.0.0.1:{pid}"]},
        "started": [],
        "is_last": True,
        "parts": {"transport": {"on": True, "why_off": None}},
        "messages": {"sent": 0, "received": 0},
        "bytes": {"sent": 0, "received": 0},
        "copies": {},
        "connections": {"opened": 0, "closed": 0, "failed": 0},
        "peak_rss_bytes": 100_000_000,
        **changes,
    }


MOVED = {
    "messages": {"sent": 1234, "received": 5},
    "bytes": {"sent": 2_000_000, "received": 300},
    "copies": {
        "small_frame": {"count": 2, "bytes": 100},
        "read_ahead": {"count": 1, "bytes": 5000},
        "decompressed": {"count": 0, "bytes": 0},
    },
}


def shown(*processes):
    text = io.StringIO()
    run_report.show(list(processes), Console(file=text, width=80, markup=False))
    return text.getvalue()


def test_faults_names_a_silent_process():
    (fault,) = run_report.faults([left(7), left(8, **MOVED)])
    assert "worker tcp://127.0.0.1:7 moved nothing" in fault


REASONS = {
    "switched off": (
        {"parts": {"transport": {"on": False, "why_off": "SPILLWAY_DISABLE=all"}}},
        "SPILLWAY_DISABLE=all",
    ),
    "in process": ({"addresses": {"worker": ["inproc://1/2"]}}, "inproc://"),
    "refused": ({"connections": {"failed": 2}}, "no connection"),
    "killed": ({"is_last": False}, "it ended before"),
}


@pytest.mark.parametrize(("changes", "reason"), REASONS.values(), ids=REASONS)
def test_why_nothing_is_shown_and_no_fault(changes, reason):
    process = left(7, **changes)
    assert reason in run_report.why_nothing(process)
    assert reason in shown(process)
    assert run_report.faults([process]) == []


def test_a_reason_of_one_process_does_not_speak_for_another():
    switched_off, _ = REASONS["switched off"]
    assert len(run_report.faults([left(7, **switched_off), left(8)])) == 1


def test_faults_names_a_started_worker_that_left_nothing():
    script = left(1, {"script": [], "nanny": ["tcp://127.0.0.1:1"]}, **MOVED)
    script["started"] = [2, 3]
    (fault,) = run_report.faults([script, left(2, **MOVED)])
    assert "3 left no figures" in fault


def test_faults_does_not_judge_what_the_run_did_not_start():
    assert run_report.faults([left(7, is_foreign=True)]) == []


def test_show_gives_each_process_a_row_of_figures():
    script = left(
        42,
        {"script": [], "scheduler": ["tcp://h:1"], "nanny": ["tcp://h:2", "tcp://h:3"]},
        **MOVED,
    )
    text = shown(script, left(4000, **MOVED))
    words = ("1,234 out", "5 in", "2.0 MB out", "300 bytes in", "100.0 MB", "pid 42")
    for word in (*words, "2 nannies", "tcp://127.0.0.1:4000"):
        assert word in text
    assert text.index("5.0 kB read ahead") < text.index("100 bytes small frame")
    assert "decompressed" not in text
    assert "did not start" not in text


def test_show_says_what_of_a_foreign_cluster_was_reached():
    unreached = {
        "addresses": {"worker": ["tcp://10.0.0.1:5"]},
        "problem": "OSError: gone",
        "started": [],
        "is_foreign": True,
    }
    text = shown(left(3, is_foreign=True, **MOVED), unreached)
    assert "1 of its 2 processes answered" in " ".join(text.split())
    assert "tcp://10.0.0.1:5: OSError: gone" in text


def test_show_says_when_there_was_no_cluster():
    script = left(1, {"script": []})
    assert "no distributed cluster" in shown(script)
    assert run_report.faults([script]) == []
