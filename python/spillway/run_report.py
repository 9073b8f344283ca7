"""What `spillway run` says at the end: a table of what each process moved, and which
process of the script's own cluster moved nothing though nothing speaks for that."""

from typing import Any

from rich import box
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

Figures = dict[str, Any]
"""What a process left: see process_stats.py and foreign_figures.py."""

_TAKEN_OVER = ("tcp", "spillway")
"""The schemes whose connections are Spillway's."""


def show(processes: list[Figures], console: Console) -> None:
    """Print the table, and below it what it does not cover."""
    own = [process for process in processes if not process.get("is_foreign")]
    foreign = [process for process in processes if process.get("is_foreign")]
    if not foreign and not any(map(runs_dask, own)):
        console.print("Spillway: the script made no distributed cluster and no client.")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True)
    for name in ("process", "messages", "bytes", "copied, by reason", "peak"):
        table.add_column(name, overflow="fold", no_wrap=name != "process")
    for process in [*own, *foreign]:
        if "problem" not in process:
            table.add_row(_name(process, between="\n"), *_cells(process))
    console.print("What Spillway moved, by process:")
    console.print(table)
    for process in own:
        reason = why_nothing(process)
        if reason is not None:
            console.print(f"{_name(process)} moved nothing: {reason}", soft_wrap=True)
    if foreign:
        _show_reach(foreign, console)


def _show_reach(foreign: list[Figures], console: Console) -> None:
    reached = sum("problem" not in process for process in foreign)
    console.print(
        f"The script used a cluster that it did not start. {reached} of its "
        f"{len(foreign)} processes answered; their figures count from their start."
    )
    for process in foreign:
        if "problem" in process:
            console.print(f"{_name(process)}: {process['problem']}", soft_wrap=True)


def faults(processes: list[Figures]) -> list[str]:
    """What is wrong with the script's own cluster: a line for each process of it that
    moved nothing through Spillway and gives no reason."""
    own = [process for process in processes if not process.get("is_foreign")]
    silent = [
        f"{_name(process)} moved nothing through Spillway, and gives no reason"
        for process in own
        if runs_dask(process) and not moved(process) and why_nothing(process) is None
    ]
    left = {process["pid"] for process in own}
    started = {pid for process in own for pid in process["started"]}
    return silent + [
        f"the worker process {pid} left no figures: Spillway was not in it"
        for pid in sorted(started - left)
    ]


def moved(process: Figures) -> int:
    """How many messages a process sent and received."""
    return sum(process["messages"].values())


def why_nothing(process: Figures) -> str | None:
    """Why it is right that a process of Dask's moved nothing; None when it moved
    something or nothing speaks for it."""
    if moved(process) or not runs_dask(process):
        return None
    transport = process["parts"]["transport"]
    if not transport["on"]:
        return transport["why_off"]
    schemes = {address.split("://")[0] for address in _all_addresses(process)}
    if schemes and schemes.isdisjoint(_TAKEN_OVER):
        return f"{' and '.join(sorted(schemes))}:// is left to Dask"
    if process["connections"]["failed"]:
        return "no connection of it came about"
    if not process["is_last"]:
        return "it ended before it could leave its last figures"
    return None


def runs_dask(process: Figures) -> bool:
    """Whether it has a scheduler, nanny, worker or client."""
    return any(role != "script" for role in process["addresses"])


def _all_addresses(process: Figures) -> list[str]:
    return [
        address
        for addresses in process["addresses"].values()
        for address in addresses
        if "://" in address
    ]


def _name(process: Figures, *, between: str = " ") -> str:
    """Such as "worker tcp://10.0.0.1:40001", or with a pid where addresses differ."""
    roles = sorted(process["addresses"], key=lambda role: (role != "script", role))
    counted = (_counted(role, len(process["addresses"][role])) for role in roles)
    addresses = set(_all_addresses(process))
    one = addresses.pop() if len(addresses) == 1 else f"pid {process['pid']}"
    return f"{', '.join(counted)}{between}{one}"


def _counted(role: str, count: int) -> str:
    plural = "nannies" if role == "nanny" else f"{role}s"
    return role if count < 2 else f"{count} {plural}"


def _cells(process: Figures) -> tuple[str, ...]:
    messages, sizes = process["messages"], process["bytes"]
    by_size = sorted(
        process["copies"].items(), key=lambda item: item[1]["bytes"], reverse=True
    )
    copied = "\n".join(
        f"{decimal(copy['bytes'])} {reason.replace('_', ' ')}"
        for reason, copy in by_size
        if copy["bytes"]
    )
    peak = process["peak_rss_bytes"]
    return (
        f"{messages['sent']:,} out\n{messages['received']:,} in",
        f"{decimal(sizes['sent'])} out\n{decimal(sizes['received'])} in",
        copied or "nothing",
        "unknown" if peak is None else decimal(peak),
    )
