"""Shuffles, simulated by seeds: right rows or one clear error, and nothing left.

A seed decides on inputs, partitions, buffers and workers, on who does what and in which
order, and on what goes wrong. Runs are real, with their messages, memory and files;
what they stand on is not (simulated_*.py). What pandas.concat gives says what has to
come out. A seed that fails, fails again:

    python python/tests/simulated_exchange.py FIRST_SEED COUNT
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import random as chance
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from distributed import Reschedule
from distributed import utils as distributed_utils
from distributed.shuffle import _worker_plugin
from distributed.shuffle._core import handle_transfer_errors, handle_unpack_errors
from distributed.shuffle._exceptions import P2PConsistencyError
from distributed.shuffle._shuffle import DataFrameShuffleSpec

import simulated_loop
from comm_pairs import charged
from simulated_cluster import Cluster, Execution, FailedBehind, Worker
from simulated_disk import NamelessFile, Partitions
from simulated_weather import Weather
from spillway import _native, shuffle_figures
from spillway.dask import (
    hook_shuffle,
    shuffle_again,
    shuffle_buffers,
    shuffle_memory,
    shuffle_run,
)
from spillway.dask.shuffle_errors import OutOfDisk

PATIENCE_S = 150
"""Virtual, for all shuffles of a seed. A message that is tried until it is given up
takes 176."""

WORDS = np.array(["", "a", "bc", "déf", "a longer text, for once"], dtype=object)


class Wrong(AssertionError):
    """What must not be."""


class Shuffle:
    """The inputs of a shuffle, and what comes out."""

    def __init__(self, name: str, random: chance.Random) -> None:
        partitions = random.randint(1, 7)
        inputs = random.choice([12, random.randint(1, 6)])
        self.inputs = [_input(random, number, partitions) for number in range(inputs)]
        wanted: Any = partitions
        if random.random() < 0.2:  # the graph leaves some out
            wanted = sorted(random.sample(range(partitions), partitions - 1))
        self.spec = DataFrameShuffleSpec(
            id=name,
            disk=True,
            npartitions=partitions,
            column="part",
            meta=self.inputs[0].iloc[:0],
            parts_out=wanted or partitions,
            drop_column=random.random() < 0.5,
        )
        shuffle_buffers.mark(self.spec, random.choice(shuffle_buffers.BUFFERS))

    def output(self, partition: int) -> pd.DataFrame:
        """What pandas makes of the right rows."""
        parts = [frame[frame["part"] == partition] for frame in self.inputs]
        whole = pd.concat([part for part in parts if len(part)] or [self.spec.meta])
        return whole.drop(columns="part") if self.spec.drop_column else whole


def _input(random: chance.Random, number: int, partitions: int) -> pd.DataFrame:
    rows = random.choice([0, 1, 30, 30, random.randint(2, 300)])
    numbers = np.random.default_rng(random.getrandbits(32))
    value = numbers.integers(-9, 9, rows)
    return pd.DataFrame(
        {
            "part": numbers.integers(0, random.choice([1, partitions]), rows),
            "value": value + 0.5 if random.random() < 0.2 else value,
            "text": pd.array(WORDS[numbers.integers(0, len(WORDS), rows)], dtype="str"),
            "object": pd.Series(
                [(number, row) if row % 3 else None for row in range(rows)],
                dtype=object,
            ).to_numpy(),
        },
        index=np.arange(rows) + number * 1000,
    )


def is_same(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    """Whether two frames are equal, types and order included."""
    return (
        left.equals(right)
        and list(left.columns) == list(right.columns)
        and list(left.dtypes) == list(right.dtypes)
        and left.index.dtype == right.index.dtype
    )


class Simulation:
    """One seed."""

    def __init__(self, seed: int, place: Path) -> None:
        self.random = random = chance.Random(seed)
        self.loop = simulated_loop.Loop(random)
        self.weather = Weather.by_chance(random)
        memory = random.choice([20_000, 400_000])
        self.cluster = Cluster(self.loop, random, self.weather, memory, place)
        self._message_bytes = random.choice([500, 10_000, 1 << 20])
        self._place = place
        self._runs: list[Any] = []
        self._files: list[NamelessFile] = []
        self._has_failed_behind: set[str] = set()
        self._wrong: list[str] = []

    def run(self) -> None:
        """All of it.

        Raises
        ------
        Wrong
            When something is.
        """
        shuffles = [
            Shuffle(name, self.random) for name in "ab"[: self.random.choice([1, 1, 2])]
        ]
        for _ in range(self.random.randint(1, 4)):
            self.cluster.start_worker()
        self._plan([shuffle.spec.id for shuffle in shuffles])
        for shuffle in shuffles:
            run = {
                "transfer": lambda number, s=shuffle: self._transfer(s, number),
                "barrier": self._barrier(shuffle),
                "unpack": lambda partition, s=shuffle: self._unpack(s, partition),
            }
            self.cluster.submit(shuffle.spec, len(shuffle.inputs), run)
        self.loop.run_until_idle()
        self._check_ends(shuffles)
        for worker in list(self.cluster.workers.values()):
            self.cluster.leave(worker)
        self.loop.run_until_idle()
        self._check_what_is_left()

    # What tasks do, in their threads.

    def _transfer(self, shuffle: Shuffle, number: int) -> Callable[..., Any]:
        name, data = shuffle.spec.id, shuffle.inputs[number]

        def run(execution: Execution, worker: Worker) -> int:
            with handle_transfer_errors(name), self._clear_errors(execution):
                return worker.plugin.add_partition(data, number, name)

        return run

    def _barrier(self, shuffle: Shuffle) -> Callable[..., Any]:
        def run(execution: Execution, worker: Worker) -> int:
            with self._clear_errors(execution):
                run_id = worker.plugin.barrier(shuffle.spec.id, execution.given)
            if execution.is_wanted:
                self._check_bytes(shuffle, run_id)
            return run_id

        return run

    def _unpack(self, shuffle: Shuffle, partition: int) -> Callable[..., Any]:
        name, meta = shuffle.spec.id, shuffle.spec.meta
        expected = shuffle.output(partition)

        def run(execution: Execution, worker: Worker) -> None:
            key, [run_id] = execution.task.key, execution.given
            with handle_unpack_errors(name), self._clear_errors(execution):
                frame = worker.plugin.get_output_partition(
                    name, run_id, partition, meta
                )
            if not is_same(frame, expected):
                self._wrong.append(f"{key} has\n{frame}\nand not\n{expected}")
            if key not in self._has_failed_behind:
                if self.random.random() < self.weather.fails_behind:
                    self._has_failed_behind.add(key)
                    raise FailedBehind

        return run

    @contextlib.contextmanager
    def _clear_errors(self, execution: Execution) -> Iterator[None]:
        """Note what is no clear error, or has no reason."""
        try:
            yield
        except Exception as error:
            if not self._is_clear(error) and not _is_of_no_use(error, execution):
                self._wrong.append("".join(traceback.format_exception(error)))
            raise

    def _is_clear(self, error: BaseException) -> bool:
        weather, says = self.weather, str(error)
        if isinstance(error, _native.SpillwayError):
            return bool(weather.read_fails) and error.errno == errno.EIO
        if isinstance(error, OutOfDisk) or "A shuffle has no room" in says:
            is_full = "no room on disk" in says or os.strerror(errno.ENOSPC) in says
            return weather.may_fill_disk and is_full
        if " lacks rows: " in says:
            return bool(weather.forgotten)
        return isinstance(error, P2PConsistencyError | Reschedule)

    # What happens besides.

    def _plan(self, names: list[str]) -> None:
        random, cluster = self.random, self.cluster

        def some_time(action: Callable[[], None]) -> None:
            turn = int(20 * random.paretovariate(0.7))
            self.loop.planned.setdefault(turn, []).append(action)

        if random.random() < 0.3:
            for _ in range(random.randint(1, 2)):
                some_time(self._lose_worker)
        if random.random() < 0.2:
            some_time(cluster.start_worker)
        if random.random() < 0.3:
            some_time(lambda: cluster.restart(random.choice(names)))
        for _ in range(5):
            some_time(self._heartbeat)

    def _lose_worker(self) -> None:
        cluster = self.cluster
        if len(cluster.workers) > 1 and not cluster.going:
            [lose] = self.random.choices([cluster.kill, cluster.leave], [7, 3])
            lose(self.random.choice(list(cluster.workers.values())))

    def _heartbeat(self) -> None:
        for worker in self.cluster.workers.values():
            if worker.address not in self.cluster.killed:
                worker.plugin.heartbeat()

    # What has to be true.

    def _check_bytes(self, shuffle: Shuffle, run_id: int) -> None:
        """Behind a barrier, what was sent arrived, and once, by what runs tell."""
        runs = [
            run
            for run in self._runs
            if (run.id, run.run_id) == (shuffle.spec.id, run_id)
        ]
        others = [
            execution
            for worker in self.cluster.workers.values()
            for execution in worker.executing.values()
            if execution.task.shuffle == shuffle.spec.id
        ]
        is_over = any(run.closed or self._is_killed(run) for run in runs)
        if is_over or len(others) > 1:  # a task that nobody waits for may be sending
            return
        sent = sum(run._outbox.sent_bytes for run in runs)
        received = sum(run._received_bytes for run in runs)
        if sent != received and not self.weather.forgotten:
            self._wrong.append(f"{received} bytes came, and {sent} were sent")

    def _check_ends(self, shuffles: list[Shuffle]) -> None:
        self._raise_wrong()
        for shuffle in shuffles:
            if shuffle.spec.id not in self.cluster.ended:
                raise Wrong(f"{shuffle.spec.id} does not end: {self._waiting()}")
            error = self.cluster.ended[shuffle.spec.id]
            if error is not None and not self.weather.may_fail:
                raise Wrong(f"{shuffle.spec.id} failed without need: {error}")
        if self.cluster.ended_at > PATIENCE_S:
            raise Wrong(f"it took {self.cluster.ended_at:.0f} s")

    def _check_what_is_left(self) -> None:
        self._raise_wrong()
        if asyncio.all_tasks(self.loop) or self.loop.threads:
            raise Wrong(f"something waits for ever: {self._waiting()}")
        for run in self._runs:
            if not self._is_killed(run):
                self._check_closed(run)
        if any(self._place.glob("*/*")):
            gc.collect()  # an error of reading, and the frames that it came through
        left = [str(path) for path in self._place.glob("*/*")]
        if left:
            raise Wrong(f"left on disk: {left}")
        if any(not file.file.closed for file in self._files):
            raise Wrong("a file of what was read again is open")

    def _is_killed(self, run: Any) -> bool:
        return run.local_address in self.cluster.killed

    def _check_closed(self, run: Any) -> None:
        if not run.closed:
            raise Wrong(f"{run} is open")
        if run._kept is not None:
            raise Wrong(f"{run} keeps its rows")
        if run._outbox.waiting_bytes or run._outbox.waiting_workers:
            raise Wrong(f"{run} keeps what waited to be sent")

    def _raise_wrong(self) -> None:
        if self._wrong:
            raise Wrong("\n".join(self._wrong))

    def _waiting(self) -> str:
        tasks = sorted(asyncio.all_tasks(self.loop), key=hash)
        return f"{tasks}, and threads of {[t.process for t in self.loop.threads]}"

    # What stands in for what runs find around them.

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Have runs be on this loop and these disks, and be known."""
        init = shuffle_run.DataFrameRun.__init__
        threads = SimpleNamespace(Lock=simulated_loop.Lock)

        def note_run(run: Any, *given: Any) -> None:
            init(run, *given)
            self._runs.append(run)

        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (distributed_utils, "sync", simulated_loop.sync),
                (_worker_plugin, "sync", simulated_loop.sync),
                (shuffle_run, "threading", threads),
                (shuffle_again, "threading", threads),
                (shuffle_again, "_ids", {}),
                (shuffle_again, "TemporaryFile", self._open_file),
                (shuffle_memory, "open_partitions", self._open_partitions),
                (shuffle_memory, "MESSAGE_BYTES", self._message_bytes),
                (shuffle_run.DataFrameRun, "__init__", note_run),
            ):
                stack.enter_context(mock.patch.object(owner, name, value))
            yield

    def _open_partitions(self, worker: Any, count: int, limit: int | None) -> Any:
        memory = None if limit is None else self.random.choice([400, 5000, 30_000])
        return Partitions(
            worker.local_directory, max(1, count), memory, self.random, self.weather
        )

    def _open_file(self, dir: str) -> Any:
        self._files.append(NamelessFile(dir, self.random, self.weather))
        return self._files[-1]


