"""stats(): in any process, in plain types."""

import importlib
import os
import pickle
import subprocess
import sys
from unittest import mock

import dask
import distributed
import pytest

import spillway
from spillway import in_force, stats
from spillway.dask import disable, enable

PLAIN = (str, int, bool, type(None))


def leaves(value):
    if isinstance(value, dict):
        for key, item in value.items():
            assert type(key) is str
            yield from leaves(item)
    else:
        yield value


def test_has_every_figure_in_plain_types():
    enable()
    got = stats()
    assert list(got) == [
        "version",
        "pid",
        "role",
        "parts",
        "hooks",
        "messages",
        "bytes",
        "copies",
        "offload",
        "values",
        "store",
        "shuffle",
        "connections",
        "same_host",
        "regions",
        "budget",
        "peak_rss_bytes",
    ]
    assert {type(leaf) for leaf in leaves(got)} <= set(PLAIN)
    assert set(got["messages"]) == set(got["bytes"]) == {"sent", "received"}
    assert set(got["connections"]) == {"opened", "closed", "failed", "tuned"}
    assert set(got["same_host"]) == {
        "meetings",
        "refusals",
        "bytes_sent",
        "by_address",
        "by_descriptor",
        "by_stream",
    }
    assert set(got["offload"]) == {"encoded", "decoded"}
    assert set(got["offload"]["encoded"]) == {"inline", "offloaded"}
    assert set(got["values"]) == {
        "in_place",
        "pickled",
        "registered",
        "by_dask",
        "failed",
        "undecoded",
    }
    assert got["store"]["stores"] == got["store"]["live"]["count"] == 0
    assert set(got["regions"]) == {"recycled", "added", "bytes_moved"}
    assert set(got["budget"]) == {
        "held",
        "queued",
        "in_flight",
        "pooled",
        "spilling",
        "peak",
        "in_flight_limit",
        "held_back",
        "shuffled",
        "limit",
        "refusals",
    }
    assert set(got["copies"]) == {
        "read_ahead",
        "small_frame",
        "noncontiguous",
        "decompressed",
        "metadata",
        "merged",
    }
    assert set(got["parts"]) == {
        "transport",
        "same_host",
        "malloc",
        "offload",
        "merge",
        "values",
        "store",
        "shuffle",
    }
    assert got["pid"] == os.getpid()
    assert got["peak_rss_bytes"] > 10 * 2**20


def test_is_pickled_by_name():
    assert len(pickle.dumps(stats)) < 60
    assert pickle.loads(pickle.dumps(stats)) is stats


def test_version_is_the_projects():
    from spillway import _native

    assert spillway.__version__ == _native.version() == stats()["version"]


def test_says_why_nothing_is_on():
    assert stats()["hooks"] == {}
    disable()
    enable()
    assert stats()["parts"]["transport"] == {"on": True, "why_off": None}
    disable()
    assert stats()["parts"]["transport"]["why_off"] == (
        "spillway.dask.disable() was called in this process"
    )


def test_says_why_processes_of_one_host_use_sockets(monkeypatch):
    def part():
        return stats()["parts"]["same_host"]

    assert part()["why_off"] == stats()["parts"]["transport"]["why_off"]
    enable()
    assert part() == {"on": True, "why_off": None}
    disable()
    assert not part()["on"]
    monkeypatch.setenv("SPILLWAY_DISABLE", "same_host")
    enable()
    assert part() == {"on": False, "why_off": "SPILLWAY_DISABLE=same_host"}
    assert stats()["parts"]["transport"]["on"]
    disable()
    monkeypatch.setenv("SPILLWAY_DISABLE", "transport,same_host")
    enable()
    assert part()["why_off"] == "SPILLWAY_DISABLE=transport"
    disable()
    monkeypatch.delenv("SPILLWAY_DISABLE")
    with dask.config.set({"spillway.comm.threads": 0}):
        enable()
    assert part() == {"on": False, "why_off": "spillway.comm.threads is 0"}
    disable()
    enable()
    assert part()["on"]


def run_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_needs_neither_dask_nor_enable():
    out = run_python(
        "import sys, spillway; got = spillway.stats();"
        "print(got['parts']['transport']['why_off']); print(got['messages']);"
        "print('distributed' in sys.modules or 'dask' in sys.modules)"
    )
    assert out.splitlines() == [
        "spillway.dask.enable() was not called in this process",
        "{'sent': 0, 'received': 0}",
        "False",
    ]


def test_without_the_c_library_gives_zeros_and_the_reason():
    out = run_python(
        "import sys; sys.modules['spillway._native'] = None;"
        "import spillway; got = spillway.stats();"
        "print(got['parts']['transport']['why_off'][:34]); print(got['bytes'])"
    )
    assert out.splitlines() == [
        "the C library cannot be loaded: im",
        "{'sent': 0, 'received': 0}",
    ]


@pytest.mark.timeout(60)
async def test_client_run_collects_it_from_every_worker():
    enable()
    async with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", asynchronous=True
        ) as cluster,
        distributed.Client(cluster, asynchronous=True) as client,
    ):
        by_worker = await client.run(stats)
        on_scheduler = await client.run_on_scheduler(stats)
    assert len({got["pid"] for got in by_worker.values()}) == 2
    for got in by_worker.values():
        assert got["role"] == "worker"
        assert got["parts"]["transport"]["on"]
        assert set(got["hooks"].values()) == {in_force.ON}
        assert got["messages"]["sent"] > 0
        assert got["messages"]["received"] > 0
        assert got["bytes"]["sent"] > got["messages"]["sent"]
        assert got["connections"]["opened"] > 0
    assert on_scheduler["pid"] == os.getpid()
    assert set(on_scheduler["role"].split("+")) >= {"scheduler", "nanny", "client"}
    assert on_scheduler["messages"]["received"] > 0


@pytest.mark.timeout(60)
async def test_says_that_the_scheme_spillway_works_without_enable():
    async with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            protocol="spillway",
            dashboard_address=":0",
            asynchronous=True,
        ) as cluster,
        distributed.Client(cluster, asynchronous=True) as client,
    ):
        (got,) = (await client.run(stats)).values()
    assert got["messages"]["received"] > 0
    assert got["hooks"] == {}
    assert got["parts"]["transport"]["why_off"] == (
        "spillway.dask.enable() was not called in this process; "
        "what goes by spillway:// is Spillway's"
    )


@pytest.mark.parametrize("gone", [FileNotFoundError, ProcessLookupError])
def test_a_process_that_ends_while_it_is_looked_at_has_no_peak(monkeypatch, gone):
    """Its file may be open by then."""
    module = importlib.import_module("spillway.stats")  # its function has that name
    monkeypatch.setattr(module, "open", mock.Mock(side_effect=gone), raising=False)
    assert module.peak_rss_bytes(1) is None
