"""A cluster of workers with little memory, on one plane, and what its processes cost,
seen from outside of them: what Linux says of them in /proc.

What tasks run stands in modules of this folder: workers are started by multiprocessing,
which hands them this process's sys.path.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from two_processes import enable

QUIET_S = 1.0
PATIENCE_S = 120.0

Process = Path
"""A process's directory in /proc."""


@contextlib.contextmanager
def cluster(plane: str, **options: Any) -> Iterator[Any]:
    """A client of a cluster of its own; `options` are LocalCluster's, with one thread a
    worker unless they say otherwise. On Spillway each worker must have the store, and
    at the end have used it."""
    enable(plane)
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": ":0", **options}
    with (
        LocalCluster(**options) as made,
        Client(made) as client,
    ):
        client.wait_for_workers(options["n_workers"])
        _check_stores(client, plane, has_values=False)
        yield client


def assert_used(client: Any, plane: str) -> None:
    """Every worker has values, or had some that another one has too; in Spillway's
    store or, on stock, not."""
    _check_stores(client, plane, has_values=True)


def _check_stores(client: Any, plane: str, has_values: bool) -> None:
    if plane == "stock":
        assert not any(client.run(_has_spillway).values())
        return
    import spillway

    for address, figures in client.run(spillway.stats).items():
        store = figures["store"]
        assert store["stores"] == 1, f"{address} has no store: {figures['parts']}"
        has = (
            store["live"]["count"]
            + store["packed"]["count"]
            + store["on_disk"]["count"]
            + store["packs"]
            + store["adopted"]
        )
        assert has or not has_values, f"{address} put nothing into its store"


def _has_spillway() -> bool:
    import sys

    return "spillway" in sys.modules


def processes(client: Any) -> dict[str, Process]:
    """By the addresses of the workers, in order."""
    found = client.run(os.getpid)
    return {address: Path("/proc") / str(found[address]) for address in sorted(found)}


def written_bytes(process: Process) -> int:
    """What it has had written to disk: the pages that it made dirty."""
    lines = (process / "io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def cpu_seconds(process: Process) -> float:
    """CPU time of it, user and system together."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def forget_peak(process: Process) -> int:
    """Have the peak of its resident memory begin anew. What it has now."""
    (process / "clear_refs").write_text("5")
    return memory_bytes(process, "VmRSS")


def memory_bytes(process: Process, field: str) -> int:
    """A field of its status that is given in kB."""
    lines = (process / "status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def wait_until_still(read: Callable[[], int]) -> float:
    """Until a figure has not changed for a while: nobody says when the last of a
    worker's values has left. When it changed last, by time.perf_counter."""
    end = time.perf_counter() + PATIENCE_S
    last, since = read(), time.perf_counter()
    while time.perf_counter() - since < QUIET_S:
        assert time.perf_counter() < end, "the workers never stop writing"
        time.sleep(0.05)
        now = read()
        if now != last:
            last, since = now, time.perf_counter()
    return since


def wait_until_written(workers: list[Process]) -> float:
    """Until they have written nothing for a while. When they wrote last."""
    return wait_until_still(lambda: sum(map(written_bytes, workers)))
