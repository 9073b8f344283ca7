"""enable() and disable() in one process and in what it starts."""

import os
import subprocess
import sys
import threading

import dask
import distributed
import pytest
from distributed import Client, LocalCluster, preloading
from distributed.comm.registry import backends

from spillway import in_force, stats
from spillway.dask import disable, enable, hook_transport, platform_support
from spillway.dask.backends import TakeoverBackend

CLUSTER = {"threads_per_worker": 1, "dashboard_address": ":0", "asynchronous": True}


def entered_places():
    """What enable() puts something else into."""
    return (
        backends["tcp"],
        preloading.process_preloads,
        *(
            dask.config.get(f"distributed.{role}.{key}")
            for role in ("scheduler", "nanny", "worker", "client")
            for key in ("preload", "preload-argv")
        ),
        dask.config.get("distributed.nanny.pre-spawn-environ"),
    )


def is_same(places, others):
    return all(one is other for one, other in zip(places, others, strict=True))


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "spillway"]


def test_importing_changes_nothing():
    code = (
        "import copy, dask, distributed, os;"
        "from distributed import preloading as p;"
        "from distributed.comm.registry import backends as b;"
        "before = dict(b), p.process_preloads, copy.deepcopy(dask.config.config),"
        " dict(os.environ);"
        "import spillway.dask;"
        "assert before == (b, p.process_preloads, dask.config.config, os.environ)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_disable_restores_stock_identically():
    stock = entered_places()
    environment = dict(os.environ)
    enable()
    assert isinstance(backends["tcp"], TakeoverBackend)
    assert not is_same(entered_places(), stock)
    assert dict(os.environ) == environment
    disable()
    assert is_same(entered_places(), stock)
    assert stats()["hooks"] == {}


def test_is_idempotent_and_can_be_repeated(caplog):
    stock = entered_places()
    for _ in range(2):
        enable()
        first = entered_places()
        enable()
        assert is_same(entered_places(), first)
        disable()
        disable()
        assert is_same(entered_places(), stock)
    assert warnings_of(caplog) == []


def test_threads_that_enable_at_once_install_once(monkeypatch):
    stock = entered_places()
    installed = []
    install = hook_transport.install

    def counted():
        installed.append(threading.get_ident())
        install()

    monkeypatch.setattr(hook_transport, "install", counted)
    together = threading.Barrier(8)

    def run():
        together.wait()
        enable()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(installed) == 1
    disable()
    assert is_same(entered_places(), stock)


def test_install_that_fails_leaves_that_part_stock(monkeypatch, caplog):
    def fails(self):
        raise TypeError("cannot be made")

    stock_tcp = backends["tcp"]
    monkeypatch.setattr(TakeoverBackend, "__init__", fails)
    enable()
    assert backends["tcp"] is stock_tcp
    hooks = stats()["hooks"]
    assert hooks.pop("transport") == "off: TypeError: cannot be made"
    assert set(hooks.values()) == {in_force.ON}
    (warning,) = warnings_of(caplog)
    assert "hook transport" in warning
    assert "cannot be made" in warning


@pytest.mark.parametrize(
    "where, value, why",
    [
        ("sys.platform", "darwin", "it needs Linux, and this is darwin"),
        ("platform.machine", lambda: "riscv64", "x86_64 or aarch64, and this is risc"),
    ],
)
def test_unsupported_platform_stays_stock(where, value, why, monkeypatch, caplog):
    stock = entered_places()
    with monkeypatch.context() as patch:
        patch.setattr(f"spillway.dask.platform_support.{where}", value)
        enable()
        enable()
    assert is_same(entered_places(), stock)
    assert why in stats()["parts"]["transport"]["why_off"]
    (warning,) = warnings_of(caplog)
    assert why in warning


def test_without_the_c_library_stays_stock(monkeypatch, caplog):
    stock = entered_places()
    monkeypatch.setitem(sys.modules, "spillway._native", None)
    monkeypatch.delattr("spillway._native")
    enable()
    assert is_same(entered_places(), stock)
    assert "the C library cannot be loaded" in platform_support.why_unsupported()
    (warning,) = warnings_of(caplog)
    assert "the C library cannot be loaded" in warning


def test_disable_all_leaves_this_process_stock(monkeypatch, caplog):
    monkeypatch.setenv("SPILLWAY_DISABLE", "all")
    stock = entered_places()
    enable()
    assert is_same(entered_places(), stock)
    hooks = stats()["hooks"]
    assert hooks.pop("worker_info") == in_force.ON  # it says what is off and why
    assert set(hooks.values()) == {"off: SPILLWAY_DISABLE=all"}
    assert warnings_of(caplog) == []


def test_disable_transport_leaves_tcp_to_dask_and_the_rest_on(monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", " transport , ")
    stock_tcp = backends["tcp"]
    enable()
    assert backends["tcp"] is stock_tcp
    hooks = stats()["hooks"]
    assert hooks["transport"] == "off: SPILLWAY_DISABLE=transport"
    assert hooks["config"] == hooks["preloads"] == in_force.ON


def test_several_names_switch_off_several_parts(monkeypatch, caplog):
    names = "same_host,store,shuffle"
    monkeypatch.setenv("SPILLWAY_DISABLE", names)
    enable()
    hooks = stats()["hooks"]
    for name in ("store", "lost_data"):
        assert hooks.pop(name) == "off: SPILLWAY_DISABLE=store"
    for name in ("shuffle", "shuffle_buffer"):
        assert hooks.pop(name) == "off: SPILLWAY_DISABLE=shuffle"
    assert set(hooks.values()) == {in_force.ON}
    assert warnings_of(caplog) == []


def test_unknown_name_gives_one_warning(monkeypatch, caplog):
    monkeypatch.setenv("SPILLWAY_DISABLE", "sotre,tansport,store")
    enable()
    enable()
    (warning,) = warnings_of(caplog)
    assert "sotre, tansport" in warning
    assert "all, transport" in warning
    assert stats()["parts"]["transport"]["on"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "workers",
    [
        pytest.param({}, id="no-preload"),
        pytest.param({"preload": "json"}, id="own-preload-as-text"),
        pytest.param(
            {"preload": ["json", "csv"], "preload_argv": [[], []]},
            id="own-preloads-with-arguments",
        ),
    ],
)
async def test_local_cluster_runs_on_spillway_everywhere(workers):
    enable()
    async with (
        LocalCluster(n_workers=2, **CLUSTER, **workers) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        assert cluster.scheduler_address.startswith("tcp://")
        assert await client.submit(sum, [1, 2, 3]) == 6
        everywhere = [
            await client.run_on_scheduler(stats),
            *(await client.run(stats)).values(),
            *(await client.run(stats, nanny=True)).values(),
        ]
    for got in everywhere:
        assert got["parts"]["transport"]["on"]
        assert got["messages"]["received"] > 0
        assert got["messages"]["sent"] > 0


@pytest.mark.timeout(60)
async def test_after_disable_a_local_cluster_is_stock():
    enable()
    disable()
    async with (
        LocalCluster(n_workers=1, **CLUSTER) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        (got,) = (await client.run(stats)).values()
    assert got["hooks"] == {}
    assert got["messages"] == {"sent": 0, "received": 0}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["all", "transport"])
async def test_workers_told_to_stay_stock_work_in_a_spillway_cluster(name, caplog):
    enable()
    async with (
        LocalCluster(n_workers=1, **CLUSTER) as cluster,
        distributed.Nanny(
            cluster.scheduler_address, nthreads=1, env={"SPILLWAY_DISABLE": name}
        ) as nanny,
        Client(cluster, asynchronous=True) as client,
    ):
        await client.wait_for_workers(2)
        stock = nanny.worker_address
        by_worker = await client.run(stats)
        (other,) = set(by_worker) - {stock}
        there = await client.scatter(b"x" * 10**6, workers=[stock])
        assert await client.submit(len, there, workers=[other]) == 10**6
    assert not by_worker[stock]["parts"]["transport"]["on"]
    assert by_worker[stock]["messages"]["received"] == 0
    assert by_worker[other]["parts"]["transport"]["on"]
    assert warnings_of(caplog) == []
