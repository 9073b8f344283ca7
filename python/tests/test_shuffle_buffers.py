"""The buffer of a shuffle, as the workers of clusters find it. How it gets there:
test_hook_shuffle_buffer.py."""

import contextlib
import functools
import json
import os
import pickle
import subprocess
import sys

import dask
import pandas
import pytest
from dask.dataframe import from_pandas
from dask.tokenize import tokenize
from dask.utils import M
from distributed import Client, LocalCluster, wait
from distributed.shuffle._shuffle import DataFrameShuffleSpec

from spillway.dask import enable, shuffle_buffers
from spillway.dask.shuffle_buffers import MethodWithBuffer
from spillway.dask.shuffle_run import DataFrameRun

ANNOTATION = shuffle_buffers.ANNOTATION


def spec():
    return DataFrameShuffleSpec(
        id="7",
        disk=True,
        npartitions=2,
        column="k",
        meta=None,
        parts_out=2,
        drop_column=1,
    )


def test_a_spec_without_a_mark_is_auto():
    assert shuffle_buffers.chosen_for(spec()) == "auto"


@pytest.mark.parametrize("buffer", shuffle_buffers.BUFFERS)
def test_a_mark_survives_pickle_and_changes_nothing_else(buffer):
    marked = spec()
    shuffle_buffers.mark(marked, buffer)
    read = pickle.loads(pickle.dumps(marked))
    assert shuffle_buffers.chosen_for(read) == buffer
    assert read == spec()
    assert repr(read) == repr(spec())


def test_a_mark_of_a_later_version_is_auto():
    marked = spec()
    shuffle_buffers.mark(marked, "compressed")
    assert shuffle_buffers.chosen_for(marked) == "auto"


def test_a_method_with_a_buffer_is_the_method_to_dask():
    enable()
    method = MethodWithBuffer("p2p", "disk")
    assert method == "p2p"
    assert repr(method) == "'p2p' (buffer disk)"
    assert tokenize(method) == tokenize(MethodWithBuffer("p2p", "disk"))
    others = "p2p", MethodWithBuffer("p2p", "memory"), MethodWithBuffer("", "disk")
    assert len({tokenize(other) for other in (method, *others)}) == 4
    assert type(pickle.loads(pickle.dumps(method))) is str


# On clusters

seen = []
"""In a worker's process: the worker, the shuffle and its buffer, for each run."""


def record():
    """In a worker's process, once."""
    made = DataFrameRun.__init__
    if hasattr(made, "__wrapped__"):
        return

    @functools.wraps(made)
    def init(self, spec, run_id, worker_for, span_id, plugin):
        seen.append((plugin.worker.address, spec.id, shuffle_buffers.chosen_for(spec)))
        made(self, spec, run_id, worker_for, span_id, plugin)

    DataFrameRun.__init__ = init


def recorded(client):
    """By shuffle, its buffer and the workers that ran a part of it."""
    by_shuffle = {}
    for entries in client.run(taken).values():
        for worker, shuffle, buffer in entries:
            by_shuffle.setdefault((shuffle, buffer), set()).add(worker)
    return by_shuffle


def taken():
    entries = list(seen)
    seen.clear()
    return entries


@contextlib.contextmanager
def local_cluster(processes):
    enable()
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=processes,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


SCHEDULER_WITHOUT_SPILLWAY = """
import sys
sys.modules["spillway"] = None  # every import of it fails
from dask.__main__ import main
sys.argv = ["dask", "scheduler", *sys.argv[1:]]
main()
"""


@contextlib.contextmanager
def process(*command):
    path = os.pathsep.join(filter(None, sys.path))  # for what is pickled by reference
    started = subprocess.Popen(
        [sys.executable, *command], env={**os.environ, "PYTHONPATH": path}
    )
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:  # stock Dask can miss a signal at its end
            started.kill()
            started.wait()