def _is_of_no_use(error: BaseException, execution: Execution) -> bool:
    """Whether Dask's scheduler, or a run, said to a task that nobody waits for, or that
    was begun for another run, that it is too late."""
    says, shuffle_id = str(error), execution.task.shuffle
    return (not execution.is_wanted or execution.has_gone_on) and (
        (isinstance(error, KeyError) and error.args == (shuffle_id,))
        or (isinstance(error, ValueError) and "does not match" in says)
        or (isinstance(error, RuntimeError) and "during P2P barrier" in says)
        or (isinstance(error, RuntimeError) and "left during shuffle" in says)
        or (isinstance(error, RuntimeError) and "not making progress" in says)
        or (isinstance(error, RuntimeError) and "Cannot add more" in says)
    )


def simulate(seed: int) -> Simulation:
    """Run a seed, and see that it leaves this process as it was.

    Raises
    ------
    Wrong
        When something must not be as it is.
    """
    if any(charged().values()):
        gc.collect()  # what was there before, in cycles
    figures, state = shuffle_figures.read(), chance.getstate()
    held = charged()
    with tempfile.TemporaryDirectory() as place:
        simulation = Simulation(seed, Path(place))
        chance.seed(seed)  # Dask waits by it between two tries
        try:
            with simulation.in_place():
                simulation.run()
            # Of a loop that is closed no run is open.
            now = shuffle_figures.read()
        finally:
            simulation.loop.end()
            chance.setstate(state)
    for name in ("open_runs", "memory_bytes", "disk_bytes"):
        if now[name] != figures[name]:
            raise Wrong(f"{name} is {now[name]}, and was {figures[name]}")
    if files := open_files_of(place):
        raise Wrong(f"{files} are open")
    if charged() != held:
        gc.collect()  # errors and the frames that they came through
    if charged() != held:
        raise Wrong(f"the budget has {charged()}, and had {held}")
    return simulation


def open_files_of(directory: str) -> list[str]:
    """Those that this process has open, also if they have no name any more."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # of listdir itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [file for file in found if file.startswith(directory)]


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Runs are ours, and nobody logs what is meant to go wrong."""
    logging.disable(logging.CRITICAL)
    hook_shuffle.install()
    try:
        yield
    finally:
        hook_shuffle.remove()
        logging.disable(logging.NOTSET)


def _kind(end: str | None) -> str:
    """Of what a shuffle ended with."""
    return "with right rows" if end is None else "by " + end.split("(")[0]


def main(first: int, count: int) -> None:
    """Run seeds, and say how to run again the first that fails."""
    ends: Counter[str] = Counter()
    before = shuffle_figures.read()
    with installed():
        for seed in range(first, first + count):
            try:
                simulation = simulate(seed)
            except BaseException:
                print(f"seed {seed} failed; again: python {sys.argv[0]} {seed} 1")
                raise
            ends.update(_kind(end) for end in simulation.cluster.ended.values())
    now = shuffle_figures.read()
    did = {name: now[name] - before[name] for name in ("runs", "rows_out", "repeats")}
    print(f"{count} seeds from {first} on: shuffles ended {dict(ends)}; {did}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
