"""What Spillway does in this process, as plain types that Dask can carry anywhere."""

import os
import sys
from typing import Any

from spillway import (
    in_force,
    offload_counts,
    shuffle_figures,
    store_figures,
    value_counts,
)

_DIRECTIONS = ("sent", "received")
_CONNECTIONS = ("opened", "closed", "failed", "tuned")
_BUDGET = (
    "held",
    "queued",
    "in_flight",
    "pooled",
    "spilling",
    "peak",
    "limit",
    "refusals",
    "in_flight_limit",
    "held_back",
    "shuffled",
)
_SAME_HOST = (
    "meetings",
    "refusals",
    "bytes_sent",
    "by_address",
    "by_descriptor",
    "by_stream",
)
_REGIONS = ("recycled", "added", "bytes_moved")


def stats() -> dict[str, Any]:
    """Say what is in force in this process, what it moved, and what is off and why.

    Works in every process, Spillway on or not: `client.run(spillway.stats)` collects
    it from all workers. All sizes are in bytes, as they were on the wire.
    """
    import spillway

    figures, without_native = _figures()
    parts = in_force.parts()
    for part in parts.values():
        if without_native and part["why_off"] == in_force.why_stock:
            part["why_off"] = without_native
    if not parts["transport"]["on"] and _own_scheme_is_used():
        parts["transport"]["why_off"] += "; what goes by spillway:// is Spillway's"
    return {
        "version": spillway.__version__,
        "pid": os.getpid(),
        "role": "+".join(sorted(in_force.roles)) or None,
        "parts": parts,
        "hooks": {
            name: state if state == in_force.ON else f"off: {state}"
            for name, state in in_force.hooks.items()
        },
        "messages": {way: figures.get(f"messages_{way}", 0) for way in _DIRECTIONS},
        "bytes": {way: figures.get(f"bytes_{way}", 0) for way in _DIRECTIONS},
        "copies": figures.get("copies", {}),
        "offload": offload_counts.read(),
        "values": value_counts.read(),
        "store": store_figures.read(),
        "shuffle": shuffle_figures.read(),
        "connections": {
            what: figures.get(f"connections_{what}", 0) for what in _CONNECTIONS
        },
        "same_host": figures.get("same_host", dict.fromkeys(_SAME_HOST, 0)),
        "regions": figures.get("regions", dict.fromkeys(_REGIONS, 0)),
        "budget": figures.get("budget", dict.fromkeys(_BUDGET, 0)),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def _figures() -> tuple[dict[str, Any], str | None]:
    """The C library's figures, or none and the reason."""
    try:
        from spillway import _native
    except ImportError as error:
        return {}, f"the C library cannot be loaded: {error}"
    return _native.figures(), None


def _own_scheme_is_used() -> bool:
    """Whether Dask has loaded our backend for spillway://, which needs no enable()."""
    registry = sys.modules.get("distributed.comm.registry")
    return registry is not None and "spillway" in registry.backends


def peak_rss_bytes(process: int | str = "self") -> int | None:
    """The most memory that a process ever had resident, None where the system does not
    say, or it has ended. Not getrusage(): its maximum is inherited over fork and exec.
    """
    path = f"/proc/{process}/status"
    try:
        with open(path, encoding="ascii", errors="replace") as status:
            lines = status.readlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None
