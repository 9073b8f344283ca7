"""Adds our preload to Dask's configuration.

Every Scheduler, Nanny and Worker that is not told its preloads reads them there, and
Dask hands its configuration on to the processes that it starts. (A client gets ours
from hook_preloads, which is in every process that loaded our preload.)
"""

from typing import Any

from spillway.dask import manifest, switches
from spillway.dask.preload_list import PRELOAD, with_ours

NAME = "config"
OFF_WITH = (switches.ALL,)

_ROLES = ("scheduler", "nanny", "worker")

_replaced: dict[str, tuple[Any, Any]] = {}
"""For each key that was set: what was there, and what we put in its place."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Append our preload, with the arguments that it needs, for each role."""
    import dask
    import distributed  # noqa: F401  its import puts its defaults into the configuration

    values: dict[str, tuple[Any, Any]] = {}
    for role in _ROLES:
        key, key_argv = (
            f"distributed.{role}.preload",
            f"distributed.{role}.preload-argv",
        )
        stock, stock_argv = dask.config.get(key), dask.config.get(key_argv)
        ours, ours_argv = with_ours(stock, stock_argv)
        values[key] = stock, ours
        if ours_argv != stock_argv:
            values[key_argv] = stock_argv, ours_argv
    dask.config.set({key: ours for key, (_, ours) in values.items()})
    _replaced.update(values)


def remove() -> None:
    """Put back what was there. A value that was set since then stays, without ours."""
    import dask

    for key, (stock, ours) in _replaced.items():
        now = dask.config.get(key, None)
        if now is ours:
            dask.config.set({key: stock})
        elif isinstance(now, list) and PRELOAD in now:
            dask.config.set({key: [name for name in now if name != PRELOAD]})
    _replaced.clear()