@contextlib.contextmanager
def stock_scheduler(tmp_path):
    """In a process that cannot import Spillway; its two workers can."""
    where = ("--scheduler-file", str(tmp_path / "scheduler.json"))
    quiet = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    worker = ("-m", "dask", "worker", *where, "--nthreads", "1", "--no-nanny")
    preload = ("--no-dashboard", "--preload", "spillway.dask.preload")
    enable()
    with (
        process("-c", SCHEDULER_WITHOUT_SPILLWAY, *where, *quiet),
        process(*worker, *preload),
        process(*worker, *preload),
        Client(scheduler_file=where[1], timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        assert client.run_on_scheduler(spillway_is_known) is False
        yield client


def spillway_is_known():
    import sys

    return sys.modules.get("spillway") is not None


spillway_is_known.__module__ = "__main__"  # by value, so that nothing of ours is needed


@pytest.fixture(params=["threads", "nannies", "stock scheduler"])
def client(request, tmp_path):
    clusters = {
        "threads": functools.partial(local_cluster, False),
        "nannies": functools.partial(local_cluster, True),
        "stock scheduler": functools.partial(stock_scheduler, tmp_path),
    }
    made = DataFrameRun.__init__
    with clusters[request.param]() as connected:
        connected.run(record)
        yield connected
    DataFrameRun.__init__ = made
    seen.clear()


def values():
    return pandas.DataFrame({"k": [i * 7 % 50 for i in range(200)], "v": range(200)})


def in_order(df):
    return df.sort_values(list(df.columns)).reset_index(drop=True)


@pytest.mark.timeout(180)
def test_every_worker_knows_what_was_chosen_for_each_shuffle(client):
    df = from_pandas(values(), npartitions=4)
    other = df.rename(columns={"v": "x"})
    made = {"shuffle": df.shuffle("k")}
    with dask.config.set({shuffle_buffers.CONFIG_KEY: "disk"}):
        made["shuffle, disk"] = df.shuffle("k")
        made["merge, disk"] = df.merge(other, on="k")
        with dask.annotate(**{ANNOTATION: "memory"}):
            made["shuffle, memory"] = df.shuffle("k")
            made["apply, memory"] = df.groupby("v").apply(len, meta=("n", "i8"))
            # Dask sorts in one partition where it may put one result together.
            ordered = df.sort_values("k").map_partitions(M.copy)
            made["sort_values, memory"] = ordered
    results = dict(zip(made, dask.compute(*made.values()), strict=True))

    ran = recorded(client)
    buffers = sorted(buffer for _, buffer in ran)
    assert buffers == ["auto", *["disk"] * 3, *["memory"] * 3]
    assert len({shuffle for shuffle, _ in ran}) == len(ran)
    assert all(len(workers) == 2 for workers in ran.values())

    for name, result in results.items():
        if name.startswith("shuffle"):
            pandas.testing.assert_frame_equal(
                in_order(result), in_order(values()), check_dtype=True
            )
            assert result.attrs == {}
    stock = values().merge(values().rename(columns={"v": "x"}), on="k")
    pandas.testing.assert_frame_equal(in_order(results["merge, disk"]), in_order(stock))
    assert len(results["apply, memory"]) == 200
    assert results["sort_values, memory"].k.is_monotonic_increasing


@pytest.mark.timeout(180)
def test_what_is_persisted_is_not_shuffled_again(client):
    df = from_pandas(values(), npartitions=4)
    with dask.annotate(**{ANNOTATION: "memory"}):
        shuffled = df.shuffle("k")
    persisted = shuffled.persist()
    wait(persisted)
    assert [buffer for _, buffer in recorded(client)] == ["memory"]
    again = dask.compute(shuffled, persisted)
    assert recorded(client) == {}  # the same keys
    for result in again:
        pandas.testing.assert_frame_equal(in_order(result), in_order(values()))
    with dask.annotate(**{ANNOTATION: "disk"}):
        df.shuffle("k").compute()
    assert [buffer for _, buffer in recorded(client)] == ["disk"]


def test_the_environment_is_that_of_who_builds_the_graph():
    script = (
        "import json\n"
        "from spillway.dask import shuffle_buffers\n"
        "print(json.dumps(shuffle_buffers.said()))\n"
    )
    environ = {**os.environ, "DASK_SPILLWAY__SHUFFLE__BUFFER": "memory"}
    shown = subprocess.check_output([sys.executable, "-c", script], env=environ)
    assert json.loads(shown) == "memory"
