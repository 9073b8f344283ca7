"""How near workers come to where their nannies kill them, which look at the resident
size alone: tasks keep and free pieces of every size, and exchange what they make.

    python benchmarks/resident_peak.py --plane stock
    python benchmarks/resident_peak.py --plane spillway [--limit 1GB]

Prints the most that each of two workers ever had, and 95% of its limit, in MiB. No
worker is killed here, so that all of the job is seen.
"""

import argparse
import random
import time

from spilling_cluster import assert_used, cluster, memory_bytes, processes

MIB = 1 << 20
TASKS = 150
KEPT_BYTES = 120_000_000
RESULT = 1_000_000


def churn(seed, *dependencies):
    """Keep pieces of 64 KiB to 23 MiB, and let go of half of them when they are more
    than KEPT_BYTES."""
    import numpy

    choose = random.Random(seed)
    kept, total = [], 0
    for _ in range(40):
        piece = numpy.ones(int(2 ** choose.uniform(16, 24.5)), "u1")
        kept.append(piece)
        total += piece.nbytes
        while total > KEPT_BYTES:
            for _ in range(len(kept) // 2):
                total -= kept.pop(choose.randrange(len(kept))).nbytes
    return numpy.full(RESULT, seed + sum(int(one[0]) for one in dependencies), "f8")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--limit", default="1GB")
    arguments = parser.parse_args()
    import dask
    from dask.utils import parse_bytes

    with (
        dask.config.set({"distributed.worker.memory.terminate": False}),
        cluster(
            arguments.plane,
            n_workers=2,
            threads_per_worker=2,
            memory_limit=arguments.limit,
        ) as client,
    ):
        from distributed import wait

        workers = processes(client)
        start = time.perf_counter()
        made = client.map(churn, range(TASKS), pure=False)
        wait(made)
        used = [
            client.submit(
                churn, n, *(made[(n + far) % TASKS] for far in (0, 7, 50)), pure=False
            )
            for n in range(TASKS)
        ]
        wait(used)
        took = time.perf_counter() - start
        peaks = [memory_bytes(process, "VmHWM") // MIB for process in workers.values()]
        assert_used(client, arguments.plane)
    killed_at = int(0.95 * parse_bytes(arguments.limit)) // MIB
    print(f"{arguments.plane}: {peaks} of {killed_at} MiB, {took:.0f} s")


if __name__ == "__main__":
    main()
