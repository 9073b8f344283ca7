"""What `spillway run` says at the end: a table of what each process moved, and which
process of the script's own cluster moved nothing though nothing speaks for that."""

from collections import Counter
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
    if not foreign and not any(map(_runs_dask, own)):
        console.print("Spillway: the script made no distributed cluster and no client.")
        return
    table = Table(
        title="What Spillway moved", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for name in ("process", "sent", "received", "copied", "peak memory"):
        table.add_column(name, overflow="fold")
    for process in [*own, *foreign]:
        if "problem" not in process:
            table.add_row(_name(process), *_cells(process))
    console.print(table)
    for process in own:
        reason = why_nothing(process)
        if reason is not None:
            console.print(f"{_name(process)} moved nothing: {reason}", markup=False)
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
            console.print(f"{_name(process)}: {process['problem']}", markup=False)


def faults(processes: list[Figures]) -> list[str]:
    """What is wrong with the script's own cluster: a line for each process of it that
    moved nothing through Spillway and gives no reason."""
    own = [process for process in processes if not process.get("is_foreign")]
    silent = [
        f"{_name(process)} moved nothing through Spillway, and gives no reason"
        for process in own
        if _runs_dask(process) and not moved(process) and why_nothing(process) is None
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
    if moved(process) or not _runs_dask(process):
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


def _runs_dask(process: Figures) -> bool:
    """Whether it has a scheduler, nanny, worker or client."""
    return any(role != "script" for role in process["addresses"])


def _all_addresses(process: Figures) -> list[str]:
    return [
        address
        for addresses in process["addresses"].values()
        for address in addresses
        if "://" in address
    ]


def _name(process: Figures) -> str:
    """Such as "worker tcp://10.0.0.1:40001", or with a pid for the script's own."""
    roles = [
        role if len(addresses) < 2 else f"{len(addresses)} {role}s"
        for role, addresses in process["addresses"].items()
    ]
    addresses = set(_all_addresses(process))
    where = addresses.pop() if len(addresses) == 1 else f"pid {process['pid']}"
    return f"{', '.join(roles)} {where}".replace("nannys", "nannies")


def _cells(process: Figures) -> tuple[str, ...]:
    directions = (
        f"{process['messages'][way]:,} messages\n{decimal(process['bytes'][way])}"
        for way in ("sent", "received")
    )
    copies = Counter(
        {reason: copy["bytes"] for reason, copy in process["copies"].items()}
    )
    copied = "\n".join(
        f"{decimal(size)} {reason.replace('_', ' ')}"
        for reason, size in copies.most_common()
        if size
    )
    peak = process["peak_rss_bytes"]
    return (
        *directions,
        copied or "nothing",
        "unknown" if peak is None else decimal(peak),
    )
