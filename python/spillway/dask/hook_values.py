"""Has values encoded by us, and one that cannot be decoded fail its own task alone.

For the first nothing of Dask's is entered: our comms ask for the encoder. For the
second it stands around what asks other processes for values: a worker's `gather_dep`,
`gather_from_workers` of workers and clients, and a client's `_gather_remote`.
"""

import functools
import logging
from typing import Any

from spillway.dask import manifest, new_comms, switches, undecoded

logger = logging.getLogger("spillway")

NAME = "values"
OFF_WITH = (switches.ALL, switches.TRANSPORT, switches.VALUES)

_replaced: list[tuple[Any, str, Any, Any]] = []
"""Where something of ours stands: the owner, the name, what was there, and ours."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Stand around what asks for values."""
    from distributed import client, utils_comm, worker

    from spillway.dask import undecoded_dependencies

    gather = utils_comm.gather_from_workers
    _replace(worker.Worker, "gather_dep", undecoded_dependencies.around_gather_dep)
    _replace(client.Client, "_gather_remote", _around_gather_remote)
    for module, around in (
        (utils_comm, _around_gather_from_workers),
        (client, _around_gather_from_workers),
        (worker, _around_gather_of_a_worker),
    ):
        if module.gather_from_workers is gather:
            _replace(module, "gather_from_workers", around)


def remove() -> None:
    """Leave, except where somebody else now stands before us."""
    while _replaced:
        owner, name, before, ours = _replaced.pop()
        if getattr(owner, name) is ours:
            setattr(owner, name, before)


def encoder() -> Any:
    """What encodes the values of a comm that is made now, None for Dask."""
    if not new_comms.have(NAME, OFF_WITH, check):
        return None
    from spillway.dask import value_encoder

    return value_encoder.encode


def _replace(owner: Any, name: str, around: Any) -> None:
    before = getattr(owner, name)
    ours = around(before)
    setattr(owner, name, ours)
    _replaced.append((owner, name, before, ours))


def _around_gather_from_workers(gather: Any) -> Any:
    @functools.wraps(gather)
    async def gather_from_workers(*args: Any, **kwargs: Any) -> Any:
        answer, errors = await _gathered(gather, *args, **kwargs)
        answer[2].extend(errors)
        return answer

    return gather_from_workers


def _around_gather_of_a_worker(gather: Any) -> Any:
    """A worker that is told to gather says which keys failed, and `replicate` then has
    it try again, for ever. So where there was nothing else to gather it raises."""

    @functools.wraps(gather)
    async def gather_from_workers(*args: Any, **kwargs: Any) -> Any:
        answer, errors = await _gathered(gather, *args, **kwargs)
        if errors and not any(answer[:3]):
            raise next(iter(errors.values()))
        answer[2].extend(errors)
        return answer

    return gather_from_workers


async def _gathered(
    gather: Any, *args: Any, **kwargs: Any
) -> tuple[Any, dict[Any, Exception]]:
    """What it gathered: the data, the keys that are missing, and that failed, and the
    workers that did; and the errors of the keys that could not be decoded."""
    with undecoded.wanted():
        answer = await gather(*args, **kwargs)
    errors = {
        key: value.as_error(key, "a worker")
        for key, value in undecoded.take_from(answer[0]).items()
    }
    for error in errors.values():
        logger.error("%s", error)
    return answer, errors


def _around_gather_remote(gather: Any) -> Any:
    from spillway.dask import lost_values

    @functools.wraps(gather)
    async def _gather_remote(self: Any, *args: Any, **kwargs: Any) -> Any:
        with undecoded.wanted():
            response = await gather(self, *args, **kwargs)
        if response["status"] != "OK":
            return response
        failed = undecoded.take_from(response["data"])
        if not failed:
            return response
        lost = await lost_values.ask_again_for(self, self.scheduler, failed)
        # Futures of others are in error from now on; who asked for more asks again.
        for key in failed.keys() - lost:
            state = self.futures.get(key)
            if state is not None:
                state.set_error(failed[key].as_error(key, "the cluster"), None)
        return {"status": "error", "keys": list(lost)}

    return _gather_remote
