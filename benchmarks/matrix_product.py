"""What is written to disk for a product of two matrices of 1 GiB each on two workers
that have as much memory as one of them, and how long it takes."""

import argparse
import json
import time

from spilling_cluster import (
    assert_used,
    cluster,
    processes,
    wait_until_written,
    written_bytes,
)

ROWS, SHARED = 8192, 16384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--block", type=int, default=2048)
    arguments = parser.parse_args()
    with cluster(arguments.plane, n_workers=2, memory_limit="1GiB") as client:
        import dask.array as da

        workers = list(processes(client).values())
        draw = da.random.default_rng(0).random
        left = draw((ROWS, SHARED), chunks=arguments.block)
        right = draw((SHARED, ROWS), chunks=arguments.block)
        written, start = sum(map(written_bytes, workers)), time.perf_counter()
        product = client.persist(left @ right)
        # Each entry is a sum of products of two numbers of which the mean is 1/2.
        mean = float(client.compute(product.mean()).result())
        seconds = time.perf_counter() - start
        assert_used(client, arguments.plane)
        wait_until_written(workers)
        written = sum(map(written_bytes, workers)) - written
    assert abs(mean / (SHARED / 4) - 1) < 0.001, mean
    print(json.dumps({"written_bytes": written, "seconds": seconds}))


if __name__ == "__main__":
    main()
