"""Gives the malloc settings to a nanny that was made before they were configured.

A nanny reads its settings as it is made and loads its preloads afterwards, so where our
preload is what turns Spillway on (`dask worker --preload-nanny`), the nanny that loads
it has Dask's own.
"""

from typing import Any

from spillway.dask import hook_malloc, manifest, switches

NAME = "nanny_environ"
OFF_WITH = (switches.ALL, switches.MALLOC)


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


_replaced: dict[Any, tuple[dict[str, str], dict[str, str]]] = {}
"""For each nanny: its settings as they were, and as they are."""


async def install(nanny: Any) -> None:
    """Add our settings to what its worker process is started with."""
    stock = nanny.pre_spawn_env
    # What it took from the environment is the user's, and not among the chosen.
    missing = {
        name: value
        for name, value in hook_malloc.chosen().items()
        if stock.get(name) != value
    }
    if missing:
        nanny.pre_spawn_env = {**stock, **missing}
        _replaced[nanny] = stock, nanny.pre_spawn_env


def remove(nanny: Any) -> None:
    """Put back what was there, for the worker processes that it has yet to start."""
    stock, ours = _replaced.pop(nanny, (None, None))
    if ours is not None and nanny.pre_spawn_env is ours:
        nanny.pre_spawn_env = stock
