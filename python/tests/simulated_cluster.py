"""A scheduler and workers that shuffle, as far as Dask's plugins look at them.

What runs is those plugins, the hook that makes runs ours, and the runs. The scheduler
knows tasks of shuffles alone, and decides by chance who runs one. Processes may be
killed, and may leave.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from dask.context import thread_state
from distributed import Reschedule
from distributed.shuffle._core import barrier_key
from distributed.shuffle._scheduler_plugin import ShuffleSchedulerPlugin
from distributed.shuffle._worker_plugin import ShuffleWorkerPlugin

from simulated_loop import Loop, Thread, in_process
from simulated_network import SCHEDULER, Network, Remote
from simulated_weather import Weather
from spillway import shuffle_figures
from spillway.dask import shuffle_peers

SLOTS = 2
"""Tasks at a time on a worker."""


class FailedBehind(Exception):
    """A task that fails after it has read a partition, and is tried again."""


class Worker:
    """What Dask's plugin, and a run, want of a worker."""

    def __init__(self, cluster: Any, address: str, memory: int, place: Path) -> None:
        self.address = self.address_safe = address
        self.loop, self._cluster = cluster.loop, cluster
        self.handlers: dict[str, Any] = {}
        self.stream_handlers: dict[str, Any] = {}
        self.extensions: dict[str, Any] = {}
        self.local_directory = tempfile.mkdtemp(dir=place)
        self.memory_manager = SimpleNamespace(
            memory_limit=memory,
            # Nobody looks at the size of a process that all of them are.
            memory_target_fraction=False,
            memory_spill_fraction=False,
        )
        self.state = SimpleNamespace(nthreads=2, ready=None)
        self._ongoing_background_tasks = SimpleNamespace(call_soon=self._call_soon)
        self.scheduler = Remote(cluster.network, SCHEDULER)
        self.told_at = 0.0
        self.plugin = ShuffleWorkerPlugin()
        self.plugin.setup(self)
        self.executing: dict[str, Execution] = {}
        cluster.network.handlers[address] = self.handlers

    def rpc(self, address: str) -> Remote:
        return Remote(self._cluster.network, address)

    def digest_metric(self, name: Any, value: float) -> None:
        pass

    def _call_soon(self, function: Any, *args: Any) -> None:
        self.loop.create_task(function(*args), context=in_process(self.address))


class ShuffleTask:
    """A task as the scheduler has it, as far as Dask's plugin looks at it."""

    def __init__(
        self, shuffle: str, key: str, run: Callable[["Execution", Worker], Any]
    ) -> None:
        self.shuffle, self.key, self.run = shuffle, key, run
        self.dependencies: list[ShuffleTask] = []
        self.dependents: list[ShuffleTask] = []
        self.state, self.attempt, self.result = "released", 0, None
        self.worker: str | None = None
        self.annotations: dict[str, Any] | None = None
        self.worker_restrictions: set[str] | None = None
        self.exception_blame = self.group = self
        self.span_id = None

    def needs(self, *others: "ShuffleTask") -> None:
        self.dependencies += others
        for other in others:
            other.dependents.append(self)


class Execution:
    """A task that runs on a worker."""

    def __init__(self, task: ShuffleTask, attempt: int, given: list[Any]) -> None:
        self.task, self.attempt, self.given = task, attempt, given
        self.has_gone_on = False

    def go_on_for(self, attempt: int) -> None:
        """It was let go of, and is wanted again."""
        self.attempt, self.has_gone_on = attempt, True

    @property
    def is_wanted(self) -> bool:
        """Whether the scheduler still waits for what comes of it."""
        task = self.task
        return task.state == "processing" and task.attempt == self.attempt


