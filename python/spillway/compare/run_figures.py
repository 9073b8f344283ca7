"""What is compared: the figures of a run, with their names, units and words."""

from dataclasses import dataclass

from spillway.compare.measured_run import MeasuredRun
from spillway.compare.probe_files import ProbeFiles
from spillway.compare.tree_watch import CLIENT, SCHEDULER, WORKER

MIB = 1 << 20


@dataclass(frozen=True)
class Figure:
    """Of all of them less is better."""

    name: str
    title: str
    unit: str
    """"s" or "bytes"."""
    least: float
    """What is below is noise."""
    less: str = "less"
    more: str = "more"


FIGURES = (
    Figure("wall_s", "wall time", "s", 0.01, "faster", "slower"),
    Figure("cpu_s", "CPU, all", "s", 0.05),
    Figure("client_cpu_s", "CPU, client", "s", 0.05),
    Figure("scheduler_cpu_s", "CPU, scheduler", "s", 0.05),
    Figure("workers_cpu_s", "CPU, workers", "s", 0.05),
    Figure("peak_bytes", "peak memory, all", "bytes", MIB),
    Figure("worker_peak_bytes", "peak memory, one worker", "bytes", MIB),
    Figure("socket_bytes", "over sockets", "bytes", MIB),
    Figure("written_bytes", "disk writes", "bytes", MIB),
    Figure("worker_lag_s", "worst loop lag, workers", "s", 0.01),
    Figure("scheduler_lag_s", "worst loop lag, scheduler", "s", 0.01),
)


def figures_of(run: MeasuredRun, probes: ProbeFiles) -> dict[str, float | None]:
    """By name. None for what there is not in this run, or could not be had."""
    cpu_s = run.watch.cpu_s(run.pid, probes.roles)
    return {
        "wall_s": run.wall_s,
        "cpu_s": run.cpu_s,
        "client_cpu_s": cpu_s.get(CLIENT),
        "scheduler_cpu_s": cpu_s.get(SCHEDULER),
        "workers_cpu_s": cpu_s.get(WORKER),
        "peak_bytes": run.watch.peak_bytes,
        "worker_peak_bytes": run.watch.worker_peak_bytes(run.pid, probes.roles),
        "socket_bytes": run.socket_bytes,
        "written_bytes": run.written_bytes,
        "worker_lag_s": probes.worst_lag_s.get("worker"),
        "scheduler_lag_s": probes.worst_lag_s.get("scheduler"),
    }


def shown(value: float, unit: str) -> str:
    """In three digits, with a unit that fits."""
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{_three(value)} s"
    scale, name = next(
        (scale, name)
        for scale, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes"))
        if value >= scale or scale == 1
    )
    return f"{_three(value / scale)} {name}"


def _three(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
