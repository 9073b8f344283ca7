"""The hook comes and goes whole, and a client's futures fail one by one."""

import asyncio

import pytest
from distributed import client, utils_comm, wait, worker

from comm_pairs import soon
from spillway import in_force, stats
from spillway.dask import disable, enable, hook_values, value_encoder
from test_undecoded_dependencies import every_fault, make, names, two_workers

PLACES = [
    (worker.Worker, "gather_dep"),
    (client.Client, "_gather_remote"),
    (utils_comm, "gather_from_workers"),
    (worker, "gather_from_workers"),
    (client, "gather_from_workers"),
]

RAISES = {"loads": ZeroDivisionError, "pickles": TypeError}


def what_is_there():
    return [getattr(owner, name) for owner, name in PLACES]


def test_it_comes_and_goes():
    before = what_is_there()
    enable()
    assert all(
        one is not other for one, other in zip(what_is_there(), before, strict=True)
    )
    disable()
    assert what_is_there() == before


def test_somebody_elses_stays(monkeypatch):
    before = worker.gather_from_workers
    enable()

    async def theirs(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr(worker, "gather_from_workers", theirs)
    disable()
    assert worker.gather_from_workers is theirs
    assert utils_comm.gather_from_workers is before


@pytest.mark.parametrize("name", ["all", "transport", "values", "malloc,values"])
@pytest.mark.parametrize("enabled", [True, False])
def test_switched_off(monkeypatch, name, enabled):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    before = what_is_there()
    if enabled:
        enable()
    assert what_is_there() == before
    assert hook_values.encoder() is None


def test_with_enable_and_without():
    assert hook_values.encoder() is value_encoder.encode  # for spillway://
    enable()
    assert hook_values.encoder() is value_encoder.encode
    assert stats()["parts"]["values"] == {"on": True, "why_off": None}
    assert in_force.hooks["values"] == in_force.ON


@every_fault
async def test_a_future_fails_alone(fault):
    async with two_workers() as (client, _, near, far):
        bad = client.submit(make, fault, key="bad", **near)
        good = [client.submit(make, None, key=f"good-{i}", **far) for i in range(3)]
        await soon(wait([bad, *good]))
        results = await soon(
            asyncio.gather(
                *(one.result() for one in [good[0], bad, *good[1:]]),
                return_exceptions=True,
            )
        )
        (error,) = [one for one in results if isinstance(one, Exception)]
        assert results[1] is error
        assert "'bad'" in str(error) and f"does not {fault[:-1]}" in str(error)
        assert bad.status == "error"
        assert len(results[0]) == 5000


@every_fault
@pytest.mark.parametrize("direct", [False, True])
async def test_gathered_together(fault, direct):
    async with two_workers() as (client, _, near, _):
        bad = client.submit(make, fault, key="bad", **near)
        good = client.submit(make, None, key="good", **near)
        await soon(wait([bad, good]))
        with pytest.raises(RAISES[fault], match="'bad'"):
            await soon(client.gather([good, bad], direct=direct))
        (only,) = await soon(client.gather([bad, good], errors="skip", direct=direct))
        assert len(only) == 5000


async def test_what_is_in_error_at_the_client_is_well_at_its_worker():
    async with two_workers() as (client, workers, near, _):
        bad = client.submit(make, "loads", key="bad", **near)
        with pytest.raises(ZeroDivisionError):
            await soon(bad.result())
        assert "bad" in {key for one in workers.values() for key in one.data}
        assert client.cluster.scheduler.tasks["bad"].state == "memory"


@every_fault
async def test_replicating_ends(fault):
    async with two_workers() as (client, workers, near, far):
        bad = client.submit(make, fault, key="bad", **near)
        good = client.submit(make, None, key="good", **near)
        await soon(wait([bad, good]))
        # The scheduler, which asks the worker, makes of any error a plain one.
        with pytest.raises(Exception, match=f"bad.*does not {fault[:-1]}"):
            await soon(client.replicate([bad, good], n=2))
        (other,) = (one for one in workers.values() if [one.address] == far["workers"])
        assert list(other.data) == ["good"]


@every_fault
async def test_scattering_raises(fault):
    async with two_workers() as (client, _, near, _):
        with pytest.raises(Exception, match=r"does not load|Could not serialize"):
            await soon(client.scatter([make(None), make(fault)]))
        assert await soon(client.submit(names, 1, **near)) == ["int"]
