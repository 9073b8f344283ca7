"""A dependency that cannot be decoded fails what waits for it, and nothing else."""

import asyncio
import contextlib
import random

import dask
import pytest
from distributed import Client, LocalCluster, wait
from distributed.worker_state_machine import (
    AddKeysMsg,
    ComputeTaskEvent,
    Execute,
    FreeKeysEvent,
    GatherDep,
    GatherDepFailureEvent,
    TaskErredMsg,
    WorkerState,
)

from comm_pairs import soon, until
from message_shapes import noise
from spillway import stats
from spillway.dask import enable
from spillway.dask.undecoded_dependencies import GatherDepPartlyEvent

THERE, ELSEWHERE = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


@pytest.fixture
def state():
    state = WorkerState(address="tcp://127.0.0.1:9", nthreads=1, validate=True)
    yield state
    state.validate_state()


def needs(state, key, *dependencies, where=THERE):
    """Have a worker compute a task; the instructions."""
    return state.handle_stimulus(
        ComputeTaskEvent.dummy(
            key, who_has={one: [where] for one in dependencies}, stimulus_id="compute"
        )
    )


def failure(worker=THERE):
    return GatherDepFailureEvent.from_exception(
        ValueError("undecoded"), worker=worker, total_nbytes=1, stimulus_id="failure"
    )


def arrives(state, data, *failed, where=THERE):
    """Have an answer come in; the instructions."""
    return state.handle_stimulus(
        GatherDepPartlyEvent(
            worker=where,
            total_nbytes=len(data) + len(failed),
            data=data,
            failed=dict.fromkeys(failed, failure()),
            stimulus_id="arrival",
        )
    )


def of_type(kind, instructions):
    return [one for one in instructions if isinstance(one, kind)]


def test_what_waits_for_it_fails(state):
    (gather,) = of_type(GatherDep, needs(state, "task", "bad", "good"))
    assert set(gather.to_gather) == {"bad", "good"}
    instructions = arrives(state, {"good": 1}, "bad")
    (erred,) = of_type(TaskErredMsg, instructions)
    assert erred.key == "task"
    assert erred.run_id == state.tasks["task"].run_id
    assert "undecoded" in erred.exception_text
    (added,) = of_type(AddKeysMsg, instructions)
    assert list(added.keys) == ["good"]
    assert not of_type(GatherDep, instructions)
    assert state.tasks["task"].state == "error"
    assert state.tasks["bad"].state == "released"
    assert not state.in_flight_tasks and not state.missing_dep_flight


def test_what_does_not_need_it_runs(state):
    needs(state, "all", "bad", "worse", "good", "fine")
    needs(state, "one", "bad", "good")
    needs(state, "runs", "good", "fine")
    instructions = arrives(state, {"good": 1, "fine": 2}, "bad", "worse")
    assert {one.key for one in of_type(TaskErredMsg, instructions)} == {
        "all",
        "one",
    }
    (execute,) = of_type(Execute, instructions)
    assert execute.key == "runs"


def test_what_a_failed_task_needed_from_elsewhere_is_no_longer_awaited(state):
    needs(state, "task", "bad")
    state.handle_stimulus(
        ComputeTaskEvent.dummy(
            "other", who_has={"bad": [THERE], "far": [ELSEWHERE]}, stimulus_id="x"
        )
    )
    instructions = arrives(state, {}, "bad")
    assert {one.key for one in of_type(TaskErredMsg, instructions)} == {
        "task",
        "other",
    }
    arrives(state, {"far": 3}, where=ELSEWHERE)
    assert "far" not in state.data


def test_a_task_that_comes_later_fetches_it_again(state):
    needs(state, "task", "bad")
    arrives(state, {}, "bad")
    state.handle_stimulus(FreeKeysEvent(keys=["task"], stimulus_id="free"))
    assert not state.tasks
    (gather,) = of_type(GatherDep, needs(state, "later", "bad"))
    assert set(gather.to_gather) == {"bad"}
    (execute,) = of_type(Execute, arrives(state, {"bad": "well now"}))
    assert execute.key == "later"


def test_a_task_that_was_cancelled_meanwhile(state):
    needs(state, "task", "bad", "good")
    state.handle_stimulus(FreeKeysEvent(keys=["task"], stimulus_id="free"))
    instructions = arrives(state, {"good": 1}, "bad")
    assert not of_type(TaskErredMsg, instructions)
    assert not state.tasks


def test_a_dependency_that_is_to_be_computed_here_meanwhile(state):
    needs(state, "task", "bad")
    state.handle_stimulus(FreeKeysEvent(keys=["task", "bad"], stimulus_id="free"))
    needs(state, "bad")
    assert state.tasks["bad"].state == "resumed"
    (execute,) = of_type(Execute, arrives(state, {}, "bad"))
    assert execute.key == "bad"


def test_what_is_logged_holds_no_values(state):
    event = GatherDepPartlyEvent(
        worker=THERE,
        total_nbytes=2,
        data={"good": noise(10)},
        failed={"bad": failure()},
        stimulus_id="s",
    )
    logged = event.to_loggable(handled=1.0)
    assert logged.data == {"good": None}
    assert logged.failed == {"bad": None}
    assert len(event.data["good"]) == 10


