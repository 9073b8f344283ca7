"""A worker says at registration what of Spillway it runs, also when that is nothing."""

import pickle

import pytest
from distributed import Scheduler, Worker

import spillway
from spillway import in_force
from spillway.dask import disable, enable, hook_worker_info, shuffle_peers
from spillway.dask.handshake import WIRE_VERSION

SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


async def identity_of_a_worker():
    async with Scheduler(**SCHEDULER) as scheduler, Worker(scheduler.address) as worker:
        return scheduler.identity()["workers"][worker.address]


async def test_shows_in_the_schedulers_identity():
    enable()
    said = (await identity_of_a_worker())["spillway"]
    assert said == {
        "version": spillway.__version__,
        "wire_version": WIRE_VERSION,
        "shuffle_version": shuffle_peers.VERSION,
        "off": {},
    }


async def test_says_it_in_few_bytes():
    enable()
    async with Scheduler(**SCHEDULER) as scheduler, Worker(scheduler.address) as worker:
        state = scheduler.workers[worker.address].clean()
        assert len(pickle.dumps(state)) < 1000  # as a test of Dask's wants it


@pytest.mark.parametrize("name", ["all", "transport"])
async def test_says_that_it_was_told_to_stay_stock(name, monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address, preload=["spillway.dask.preload"]) as worker,
    ):
        said = scheduler.identity()["workers"][worker.address]["spillway"]
    assert said["wire_version"] is None
    assert said["off"]["transport"] == f"SPILLWAY_DISABLE={name}"
    assert set(said["off"]) <= set(in_force.PARTS)


async def test_stock_worker_says_nothing():
    assert "spillway" not in await identity_of_a_worker()


async def test_disable_restores_the_worker():
    async with Scheduler(**SCHEDULER) as scheduler:
        async with Worker(scheduler.address) as stock:
            before = dict(stock.startup_information)
        enable()
        async with Worker(scheduler.address) as worker:
            assert set(worker.startup_information) == {*before, hook_worker_info.KEY}
            disable()
            assert worker.startup_information == before


def test_check_finds_the_installed_dask_to_match():
    assert hook_worker_info.check() is None
