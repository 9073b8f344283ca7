"""Puts our engine under Dask's P2P shuffle of DataFrames.

Dask's plugin, its run ids, barrier and restarts stay. What is replaced is what a run
does: whoever manages a worker's runs asks the scheduler what a run is, and gets one of
ours from that. So it does not matter which plugin is registered, by whom, or when; a
plugin of the user's own that extends Dask's works on our runs too.

Runs of anything else than DataFrames (rechunking arrays) stay Dask's, and so do those
in which a worker has no engine of ours, as a whole.
"""

import logging
from typing import Any

from spillway.dask import manifest, shuffle_peers, switches

logger = logging.getLogger("spillway")

NAME = "shuffle"
OFF_WITH = (switches.ALL, switches.SHUFFLE)

_stock_fetch: Any = None
_warned: set[str] = set()
"""The shuffles of which was said that they stay Dask's."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Have new runs be ours."""
    global _stock_fetch
    from distributed.shuffle._worker_plugin import _ShuffleRunManager

    _stock_fetch = _ShuffleRunManager._fetch
    _ShuffleRunManager._fetch = _fetch


def remove() -> None:
    """Have new runs be Dask's; those that are under way go on."""
    from distributed.shuffle._worker_plugin import _ShuffleRunManager

    _ShuffleRunManager._fetch = _stock_fetch


class OurRun:
    """What a run is, as Dask's manager reads it from the scheduler's answer."""

    def __init__(self, stock: Any) -> None:
        self.run_id = stock.run_id
        self.worker_for = stock.worker_for
        self.span_id = stock.span_id
        self.spec = self
        self._stock = stock.spec

    def create_run_on_worker(
        self, run_id: int, worker_for: dict[int, str], plugin: Any, span_id: str | None
    ) -> Any:
        """Make it on this worker."""
        return _run_class()(self._stock, run_id, worker_for, span_id, plugin)


def _run_class() -> Any:
    """Ours, or what extends ours and was put in the place of Dask's."""
    from distributed.shuffle import _shuffle

    from spillway.dask.shuffle_run import DataFrameRun

    found = _shuffle.DataFrameShuffleRun
    return found if issubclass(found, DataFrameRun) else DataFrameRun


async def _fetch(manager: Any, shuffle_id: str, key: Any = None) -> Any:
    from distributed.shuffle._shuffle import DataFrameShuffleSpec

    run = await _stock_fetch(manager, shuffle_id, key)
    if type(run.spec) is not DataFrameShuffleSpec:
        return run
    worker = manager._plugin.worker
    without = await shuffle_peers.without_engine(
        worker.scheduler, run.worker_for.values()
    )
    if not without:
        return OurRun(run)
    if shuffle_id not in _warned:
        _warned.add(shuffle_id)
        logger.warning(
            "Shuffle %s is Dask's own, since workers of it are without Spillway's "
            "engine: %s",
            shuffle_id,
            ", ".join(without[:5]) + (", ..." if len(without) > 5 else ""),
        )
    return run
