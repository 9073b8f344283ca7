"""What the pipelines of this folder share: options, a cluster, a clock, an answer.

A pipeline is a plain Dask script that knows nothing of Spillway:

    python benchmarks/pipelines/NAME.py [--gb 1] [--memory 4GiB] [--scheduler ADDRESS]
        [--check]
    spillway compare benchmarks/pipelines/NAME.py [OPTIONS]

It prints how long its work took in a cluster that was up, and a digest of its answer,
which is exact: what is summed are whole numbers, so that no order of summation shows.
`--check` computes the same without Dask, once more, and fails where it differs.
"""

import argparse
import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd
from distributed import Client, LocalCluster

WORKERS = 2


@dataclass(frozen=True)
class Pipeline:
    """One pipeline, and how large it is unless the command line says otherwise."""

    description: str
    compute: Callable[[Client, argparse.Namespace], pd.DataFrame]
    """The work on which the clock runs. Its answer is small, and in an order that the
    data alone decides."""
    expected: Callable[[argparse.Namespace], pd.DataFrame]
    """The same answer, by other means: DuckDB, pandas or numpy, in this process."""
    gb: float = 1.0
    """Of 1e9 bytes of data, in memory."""
    memory: str = "4GiB"
    """Of each worker."""

    def main(self) -> None:
        options = self._options()
        with _client(options) as client:
            start = time.perf_counter()
            answer = self.compute(client, options)
            seconds = time.perf_counter() - start
        print(f"seconds: {seconds:.3f}")
        print("digest:", digest(answer))
        if options.check:
            pd.testing.assert_frame_equal(answer, self.expected(options))
            print("check: right")

    def _options(self) -> argparse.Namespace:
        parser = argparse.ArgumentParser(
            description=self.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--gb", type=float, default=self.gb)
        parser.add_argument("--memory", default=self.memory)
        parser.add_argument("--scheduler", help="of a cluster that is up already")
        parser.add_argument("--check", action="store_true")
        return parser.parse_args()


def digest(answer: pd.DataFrame) -> str:
    """Of its column names and values, as CSV has them."""
    text = answer.to_csv(index=False)
    return f"{len(answer)} rows {hashlib.sha256(text.encode()).hexdigest()[:16]}"


@contextlib.contextmanager
def _client(options: argparse.Namespace) -> Iterator[Client]:
    """Of the scheduler that is named, or of a cluster of our own: workers of one
    thread, each with a nanny."""
    if options.scheduler:
        with Client(options.scheduler) as client:
            yield client
        return
    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            memory_limit=options.memory,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(WORKERS)
        yield client
