"""What the malloc settings of nannies' workers do to whole jobs, on stock Dask alone.

    python benchmarks/malloc_settings.py [--rounds 3] [--set "NAME=VALUE ..."]...

Each round runs the jobs below on a stock cluster of two workers, once as Dask starts
its workers and once with the settings that Spillway gives them (hook_malloc.py), in
turn; Spillway itself is in neither. Each --set adds a run with these settings.
Printed are medians, for each job: seconds, CPU seconds of the workers, page faults in
thousands, and MiB of the workers' memory beyond their start, at the end of the job.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

KIB, MIB = 1 << 10, 1 << 20
FIGURES = ("s", "cpu_s", "kfaults", "rss_mib")


def temporaries(seed: int, size: int, repeats: int) -> float:
    """Elementwise numpy, as users write it: five temporaries of `size` bytes a line."""
    import numpy as np

    x = np.random.default_rng(seed).random(size // 8)
    total = 0.0
    for _ in range(repeats):
        y = (x * 2 + 1) / (x + 3) - x * x
        total += float(y[0])
    return total


def frames(seed: int, rows: int) -> float:
    """Columns made, rows filtered, sorted, grouped and merged by pandas."""
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(seed)
    df = pd.DataFrame({"k": random.integers(0, 1000, rows), "x": random.random(rows)})
    df["y"] = df.x * 2 + 1
    df = df[df.y > 1.2].sort_values("x")
    means = df.groupby("k", as_index=False).y.mean()
    return float(df.merge(means, on="k").x.sum())


def small(client, count):
    return client.map(temporaries, range(count), size=256 * KIB, repeats=600)


def middle(client, count):
    return client.map(temporaries, range(count), size=2 * MIB, repeats=60)


def large(client, count):
    return client.map(temporaries, range(count), size=16 * MIB, repeats=8)


def tables(client, count):
    return client.map(frames, range(count), rows=300_000)


def product(client, count):
    """A matrix product in blocks of 8 MiB, whose partial sums are temporaries."""
    import dask.array as da

    side = 4096
    x = da.random.default_rng(0).random((side, side), chunks=1024)
    return [client.compute((x @ x.T).sum())]


JOBS = (small, middle, large, tables, product)


def used(dask_worker) -> dict:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "kfaults": usage.ru_minflt / 1000,
        "rss_mib": dask_worker.monitor.proc.memory_info().rss / MIB,
    }


def run_jobs(environ: dict, count: int) -> dict:
    """Every job on a cluster of its own workers, started with `environ` beside Dask's
    own settings."""
    import dask
    from distributed import Client, LocalCluster

    assert "spillway" not in sys.modules
    name = "distributed.nanny.pre-spawn-environ"
    found = {}
    with dask.config.set({name: {**dask.config.get(name), **environ}}):
        for job in JOBS:
            with (
                LocalCluster(
                    n_workers=2, threads_per_worker=1, dashboard_address=":0"
                ) as cluster,
                Client(cluster) as client,
            ):
                for key, value in environ.items():
                    assert set(client.run(os.getenv, key).values()) == {value}
                found[job.__name__] = figures_of(client, job, count)
    return found


def figures_of(client, job, count: int) -> dict:
    from distributed import wait

    wait(job(client, 2))
    before, start = client.run(used), time.perf_counter()
    done = job(client, count)
    wait(done)
    seconds, after = time.perf_counter() - start, client.run(used)
    for future in done:
        future.result()
    return {"s": seconds} | {
        figure: sum(after[w][figure] - before[w][figure] for w in after)
        for figure in FIGURES[1:]
    }


def in_a_process(environ: dict, count: int) -> dict:
    """A nanny leaves its settings in its process's environment: a new one each time."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, __file__, "--one", json.dumps(environ), "--count", str(count)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=clean,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=12, help="tasks of a job")
    parser.add_argument("--set", action="append", default=[], metavar="NAMES")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(run_jobs(arguments.one, arguments.count)))
        return
    sets = {"Dask's": {}}
    from spillway.dask.malloc_variables import SETTINGS

    sets["Spillway's"] = {one.variable: one.value for one in SETTINGS}
    for text in arguments.set:
        sets[text] = dict(pair.split("=", 1) for pair in text.split())
    rounds: dict[str, list[dict]] = {name: [] for name in sets}
    for _ in range(arguments.rounds):
        for name, environ in sets.items():
            rounds[name].append(in_a_process(environ, arguments.count))
    print("| job | settings | " + " | ".join(FIGURES) + " |")
    print("|---|---|" + "---|" * len(FIGURES))
    for job in JOBS:
        for name, runs in rounds.items():
            cells = (
                f"{statistics.median(run[job.__name__][figure] for run in runs):.4g}"
                for figure in FIGURES
            )
            print(f"| {job.__name__} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
