"""A nanny that was made before our settings were there has them for its worker."""

import dask
import pytest
from distributed import Nanny, Scheduler

from spillway.dask import disable, enable, hook_nanny_environ
from spillway.dask.hook_malloc import KEY
from test_cluster import LOOPBACK, deployed
from test_hook_malloc import (  # noqa: F401  a fixture
    MMAP,
    OURS,
    STOCK,
    TRIM,
    clean_environment,
    initial_environment,
)

SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


@pytest.mark.parametrize("switch, trim", [("", OURS[TRIM]), ("malloc", "65536")])
async def test_by_the_preload_of_a_nanny(tmp_path, monkeypatch, switch, trim):
    monkeypatch.setenv("SPILLWAY_DISABLE", switch)
    preloads = ("--preload", "spillway.dask.preload")
    nanny = ("--nanny", "--preload-nanny", "spillway.dask.preload")
    workers = [(*preloads, *nanny)]
    async with deployed(tmp_path, LOOPBACK, workers) as client:
        (environment,) = (await client.run(initial_environment)).values()
    assert environment[TRIM] == trim
    assert environment.get(MMAP) == (None if switch else OURS[MMAP])


async def test_install_and_remove():
    async with Scheduler(**SCHEDULER) as scheduler:
        nanny = Nanny(scheduler.address, nthreads=1)
        stock = nanny.pre_spawn_env
        enable()
        await hook_nanny_environ.install(nanny)
        assert nanny.pre_spawn_env == stock | OURS
        hook_nanny_environ.remove(nanny)
        assert nanny.pre_spawn_env is stock
        hook_nanny_environ.remove(nanny)
        await nanny.close()


async def test_a_nanny_made_after_enable_needs_nothing():
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        nanny = Nanny(scheduler.address, nthreads=1)
        made_with = nanny.pre_spawn_env
        assert made_with.items() >= OURS.items()
        await hook_nanny_environ.install(nanny)
        assert nanny.pre_spawn_env is made_with
        await nanny.close()


async def test_what_the_user_configured_is_not_touched():
    with dask.config.set({KEY: {**STOCK, TRIM: 131072}}):
        enable()
        async with Scheduler(**SCHEDULER) as scheduler:
            nanny = Nanny(scheduler.address, nthreads=1)
            await hook_nanny_environ.install(nanny)
            assert nanny.pre_spawn_env[TRIM] == "131072"
            await nanny.close()
        disable()


def test_check_finds_the_installed_dask_to_match():
    assert hook_nanny_environ.check() is None
