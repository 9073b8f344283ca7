"""The preload on deployed clusters: `dask scheduler` and `dask worker` as processes of
their own, some with Spillway and some without."""

import contextlib
import os
import subprocess
import sys

import cloudpickle
import pytest
from distributed import Client, Scheduler, Worker

from spillway import process_stats, stats
from spillway.dask import enable

cloudpickle.register_pickle_by_value(sys.modules[__name__])

pytestmark = pytest.mark.timeout(120)

PRELOAD = ["--preload", "spillway.dask.preload"]
PRELOAD_NANNY = ["--preload-nanny", "spillway.dask.preload"]


@contextlib.contextmanager
def dask(*arguments, **environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


@contextlib.asynccontextmanager
async def deployed(tmp_path, *, scheduler=(), workers=({"arguments": ()},)):
    """A scheduler and workers by Dask's own commands, and a client."""
    file = str(tmp_path / "scheduler.json")
    with contextlib.ExitStack() as stack:
        address = ("--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0")
        stack.enter_context(
            dask("scheduler", "--scheduler-file", file, *address, *scheduler)
        )
        for name, worker in enumerate(workers):
            arguments = ("--name", f"w{name}", "--nthreads", "1", "--no-dashboard")
            environment = worker.get("environment", {})
            stack.enter_context(
                dask(
                    "worker",
                    "--scheduler-file",
                    file,
                    *arguments,
                    *worker["arguments"],
                    **environment,
                )
            )
        async with Client(scheduler_file=file, asynchronous=True) as client:
            await client.wait_for_workers(len(workers), timeout=60)
            yield client


def listener(dask_scheduler=None, dask_worker=None):
    """Whose listener the server has that Dask runs this in."""
    server = dask_scheduler or dask_worker
    return type(server.listener).__module__.partition(".")[0]


async def by_name(client, function, **kwargs):
    workers = (await client.scheduler.identity())["workers"]
    results = await client.run(function, **kwargs)
    return {workers[address]["name"]: got for address, got in results.items()}


async def trade(client):
    """Send a value from each worker to each other, and count what arrives whole."""
    workers = list((await client.scheduler.identity())["workers"])
    arrived = 0
    for source in workers:
        value = await client.submit(
            os.urandom, 10**6, workers=[source], pure=False, allow_other_workers=False
        )
        future = await client.scatter(value, workers=[source])
        for target in workers:
            got = await client.submit(bytes, future, workers=[target], pure=False)
            arrived += got == value
    return arrived


async def test_all_of_a_deployed_cluster_listens_by_spillway(tmp_path):
    async with deployed(
        tmp_path,
        scheduler=PRELOAD,
        workers=[{"arguments": [*PRELOAD, *PRELOAD_NANNY]}] * 2,
    ) as client:
        assert await client.run_on_scheduler(listener) == "spillway"
        assert set((await client.run(listener)).values()) == {"spillway"}
        assert set((await client.run(listener, nanny=True)).values()) == {"spillway"}
        scheduler = await client.run_on_scheduler(stats)
        workers = (await client.run(stats)).values()
        nannies = (await client.run(stats, nanny=True)).values()
        assert await trade(client) == 4
    assert scheduler["role"] == "scheduler"
    assert {got["role"] for got in workers} == {"worker"}
    assert {got["role"] for got in nannies} == {"nanny"}
    for got in (scheduler, *workers, *nannies):
        assert got["messages"]["sent"] > 0
        assert got["messages"]["received"] > 0


async def test_without_a_nanny(tmp_path):
    async with deployed(
        tmp_path, scheduler=PRELOAD, workers=[{"arguments": [*PRELOAD, "--no-nanny"]}]
    ) as client:
        assert await by_name(client, listener) == {"w0": "spillway"}


async def test_spillway_and_stock_workers_on_a_stock_scheduler(tmp_path):
    async with deployed(
        tmp_path,
        workers=[
            {"arguments": [*PRELOAD, *PRELOAD_NANNY]},
            {"arguments": []},
        ],
    ) as client:
        assert await client.run_on_scheduler(listener) == "distributed"
        assert await by_name(client, listener) == {
            "w0": "spillway",
            "w1": "distributed",
        }
        assert await trade(client) == 4
        got = await by_name(client, stats)
    assert got["w0"]["messages"]["received"] > 0
    assert got["w1"]["messages"]["received"] == 0
    assert got["w1"]["parts"]["transport"]["why_off"] == (
        "spillway.dask.enable() was not called in this process"
    )


async def test_stock_and_switched_off_workers_on_a_spillway_scheduler(tmp_path):
    async with deployed(
        tmp_path,
        scheduler=PRELOAD,
        workers=[
            {"arguments": []},
            {
                "arguments": [*PRELOAD, *PRELOAD_NANNY],
                "environment": {"SPILLWAY_DISABLE": "all"},
            },
        ],
    ) as client:
        assert await client.run_on_scheduler(listener) == "spillway"
        assert await by_name(client, listener) == {
            "w0": "distributed",
            "w1": "distributed",
        }
        assert await trade(client) == 4
        identity = await client.scheduler.identity()
    said = {w["name"]: w.get("spillway") for w in identity["workers"].values()}
    assert said["w0"] is None
    assert said["w1"]["off"]["transport"] == "SPILLWAY_DISABLE=all"


def test_importing_it_turns_the_transport_on_and_sets_no_environment():
    code = (
        "import os; before = dict(os.environ);"
        "from distributed.comm.registry import backends; stock = backends['tcp'];"
        "import spillway.dask.preload, spillway;"
        "assert backends['tcp'] is not stock;"
        "assert spillway.stats()['parts']['transport']['on'];"
        "assert before == dict(os.environ)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "breakage, reason",
    [
        ("sys.modules['spillway._native'] = None", "the C library cannot be loaded"),
        ("sys.platform = 'freebsd14'", "it needs Linux"),
        (
            "import spillway.dask; e = sys.modules['spillway.dask.enable'];"
            "e.enable = lambda: 1 / 0",
            "ZeroDivisionError",
        ),
    ],
)
def test_importing_it_where_spillway_cannot_work_warns_once(breakage, reason):
    code = (
        "import sys; from distributed.comm.registry import backends;"
        f"stock = backends['tcp']; {breakage};"
        "import spillway.dask.preload;"
        "assert backends['tcp'] is stock"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stderr.count("Dask is stock") == 1
    assert reason in done.stderr


async def test_writes_stats_when_a_server_starts_and_when_it_closes(monkeypatch):
    calls = []
    for name in ("start_writing", "stop_writing"):
        monkeypatch.setattr(
            process_stats,
            name,
            lambda server, role, name=name: calls.append((name, server, role)),
        )
    enable()
    async with Scheduler(dashboard_address=":0", host="127.0.0.1") as scheduler:
        async with Worker(scheduler.address) as worker:
            async with Client(scheduler.address, asynchronous=True) as client:
                pass
    assert calls == [
        ("start_writing", scheduler, "scheduler"),
        ("start_writing", worker, "worker"),
        ("start_writing", client, "client"),
        ("stop_writing", client, "client"),
        ("stop_writing", worker, "worker"),
        ("stop_writing", scheduler, "scheduler"),
    ]
