"""No connection of a scheduler offloads, whoever makes it, whatever is configured."""

import dask
import numpy
import pytest
from distributed import Client, LocalCluster, Scheduler, wait
from distributed.core import rpc

from spillway import stats
from spillway.dask import disable, enable, hook_scheduler_offload
from spillway.dask.offload_setting import ALWAYS, KEY, NEVER

SCHEDULER = {"dashboard_address": ":0", "port": 0, "host": "127.0.0.1"}


class Held:
    """A value of a kind that has to be pickled."""

    def __init__(self, size):
        self.values = list(range(size))
        self.array = numpy.zeros(size)


def length(*values):
    return sum(len(value.values) for value in values)


async def offloaded_on_scheduler(dask_scheduler):
    """What its process offloaded, and how its connections are set."""
    found = stats()["offload"]
    return {
        direction: (places["offloaded"]["count"], places["inline"]["count"])
        for direction, places in found.items()
    }


@pytest.mark.timeout(120)
@pytest.mark.parametrize("setting", ["auto", "always"])
async def test_in_a_cluster(setting, tmp_path):
    """The scheduler in a process of its own, so that what is counted there is its."""
    from test_cluster import LOOPBACK, PRELOAD, deployed

    config = tmp_path / "config"
    config.mkdir()
    (config / "spillway.yaml").write_text(f"spillway: {{comm: {{offload: {setting}}}}}")
    enable()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_CONFIG", str(config))
        # Without a store, which decodes later and elsewhere.
        workers = [(*PRELOAD, "--no-nanny", "--memory-limit", "0")] * 2
        async with deployed(tmp_path, (*LOOPBACK, *PRELOAD), workers) as client:
            source, target = sorted((await client.scheduler.identity())["workers"])
            made = client.map(Held, [400_000] * 2, workers=[source], pure=False)
            total = client.submit(length, *made, workers=[target])
            assert await total == 800_000
            await client.scatter(Held(200_000), direct=False)
            await client.gather(made, direct=False)
            on_scheduler = await client.run_on_scheduler(offloaded_on_scheduler)
            on_workers = await client.run(stats)
    for offloaded, inline in on_scheduler.values():
        assert offloaded == 0
        assert inline > 0
    for direction in ("encoded", "decoded"):
        counts = [
            worker["offload"][direction]["offloaded"]["count"]
            for worker in on_workers.values()
        ]
        assert sum(counts) > 0


def offload_of(comm):
    return comm._offload_bytes()


async def test_every_connection_of_a_scheduler_and_no_other_in_its_process():
    enable()
    with dask.config.set({KEY: "always"}):
        async with (
            LocalCluster(
                n_workers=1,
                processes=False,
                protocol="tcp",
                asynchronous=True,
                dashboard_address=":0",
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await wait(client.submit(int, 5))
            scheduler = cluster.scheduler
            (worker,) = scheduler.workers
            streams = [
                *(sender.comm for sender in scheduler.stream_comms.values()),
                *(sender.comm for sender in scheduler.client_comms.values()),
            ]
            pooled = await scheduler.rpc.connect(worker)
            single = rpc(worker, connection_args=scheduler.connection_args)
            await single.identity()
            served = [*streams, pooled, *single.comms]
            assert len(served) >= 4
            assert {offload_of(comm) for comm in served} == {NEVER}
            scheduler.rpc.reuse(worker, pooled)
            await single.close_rpc()

            of_client = await client.rpc.connect(scheduler.address)
            assert offload_of(of_client) == ALWAYS
            client.rpc.reuse(scheduler.address, of_client)
            (one,) = cluster.workers.values()
            of_worker = await one.rpc.connect(scheduler.address)
            assert offload_of(of_worker) == ALWAYS
            one.rpc.reuse(scheduler.address, of_worker)


async def test_install_and_remove():
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        assert scheduler.connection_args["spillway_offload"] == "never"
        disable()
        assert "spillway_offload" not in scheduler.connection_args
        scheduler.connection_args["spillway_offload"] = "always"
        await hook_scheduler_offload.install(scheduler)
        hook_scheduler_offload.remove(scheduler)
        assert scheduler.connection_args["spillway_offload"] == "always"


@pytest.mark.parametrize("name", ["offload", "transport", "all"])
async def test_switched_off(monkeypatch, name):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    enable()
    async with Scheduler(**SCHEDULER) as scheduler:
        assert "spillway_offload" not in scheduler.connection_args


def test_check_finds_the_installed_dask_to_match():
    assert hook_scheduler_offload.check() is None