class FailsToLoad:
    """Raises where it is unpickled, and counts how often."""

    loads = 0

    def __reduce__(self):
        return _fail_to_load, ()


def _fail_to_load():
    FailsToLoad.loads += 1
    raise ZeroDivisionError("it does not load")


class FailsToPickle:
    def __reduce__(self):
        raise ZeroDivisionError("it does not pickle")


BAD = {"loads": FailsToLoad, "pickles": FailsToPickle}
every_fault = pytest.mark.parametrize("fault", BAD)


def make(fault):
    return BAD[fault]() if fault else noise(5000)


def names(*values):
    return [type(value).__name__ for value in values]


@contextlib.asynccontextmanager
async def two_workers():
    """A client, its workers without stores, which decode what comes as it comes, and
    what says where a task is to run."""
    enable()
    with dask.config.set({"distributed.scheduler.validate": True}):
        async with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=False,
                protocol="tcp://",
                dashboard_address=None,
                asynchronous=True,
                memory_limit=None,
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            near, far = (worker.address for worker in cluster.workers.values())
            yield client, cluster.workers, {"workers": [near]}, {"workers": [far]}


async def error_of(future):
    return await soon(future.exception())


@every_fault
async def test_only_its_own_tasks_fail(fault):
    async with two_workers() as (client, workers, near, far):
        bad = client.submit(make, fault, key="bad", **near)
        good = [client.submit(make, None, key=f"good-{i}", **near) for i in range(3)]
        await soon(wait([bad, *good]))
        failing = [client.submit(names, bad, one, **far) for one in good]
        running = [client.submit(names, one, good[0], **far) for one in good]
        for future in failing:
            error = await error_of(future)
            assert "'bad'" in str(error) and f"does not {fault[:-1]}" in repr(error)
            assert "Where it was decoded" in error.__notes__[0]
        for future in running:
            assert await soon(future) == ["ndarray", "ndarray"]
        assert await soon(client.submit(names, bad, **near)) == [BAD[fault].__name__]
        assert stats()["values"]["undecoded"] > 0
        held = {key for worker in workers.values() for key in worker.data}
        assert "bad" in held
        del failing, running, future, bad, good
        states = [worker.state for worker in workers.values()]
        await until(lambda: not any(state.tasks for state in states))


async def test_it_is_fetched_once_for_each_attempt():
    async with two_workers() as (client, _, near, far):
        bad = client.submit(make, "loads", key="bad", **near)
        await soon(wait(bad))
        FailsToLoad.loads = 0
        for attempts in (1, 3):
            future = client.submit(names, bad, retries=attempts - 1, pure=False, **far)
            assert "does not load" in str(await error_of(future))
            assert FailsToLoad.loads == attempts
            FailsToLoad.loads = 0


@every_fault
async def test_a_worker_that_is_told_to_gather(fault):
    async with two_workers() as (client, workers, near, far):
        bad = client.submit(make, fault, key="bad", **near)
        good = client.submit(make, None, key="good", **near)
        await soon(wait([bad, good]))
        (worker,) = (one for one in workers.values() if [one.address] == far["workers"])
        who_has = {"bad": near["workers"], "good": near["workers"]}
        answer = await soon(worker.gather(who_has))
        assert answer == {"status": "partial-fail", "keys": ["bad"]}
        assert list(worker.data) == ["good"]


def load_all(*values):
    """A task whose result loads if all that it was given did."""
    return noise(50 * len(values))


@pytest.mark.parametrize("seed", range(4))
async def test_many_tasks_of_which_some_results_do_not_load(seed):
    """Whoever runs them, each is done in the end: in error if it was brought what does
    not load or needs one that is, and else well."""
    choose = random.Random(seed)
    FailsToLoad.loads = 0
    async with two_workers() as (client, workers, near, far):
        futures, needed, bad = [], {}, set()
        for number in range(150):
            key = f"task-{number}"
            is_first = number < 20
            needed[key] = (
                [] if is_first else choose.sample(futures, choose.randrange(4))
            )
            if is_first and choose.random() < 0.4:
                bad.add(key)
                future = client.submit(
                    make,
                    choose.choice(list(BAD)),
                    key=key,
                    **choose.choice([near, far]),
                )
            else:
                future = client.submit(
                    load_all, *needed[key], key=key, **choose.choice([near, far])
                )
            futures.append(future)
        await soon(wait(futures))
        for future in futures:
            needs_failed = any(one.status == "error" for one in needed[future.key])
            needs_bad = any(one.key in bad for one in needed[future.key])
            if future.status == "error":
                assert needs_failed or needs_bad
            else:
                assert future.status == "finished" and not needs_failed
        assert bad and any(future.status == "error" for future in futures)
        for worker in workers.values():
            worker.state.validate_state()
            assert not worker.state.in_flight_tasks
        del futures, needed, future
        await until(lambda: not any(one.state.tasks for one in workers.values()))


async def test_tasks_of_many_workers_at_once():
    async with two_workers() as (client, _, near, far):
        bad = client.submit(make, "pickles", **near)
        futures = [
            client.submit(names, bad, client.submit(make, None, pure=False, **far))
            for _ in range(20)
        ]
        done = await soon(asyncio.gather(*map(error_of, futures)))
        assert all("does not pickle" in str(error) for error in done if error)
