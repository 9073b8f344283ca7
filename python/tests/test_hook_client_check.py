"""A client with Spillway names the workers that are without it, once."""

import asyncio

import dask
import pytest
from distributed import Client, Scheduler, Worker

from spillway.dask import disable, enable, hook_client_check
from spillway.dask.hook_client_check import _without_spillway

SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


def warnings_of(caplog):
    return [r.getMessage() for r in caplog.records if r.name == "spillway"]


def said(on, why_off=None):
    return {"spillway": {"off": {} if on else {"transport": why_off}}}


@pytest.mark.parametrize(
    "address, worker, expected",
    [
        ("tcp://a:1", said(True), {}),
        ("tcp://a:1", {}, {"tcp://a:1": None}),
        ("spillway://a:1", {}, {}),
        ("tcp://a:1", said(False, "SPILLWAY_DISABLE=all"), {}),
        ("tcp://a:1", said(False, "it needs Linux"), {"tcp://a:1": "it needs Linux"}),
    ],
)
def test_who_is_without(address, worker, expected):
    assert _without_spillway({address: worker}) == expected


def test_warning_names_a_few_of_many():
    text = hook_client_check._warning({f"tcp://a:{n}": None for n in range(12)})
    assert "12 of the cluster's workers" in text
    assert text.count("tcp://a:") == 5
    assert "and 7 more" in text


async def test_warns_once_of_a_stock_worker_and_says_what_to_do(caplog):
    async with Scheduler(**SCHEDULER) as scheduler, Worker(scheduler.address) as stock:
        enable()
        async with (
            Worker(scheduler.address) as ours,
            Client(scheduler.address, asynchronous=True),
        ):
            (warning,) = warnings_of(caplog)
    assert stock.address in warning
    assert ours.address not in warning
    assert "--preload spillway.dask.preload --preload-nanny" in warning
    assert not hook_client_check._watchers


async def test_is_silent_when_all_have_it(caplog):
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Worker(scheduler.address),
        Client(scheduler.address, asynchronous=True) as client,
    ):
        assert client in hook_client_check._watchers
    assert warnings_of(caplog) == []
    assert not hook_client_check._watchers


@pytest.mark.timeout(30)
async def test_warns_of_a_stock_worker_that_comes_later(caplog, monkeypatch):
    monkeypatch.setattr(hook_client_check, "_LOOK_AGAIN_SECONDS", 0.01)
    async with Scheduler(**SCHEDULER) as scheduler:
        stock = Worker(scheduler.address)  # its constructor looks for preloads
        enable()
        with dask.config.set({"distributed.client.scheduler-info-interval": "10ms"}):
            client = Client(scheduler.address, asynchronous=True)
        async with client:
            watcher = hook_client_check._watchers[client]
            async with stock:
                await asyncio.wait_for(watcher, 10)
                (warning,) = warnings_of(caplog)
    assert stock.address in warning


@pytest.mark.timeout(30)
async def test_disable_ends_the_watch():
    enable()
    async with (
        Scheduler(**SCHEDULER) as scheduler,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        watcher = hook_client_check._watchers[client]
        disable()
        await asyncio.wait([watcher], timeout=10)
        assert watcher.cancelled()


async def test_a_workers_own_client_does_not_warn(caplog):
    async with Scheduler(**SCHEDULER) as scheduler, Worker(scheduler.address):
        enable()
        async with Client(scheduler.address, asynchronous=True, name="worker"):
            pass
    assert warnings_of(caplog) == []


def test_check_finds_the_installed_dask_to_match():
    assert hook_client_check.check() is None
