"""Turns Spillway on and off in this process."""

import logging
import threading
from itertools import chain
from types import ModuleType
from typing import Any

from spillway import in_force
from spillway.dask import (
    hook_client_check,
    hook_config,
    hook_idle_memory,
    hook_lost_data,
    hook_malloc,
    hook_memory_limit,
    hook_merge,
    hook_nanny_environ,
    hook_offload,
    hook_preloads,
    hook_relay,
    hook_scheduler_offload,
    hook_shuffle,
    hook_shuffle_buffer,
    hook_store,
    hook_transport,
    hook_values,
    hook_worker_executor,
    hook_worker_info,
    manifest,
    platform_support,
    switches,
)

logger = logging.getLogger("spillway")

_PROCESS_HOOKS: tuple[ModuleType, ...] = (
    hook_transport,
    hook_offload,
    hook_merge,
    hook_values,
    hook_config,
    hook_malloc,
    hook_preloads,
    hook_shuffle,
    hook_shuffle_buffer,
)
"""Installed by enable()."""

_SERVER_HOOKS: dict[str, tuple[ModuleType, ...]] = {
    "scheduler": (hook_scheduler_offload, hook_lost_data),
    "nanny": (hook_nanny_environ,),
    "worker": (
        hook_worker_info,
        hook_memory_limit,
        hook_idle_memory,
        hook_worker_executor,
        hook_store,
    ),
    "client": (hook_client_check, hook_relay),
}
"""By role. Installed on each of them, when our preload meets it."""

_lock = threading.RLock()
_entered: dict[Any, list[ModuleType]] = {}
"""What Dask runs in this process, each with the hooks that it has."""


def enable() -> None:
    """Put Spillway under Dask in this process and in every one that it starts.

    Call it before the cluster or client is made: what is connected already stays as it
    is. A second call changes nothing. It raises nothing because of what it finds: a
    part that cannot work here (an operating system that we do not support, a Dask that
    we do not fit) stays stock, with one warning on the logger "spillway", and
    `spillway.stats()["parts"]` says which and why.

    SPILLWAY_DISABLE in the environment leaves parts to Dask: their names, as in
    `stats()`, with commas between, or "all".

    See Also
    --------
    disable
    """
    with _lock:
        if in_force.hooks:
            return
        names = switches.read()
        unsupported = None
        if switches.ALL not in names:
            unsupported = platform_support.why_unsupported()
            if unsupported:
                logger.warning(
                    "Spillway is off in this process, and Dask is stock: %s",
                    unsupported,
                )
        states = {}
        for hook in (*_PROCESS_HOOKS, *chain(*_SERVER_HOOKS.values())):
            reason = switches.why_off(hook.OFF_WITH, names)
            if reason is None and switches.ALL in hook.OFF_WITH:
                reason = unsupported
            if reason is None:
                reason = _put_in_force(hook)
            states[hook.NAME] = reason or in_force.ON
        in_force.hooks = states
        _note_unknown_version()


def disable() -> None:
    """Leave Dask as it was before enable(). What is connected already stays as it is,
    and so do other processes. Without an enable() before it changes nothing.

    See Also
    --------
    enable
    """
    with _lock:
        if not in_force.hooks:
            return
        for server in list(_entered):
            leave(server)
        for hook in reversed(_PROCESS_HOOKS):
            if in_force.why_off(hook.NAME) is None:
                hook.remove()
        in_force.hooks = {}
        in_force.why_stock = "spillway.dask.disable() was called in this process"


async def enter(server: Any, role: str) -> None:
    """Install the hooks that a scheduler, nanny, worker or client gets for itself."""
    with _lock:
        if server in _entered:
            return
        hooks = [
            hook
            for hook in _SERVER_HOOKS.get(role, ())
            if in_force.why_off(hook.NAME) is None
        ]
        if hooks:
            _entered[server] = hooks
    for hook in hooks:
        await hook.install(server)
        if server not in _entered:  # disable() came meanwhile
            hook.remove(server)
            return


def leave(server: Any) -> None:
    """Remove what enter() installed."""
    with _lock:
        for hook in _entered.pop(server, ()):
            hook.remove(server)


def _put_in_force(hook: ModuleType) -> str | None:
    """Check a hook and, when it is one for the process, install it. Why it is off."""
    reason = hook.check()
    if reason is None and hook in _PROCESS_HOOKS:
        try:
            hook.install()
        except Exception as error:  # stock Dask goes on working, so the script does
            logger.debug("Spillway's hook %s failed", hook.NAME, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
    if reason is not None:
        logger.warning(
            "Spillway's hook %s does not fit the installed Dask, which stays stock "
            "there: %s",
            hook.NAME,
            reason,
        )
    return reason


def _note_unknown_version() -> None:
    version = manifest.unknown_version()
    if version is not None and in_force.ON in in_force.hooks.values():
        logger.warning(
            "Spillway is not tested with distributed %s; it is on, since what it needs "
            "of Dask is as in %s to %s",
            version,
            manifest.OLDEST,
            manifest.NEWEST,
        )
