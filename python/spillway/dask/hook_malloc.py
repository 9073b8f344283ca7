"""Has nannies start their workers with malloc settings under which tasks run faster.

Dask starts workers with a trim threshold of 64 KiB, so that every temporary array is
given back to the system as it dies, and the next one is made of fresh pages, which the
kernel zeroes first. Ours let a worker keep what tasks free for the next task; what
nobody takes goes back by hook_idle_memory. The C library reads them as a process
starts, so they must be in the nanny's process when it starts one.

A variable that the user has set, in Dask's configuration or in the environment, stays
as it is. decisions/0006 has what was measured.
"""

import os
from collections.abc import Mapping
from typing import Any

from spillway.dask import hook_idle_memory, manifest, switches
from spillway.dask.malloc_variables import SETTINGS, TUNABLES

NAME = "malloc"
OFF_WITH = (switches.ALL, switches.MALLOC)

KEY = "distributed.nanny.pre-spawn-environ"

_stock: Any = None
_ours: dict[str, Any] | None = None
_chosen: dict[str, str] = {}
"""The settings that are not the user's, while this hook is in force."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    reason = manifest.mismatch(NAME)
    if reason is None and (idle := hook_idle_memory.check()) is not None:
        # Without it a worker would keep for ever what its tasks freed.
        reason = f"the hook {hook_idle_memory.NAME} is off ({idle})"
    return reason


def install() -> None:
    """Merge our settings into the mapping from which nannies take theirs."""
    global _ours, _stock
    import dask
    import distributed  # noqa: F401  its import puts its defaults into the configuration

    stock = dask.config.get(KEY)
    chosen = choose(stock)
    if not chosen:
        return
    ours = {**stock, **chosen}
    dask.config.set({KEY: ours})
    _stock, _ours = stock, ours
    _chosen.update(chosen)


def remove() -> None:
    """Put back what was there. A variable that was set since then stays."""
    global _ours, _stock
    import dask

    if _ours is not None:
        now = dask.config.get(KEY)
        if now is _ours and now == {**_stock, **_chosen}:
            dask.config.set({KEY: _stock})
        else:
            dask.config.set({KEY: _without_ours(now)})
    for name, value in _chosen.items():
        # A nanny of this process has left it there, and it would win over Dask's.
        if os.environ.get(name) == value:
            del os.environ[name]
    _stock = _ours = None
    _chosen.clear()


def choose(configured: Mapping[str, Any]) -> dict[str, str]:
    """The settings that the user has not set: neither in the environment nor in a file
    of Dask's configuration, and in Dask's mapping at most as Dask itself sets them."""
    import dask

    defaults = _defaults()
    by_user = {name for name in configured if configured[name] != defaults.get(name)}
    by_user |= dask.config.get(KEY, {}, config=dask.config.collect()).keys()
    by_user |= os.environ.keys()
    tunables = os.environ.get(TUNABLES) or str(configured.get(TUNABLES) or "")
    return {
        setting.variable: setting.value
        for setting in SETTINGS
        if setting.variable not in by_user and setting.tunable not in tunables
    }


def chosen() -> Mapping[str, str]:
    """The settings that this process gives to workers, empty when it gives none."""
    return _chosen


def _defaults() -> dict[str, Any]:
    from distributed.config import defaults

    return defaults["distributed"]["nanny"]["pre-spawn-environ"]


def _without_ours(now: dict[str, Any]) -> dict[str, Any]:
    kept = dict(now)
    for name, value in _chosen.items():
        if kept.get(name) == value:
            if name in _stock:
                kept[name] = _stock[name]
            else:
                del kept[name]
    return kept
