"""Adds our preload where a script gives preloads of its own.

`preload=` replaces Dask's configuration, and with it what hook_config added. All roles
pass through process_preloads() in their constructors, so it adds ours there. Clients
get theirs here alone, and without the lines that Dask logs for each preload: in a
script that makes clients these would be all that its user sees of us.
"""

import functools
from collections.abc import Callable
from typing import Any

from spillway.dask import manifest, switches
from spillway.dask.preload_list import PRELOAD, with_ours

NAME = "preloads"
OFF_WITH = (switches.ALL,)

_stock: Callable[..., Any] | None = None
_ours: Callable[..., Any] | None = None


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Have every Scheduler, Nanny, Worker and Client of this process load ours."""
    global _ours, _stock
    from distributed import preloading

    stock = preloading.process_preloads
    _stock, _ours = stock, _adding_ours(stock)
    preloading.process_preloads = _ours


def remove() -> None:
    """Put the function back that was there, unless somebody has replaced ours."""
    global _ours, _stock
    from distributed import preloading

    if preloading.process_preloads is _ours:
        preloading.process_preloads = _stock
    _stock = _ours = None


class ClientPreload:
    """Ours for a client, as Dask's PreloadManager calls it."""

    name = PRELOAD

    def __init__(self, client: Any) -> None:
        self._client = client

    async def start(self) -> None:
        from spillway.dask import preload

        await preload.dask_setup(self._client)

    async def teardown(self) -> None:
        from spillway.dask import preload

        await preload.dask_teardown(self._client)


def _adding_ours(stock: Callable[..., Any]) -> Callable[..., Any]:
    from distributed.client import Client
    from distributed.nanny import Nanny

    @functools.wraps(stock)
    def process_preloads(dask_server, preload, preload_argv, *, file_dir=None):
        if process_preloads is not _ours:  # removed, but somebody had wrapped it
            return stock(dask_server, preload, preload_argv, file_dir=file_dir)
        if isinstance(dask_server, Client):
            manager = stock(dask_server, preload, preload_argv, file_dir=file_dir)
            if all(given.name != PRELOAD for given in manager):
                manager._preloads.append(ClientPreload(dask_server))
            return manager
        preload, preload_argv = with_ours(preload, preload_argv)
        if isinstance(dask_server, Nanny):
            # The arguments are the nanny's own preloads. Those that its worker process
            # will get are attributes, set before this call.
            dask_server.preload, dask_server.preload_argv = with_ours(
                dask_server.preload, dask_server.preload_argv
            )
        return stock(dask_server, preload, preload_argv, file_dir=file_dir)

    return process_preloads
