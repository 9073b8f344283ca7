"""What a worker does about dependencies that it fetched and cannot decode.

The tasks that wait for one fail, and the scheduler hears of it as of any task that
failed. The dependency itself is as if it had never been fetched: a task that comes
later fetches it again, and fails by itself. Neither the other keys of the message nor
what they are needed for notices.
"""

import functools
import logging
from dataclasses import dataclass
from typing import Any

from distributed.worker_state_machine import (
    GatherDepFailureEvent,
    GatherDepSuccessEvent,
    TaskErredMsg,
    WorkerState,
)

from spillway.dask import lost_values, undecoded

logger = logging.getLogger("spillway")

_ERROR = ("exception", "traceback", "exception_text", "traceback_text")


@dataclass
class GatherDepPartlyEvent(GatherDepSuccessEvent):
    """Of what was fetched some could not be decoded."""

    __slots__ = ("failed",)

    failed: "dict[Any, GatherDepFailureEvent]"  # text, as Dask has its own

    def to_loggable(self, *, handled: float) -> Any:
        out = super().to_loggable(handled=handled)
        out.failed = dict.fromkeys(self.failed)
        return out


def around_gather_dep(gather_dep: Any) -> Any:
    """A `Worker.gather_dep` that tells what could not be decoded from what arrived."""

    @functools.wraps(gather_dep)
    async def ours(self: Any, worker: str, *args: Any, **kwargs: Any) -> Any:
        with undecoded.wanted():
            event = await gather_dep(self, worker, *args, **kwargs)
        if not isinstance(event, GatherDepSuccessEvent):
            return event
        failed = undecoded.take_from(event.data)
        # What is damaged there is missing: it has been forgotten, and is made again.
        for key in await lost_values.ask_again_for(self, self.scheduler, failed):
            del failed[key]
        return _partly(event, failed) if failed else event

    return ours


def _partly(event: GatherDepSuccessEvent, failed: dict[Any, Any]) -> Any:
    about = {
        "worker": event.worker,
        "total_nbytes": event.total_nbytes,
        "stimulus_id": event.stimulus_id,
    }
    errors = {}
    for key, value in failed.items():
        error = value.as_error(key, event.worker)
        logger.error("%s", error)
        errors[key] = GatherDepFailureEvent.from_exception(error, **about)
    return GatherDepPartlyEvent(data=event.data, failed=errors, **about)


def _handle(state: WorkerState, event: GatherDepPartlyEvent) -> Any:
    def make(recommendations: dict[Any, Any]) -> None:
        instructions.extend(
            state._transitions(recommendations, stimulus_id=event.stimulus_id)
        )

    recommendations, instructions = state._handle_gather_dep_success(event)
    instructions = list(instructions)
    failed = {
        one: event.failed[one.key] for one in recommendations if one.key in event.failed
    }
    for dependency in failed:
        del recommendations[dependency]
    # What arrived, and all that did not, before any task: with a task goes what it
    # alone needs, which must not be on its way any more.
    make(recommendations)
    make({one: _error(failure, one) for one, failure in failed.items()})
    for dependency, failure in failed.items():
        if dependency.state == "error":
            waiting = [one for one in dependency.dependents if one.state == "waiting"]
            make({task: _error(failure, task) for task in waiting})
    make({one: "released" for one in failed if one.state == "error"})
    # To the scheduler the dependencies are where they were made, and well.
    return {}, [one for one in instructions if not _is_about(one, event.failed)]


def _error(failure: GatherDepFailureEvent, task: Any) -> tuple[Any, ...]:
    return ("error", *(getattr(failure, name) for name in _ERROR), task.run_id)


def _is_about(instruction: Any, keys: Any) -> bool:
    return isinstance(instruction, TaskErredMsg) and instruction.key in keys


WorkerState.__dict__["_handle_event"].register(GatherDepPartlyEvent, _handle)
