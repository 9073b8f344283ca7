"""Whether a run was one on Spillway, by what its processes left: a comparison in which
Dask went on alone says nothing, and must not look as if it did."""

from collections.abc import Mapping
from typing import Any

from spillway import run_report

Figures = dict[str, Any]
"""What a process left: see process_stats.py."""


def why_not(processes: list[Figures], roles: Mapping[int, set[str]]) -> str | None:
    """Why the run does not count, None when Spillway was in all of its processes and
    did something. `roles` has what Dask ran, by pid, as seen without Spillway."""
    if any(process.get("is_foreign") for process in processes):
        return (
            "the script used a cluster that it did not start: start it in the script, "
            "so that it can be started on both sides"
        )
    dask = [process for process in processes if run_report.runs_dask(process)]
    if not dask:
        return "the script made no cluster and no client of distributed"
    faults = run_report.faults(processes) + _on_stock(processes, roles)
    if faults:
        return "; ".join(faults)
    if not any(map(_did_something, dask)):
        reasons = {str(run_report.why_nothing(process)) for process in dask}
        return f"nothing went through Spillway: {'; '.join(sorted(reasons))}"
    return None


def notes(processes: list[Figures]) -> list[str]:
    """What a reader of the comparison has to know of Spillway's side."""
    off = {
        f"{name}: {part['why_off']}"
        for process in processes
        if run_report.runs_dask(process)
        for name, part in process["parts"].items()
        if not part["on"]
    }
    found = [f"off on Spillway's side: {reason}" for reason in sorted(off)]
    if any(process["same_host"]["bytes_sent"] for process in processes):
        found.append(
            "on Spillway large data went from memory to memory between processes of "
            "this host, which is not over sockets"
        )
    return found


def _on_stock(processes: list[Figures], roles: Mapping[int, set[str]]) -> list[str]:
    left = {process["pid"] for process in processes}
    return [
        f"the {' and '.join(sorted(ran))} process {pid} ran on stock Dask"
        for pid, ran in sorted(roles.items())
        if pid not in left
    ]


def _did_something(process: Figures) -> bool:
    return bool(
        run_report.moved(process)
        or process["store"]["packs"]
        or process["shuffle"]["runs"]
    )