class Plugin(ShuffleSchedulerPlugin):
    """Dask's own, whose specs and numbers of runs are a simulation's."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._run_ids = itertools.count(1)

    def _retrieve_spec(self, shuffle_id: Any) -> Any:
        return _Numbered(self.scheduler.specs[shuffle_id], self._run_ids)


class _Numbered:
    """A spec whose runs are counted from the begin of a simulation."""

    def __init__(self, spec: Any, run_ids: Any) -> None:
        self._spec, self._run_ids = spec, run_ids

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec, name)

    def create_new_run(self, **options: Any) -> Any:
        state = self._spec.create_new_run(**options)
        object.__setattr__(state.run_spec, "run_id", next(self._run_ids))
        return state


class Cluster:
    """The scheduler, and all workers that there are and were."""

    def __init__(
        self, loop: Loop, random: Random, weather: Weather, memory: int, place: Path
    ) -> None:
        """Of workers that may have `memory`, and have directories in a place."""
        self.loop, self._random = loop, random
        self._memory, self._place = memory, place
        self.network = Network(loop, random, weather)
        self.workers: dict[str, Worker] = {}
        """That the scheduler knows."""
        self.killed: set[str] = set()
        self.going: set[str] = set()
        """Of whom the scheduler does not know yet that they are gone."""
        self.tasks: dict[str, ShuffleTask] = {}
        self.specs: dict[str, Any] = {}
        self.handlers: dict[str, Any] = {"identity": self._identity}
        self.ended: dict[str, str | None] = {}
        """Shuffles that are over, and the error that they ended with."""
        self.ended_at = 0.0
        self.network.handlers[SCHEDULER] = self.handlers
        self.plugin = Plugin(self)
        self._addresses = itertools.count(1)

    # What Dask's plugin asks of a scheduler.

    def add_plugin(self, plugin: Any, name: str) -> None:
        pass

    def log_event(self, topic: str, message: Any) -> None:
        pass

    def stimulus_queue_slots_maybe_opened(self, stimulus_id: str) -> None:
        self.loop.call_soon(self._assign)

    def set_restrictions(self, restrictions: dict[str, Any]) -> None:
        for key, workers in restrictions.items():
            self.tasks[key].worker_restrictions = workers

    def send_all(self, clients: Any, messages: dict[str, list[dict[str, Any]]]) -> None:
        for address in sorted(messages):
            if address not in self.workers:
                continue
            for message in messages[address]:
                told = {key: value for key, value in message.items() if key != "op"}
                handler = self.workers[address].stream_handlers[message["op"]]
                self._stream(address, lambda h=handler, told=told: h(**told))

    async def broadcast(self, *, msg: Any, workers: Any, on_error: str) -> Any:
        assert on_error == "return"
        message = {key: value for key, value in msg.items() if key != "op"}
        calls = [self.network.call(w, msg["op"], message) for w in sorted(workers)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return dict(zip(sorted(workers), answers, strict=True))

    def transitions(self, recommended: dict[str, str], stimulus_id: str) -> None:
        for key, state in recommended.items():
            self._transition(self.tasks[key], state, stimulus_id)

    def _identity(self, n_workers: int) -> dict[str, Any]:
        ours = {"spillway": {"shuffle_version": shuffle_peers.VERSION}}
        return {"workers": dict.fromkeys(self.workers, ours)}

    # Tasks.

    def submit(self, spec: Any, inputs: int, run: dict[str, Any]) -> None:
        """Have a shuffle run: `run` says what each kind of its tasks does."""
        self.specs[spec.id] = spec
        barrier = ShuffleTask(spec.id, barrier_key(spec.id), run["barrier"])
        transfers = [
            ShuffleTask(spec.id, f"{spec.id}-transfer-{i}", run["transfer"](i))
            for i in range(inputs)
        ]
        unpacks = [
            ShuffleTask(spec.id, f"{spec.id}-unpack-{p}", run["unpack"](p))
            for p in spec.output_partitions
        ]
        barrier.needs(*transfers)
        for unpack in unpacks:
            unpack.needs(barrier)
        self.tasks |= {task.key: task for task in [*transfers, barrier, *unpacks]}
        self.loop.call_soon(self._assign)

    def _of(self, shuffle_id: str) -> list[ShuffleTask]:
        barrier = self.tasks[barrier_key(shuffle_id)]
        return [*barrier.dependencies, barrier, *barrier.dependents]

    def _transition(self, task: ShuffleTask, state: str, stimulus_id: str) -> None:
        start, task.state = task.state, state
        if state == "released" and start == "memory":
            task.result = None
        self.plugin.transition(task.key, start, state, stimulus_id=stimulus_id)

    def _assign(self) -> None:
        for task in self.tasks.values():
            is_ready = all(needed.state == "memory" for needed in task.dependencies)
            if task.state == "released" and is_ready:
                self._start(task)

    def _start(self, task: ShuffleTask) -> None:
        free = [
            worker
            for address, worker in self.workers.items()
            if self._processing_on(address) < SLOTS
            and address in (task.worker_restrictions or self.workers)
        ]
        if free:
            worker = self._random.choice(free)
            task.attempt += 1
            task.state, task.worker = "processing", worker.address
            given = [needed.result for needed in task.dependencies]
            execution = Execution(task, task.attempt, given)
            self._stream(worker.address, self._execute, worker, execution)

    def _processing_on(self, address: str) -> int:
        return sum(
            task.state == "processing" and task.worker == address
            for task in self.tasks.values()
        )

    def _execute(self, worker: Worker, execution: Execution) -> None:
        task = execution.task
        if task.key in worker.executing:
            worker.executing[task.key].go_on_for(execution.attempt)
            return
        worker.executing[task.key] = execution

        def run() -> Any:
            thread_state.key = task.key
            return task.run(execution, worker)

        def executed(future: Any) -> None:
            del worker.executing[task.key]
            self.loop.soon(self._executed, worker, execution, future)

        Thread(self.loop, run).future.add_done_callback(executed)

    def _executed(self, worker: Worker, execution: Execution, future: Any) -> None:
        """The scheduler hears what became of a task."""
        error = future.exception()
        self.loop.note(execution.task.key, type(error).__name__)
        if worker.address in self.workers and execution.is_wanted:
            self._finished(execution, error, future)
        self.loop.call_soon(self._assign)

    def _finished(self, execution: Execution, error: Any, future: Any) -> None:
        task = execution.task
        if error is None:
            task.state, task.result = "memory", future.result()
            self._end_if_done(task)
        elif execution.has_gone_on or isinstance(error, Reschedule | FailedBehind):
            task.state = "released"
        else:
            self._transition(task, "erred", "erred")
            self._end(task.shuffle, error)

    def _end_if_done(self, task: ShuffleTask) -> None:
        shuffle_id = task.shuffle
        if all(t.state == "memory" for t in self._of(shuffle_id)):
            self._end(shuffle_id, None)

    def _end(self, shuffle_id: str, error: Exception | None) -> None:
        """The client has what it wanted, and lets go of it."""
        self.ended[shuffle_id] = None if error is None else repr(error)
        self.ended_at = self.loop.time()
        for task in self._of(shuffle_id):
            self._transition(task, "forgotten", "forgotten")

    # What happens to workers.

    def start_worker(self) -> None:
        """One more."""
        address = f"tcp://{next(self._addresses)}"
        self.workers[address] = Worker(self, address, self._memory, self._place)

    def kill(self, worker: Worker) -> None:
        """Its process is gone, at once, and the scheduler hears of it."""
        self.loop.note("kill", worker.address)
        del self.network.handlers[worker.address]
        self.loop.kill(worker.address)
        for run in worker.plugin.shuffle_runs._runs:
            shuffle_figures._open.pop(run, None)
            if run._again is not None:
                run._again.close()
            run._kept = run._outbox = None
        self.killed.add(worker.address)
        self._go(worker)

    def leave(self, worker: Worker) -> None:
        """It closes, and says so."""
        self.loop.note("leave", worker.address)
        self.loop.create_task(
            worker.plugin.teardown(worker), context=in_process(worker.address)
        )
        self._go(worker)

    def restart(self, shuffle_id: str) -> None:
        """As when workers have different runs at the barrier."""
        self.loop.note("restart", shuffle_id)
        if shuffle_id in self.plugin.active_shuffles:
            self.plugin._restart_shuffle(shuffle_id, self, stimulus_id="restart")

    def _go(self, worker: Worker) -> None:
        self.going.add(worker.address)
        self.loop.soon(self._remove, worker, f"gone-{worker.address}")

    def _remove(self, worker: Worker, stimulus_id: str) -> None:
        self.going.remove(worker.address)
        del self.workers[worker.address]
        for task in self.tasks.values():
            if task.worker == worker.address and task.state in ("processing", "memory"):
                self._transition(task, "released", stimulus_id)
        self.plugin.remove_worker(self, worker.address, stimulus_id=stimulus_id)
        self.loop.call_soon(self._assign)

    def _stream(self, address: str, function: Any, *args: Any) -> None:
        """What the scheduler tells a worker, in order."""
        worker = self.workers.get(address)
        if worker is None:
            return

        def come() -> None:
            if address in self.network.handlers:
                in_process(address).run(function, *args)

        at = max(worker.told_at, self.loop.time()) + self._random.expovariate(100)
        worker.told_at = at
        self.loop.call_at(at, come)
