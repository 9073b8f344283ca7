"""Our malloc settings among those with which nannies start workers: merged, never in
the place of the user's, and taken out again."""

import os
import subprocess
import sys

import dask
import pytest
from distributed import Client, LocalCluster

from spillway import stats
from spillway.dask import disable, enable, free_heap, hook_malloc
from spillway.dask.hook_malloc import KEY
from spillway.dask.malloc_variables import SETTINGS

CLUSTER = {"threads_per_worker": 1, "dashboard_address": ":0", "asynchronous": True}
TRIM, MMAP = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"
OURS = {setting.variable: setting.value for setting in SETTINGS}
STOCK = dask.config.get(KEY)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """What nannies of earlier tests left in the environment is nobody's wish."""
    for name in (*OURS, *STOCK, "GLIBC_TUNABLES"):
        # Set first, so that what a nanny leaves here is undone as well.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


async def worker_environments():
    """What workers really got: the environment that their process began with."""
    async with (
        LocalCluster(n_workers=2, **CLUSTER) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        return list((await client.run(initial_environment)).values())


def initial_environment():
    with open("/proc/self/environ", "rb") as file:
        pairs = file.read().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


async def test_workers_start_with_them_beside_dasks_own():
    enable()
    for environment in await worker_environments():
        for name, value in (STOCK | OURS).items():
            assert environment[name] == str(value)


async def test_what_the_user_configured_wins():
    with dask.config.set({f"{KEY}.{TRIM}": 131072, f"{KEY}.MY_OWN": "x"}):
        enable()
        for environment in await worker_environments():
            assert environment[TRIM] == "131072"
            assert environment["MY_OWN"] == "x"
            assert environment[MMAP] == OURS[MMAP]
        disable()
        assert dask.config.get(KEY)[TRIM] == 131072


async def test_the_users_environment_wins(monkeypatch):
    monkeypatch.setenv(TRIM, "262144")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1048576")
    enable()
    assert MMAP not in dask.config.get(KEY)
    for environment in await worker_environments():
        assert environment[TRIM] == "262144"
        assert MMAP not in environment
        assert environment["MALLOC_ARENA_MAX"] == "1"


def test_a_variable_that_the_user_unset_stays_unset():
    with dask.config.set({KEY: {**STOCK, TRIM: None}}):
        enable()
        assert dask.config.get(KEY)[TRIM] is None
        disable()


def test_tunables_in_the_configuration_are_the_users():
    tunables = {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}
    with dask.config.set({KEY: {**STOCK, **tunables}}):
        enable()
        assert dask.config.get(KEY)[TRIM] == STOCK[TRIM]
        assert dask.config.get(KEY)[MMAP] == OURS[MMAP]
        disable()


@pytest.mark.parametrize("name", ["malloc", "all"])
async def test_switched_off_workers_start_as_stock_ones(name, monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    enable()
    assert dask.config.get(KEY) is STOCK
    assert stats()["parts"]["malloc"] == {
        "on": False,
        "why_off": f"SPILLWAY_DISABLE={name}",
    }
    for environment in await worker_environments():
        assert environment[TRIM] == str(STOCK[TRIM])
        assert MMAP not in environment


async def test_disable_restores_configuration_and_environment():
    environment = dict(os.environ)
    enable()
    assert dask.config.get(KEY) == STOCK | OURS
    await worker_environments()
    assert os.environ[MMAP] == OURS[MMAP]  # a nanny's doing
    disable()
    assert dask.config.get(KEY) is STOCK
    for name in OURS:
        assert os.environ.get(name) == environment.get(name)
    for found in await worker_environments():
        assert found[TRIM] == str(STOCK[TRIM])
        assert MMAP not in found


def test_disable_keeps_what_was_set_since():
    with dask.config.set({KEY: dict(STOCK)}):
        enable()
        dask.config.set({f"{KEY}.OMP_NUM_THREADS": 2, f"{KEY}.{MMAP}": 4096})
        disable()
        assert dask.config.get(KEY) == {**STOCK, "OMP_NUM_THREADS": 2, MMAP: 4096}


def test_disable_keeps_a_mapping_that_came_since():
    theirs = {"MINE": "1", TRIM: 5}
    with dask.config.set({KEY: dict(STOCK)}):
        enable()
        dask.config.set({KEY: theirs})
        disable()
        assert dask.config.get(KEY) == theirs


def test_without_malloc_trim_workers_are_stocks(monkeypatch):
    monkeypatch.setattr(free_heap, "_malloc_trim", None)
    enable()
    assert dask.config.get(KEY) is STOCK
    assert "malloc_trim" in stats()["parts"]["malloc"]["why_off"]


def test_enable_finds_the_defaults_before_distributed_is_imported():
    script = (
        "import spillway.dask, dask\n"
        "spillway.dask.enable()\n"
        f"print(dask.config.get('{KEY}'))\n"
    )
    shown = subprocess.check_output(
        [sys.executable, "-c", script],
        env={**os.environ, "SPILLWAY_DISABLE": "transport"},
        text=True,
    )
    assert shown == f"{STOCK | OURS}\n"


def test_check_finds_the_installed_dask_to_match():
    assert hook_malloc.check() is None


def test_what_a_file_says_is_the_users_though_dask_says_the_same(tmp_path):
    lines = "distributed:", "  nanny:", "    pre-spawn-environ:", f"      {TRIM}: 65536"
    (tmp_path / "dask.yaml").write_text("\n".join(lines))
    script = (
        "import dask, spillway.dask; spillway.dask.enable(); "
        f"assert dask.config.get('{KEY}')['{TRIM}'] == 65536"
    )
    environment = {**os.environ, "DASK_CONFIG": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
