"""Values that are made of plain lists and dicts, on each way that a value goes: CPU
time of client, scheduler and workers, and the most frames of one message; for each way,
and for all ways together.

    python benchmarks/plain_values.py --plane stock|spillway [--sample NAME ...]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import counted_frames
import plain_samples
from spilling_cluster import assert_used, cluster, cpu_seconds, processes


class Ways:
    """The ways of one sample through a cluster of two workers."""

    def __init__(self, client: Any, sample: str) -> None:
        self._client = client
        self._sample = sample
        self._value = plain_samples.make(sample)
        self._here, self._there = processes(client)

    def make(self) -> Any:
        """What a worker has as the result of a task."""
        from distributed import wait

        held = self._client.submit(
            plain_samples.make, self._sample, workers=[self._here], pure=False
        )
        wait(held)
        return held

    def scatter(self, _: Any, *, direct: bool = False) -> None:
        """From the client to a worker, whose task uses it."""
        (held,) = self._client.scatter(
            [self._value], workers=[self._here], direct=direct, hash=False
        )
        self._use(held, self._here)

    def scatter_direct(self, held: Any) -> None:
        self.scatter(held, direct=True)

    def gather(self, held: Any, *, direct: bool = False) -> None:
        """From a worker to the client."""
        came = self._client.gather(held, direct=direct)
        assert type(came) is type(self._value) and len(came) == len(self._value)

    def gather_direct(self, held: Any) -> None:
        self.gather(held, direct=True)

    def fetch(self, held: Any) -> None:
        """From a worker to another, whose task uses it."""
        self._use(held, self._there)

    def spill(self, held: Any) -> None:
        """To disk and back, for a task."""
        self._client.run(plain_samples.spill, workers=[self._here])
        self._use(held, self._here)

    def _use(self, held: Any, worker: str) -> None:
        used = self._client.submit(
            plain_samples.look, held, workers=[worker], pure=False
        )
        assert used.result() == len(self._value)


WAYS: list[Callable[[Ways, Any], None]] = [
    *(Ways.scatter, Ways.scatter_direct, Ways.gather, Ways.gather_direct),
    *(Ways.fetch, Ways.spill),
]


class Costs:
    """What ways cost, and of how many frames their messages are."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._workers = list(processes(client).values())
        counted_frames.count()
        client.run(counted_frames.count)

    def of(self, way: Callable[[Ways, Any], None], ways: Ways) -> tuple[float, int]:
        """CPU seconds of all processes, and the most frames of one message."""
        held = ways.make()
        self._take_frames()
        before = self._cpu_seconds()
        way(ways, held)
        return self._cpu_seconds() - before, self._take_frames()

    def _cpu_seconds(self) -> float:
        return time.process_time() + sum(map(cpu_seconds, self._workers))

    def _take_frames(self) -> int:
        of_workers = self._client.run(counted_frames.take_most).values()
        return max(counted_frames.take_most(), *of_workers)


def measure(client: Any, samples: list[str]) -> dict[str, float]:
    costs = Costs(client)
    for way in WAYS:  # what a process does for the first time counts for no sample
        costs.of(way, Ways(client, "arrays"))
    found: dict[str, float] = {}
    for sample in samples:
        ways = Ways(client, sample)
        total, most = 0.0, 0
        for way in WAYS:
            cpu_s, frames = costs.of(way, ways)
            found[f"{sample}_{way.__name__}_cpu_s"] = cpu_s
            found[f"{sample}_{way.__name__}_frames"] = frames
            total, most = total + cpu_s, max(most, frames)
        found[f"{sample}_cpu_s"], found[f"{sample}_frames"] = total, most
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--sample", choices=plain_samples.SAMPLES, nargs="+")
    options = parser.parse_args()
    with cluster(options.plane, n_workers=2, memory_limit="2GiB") as client:
        found = measure(client, options.sample or list(plain_samples.SAMPLES))
        held = client.scatter(found, broadcast=True)
        assert_used(client, options.plane)
        del held
    print(json.dumps(found))


if __name__ == "__main__":
    main()
