"""What loop_probe.py left."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from spillway.compare import loop_probe


@dataclass(frozen=True)
class ProbeFiles:
    """Of one run."""

    roles: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What Dask ran in a process, by its pid."""
    worst_lag_s: dict[str, float] = field(default_factory=dict)
    """The latest that an event loop was, by what ran on it."""
    unprobed: set[int] = field(default_factory=set)
    """Workers without the probe; their roles are known all the same."""


def read(directory: Path) -> ProbeFiles:
    """All that is in there."""
    found = ProbeFiles()
    seen = set()
    for file in directory.iterdir():
        pid, role, *_ = file.name.split(".")
        if role == loop_probe.SEEN:
            seen.add(int(pid))
            continue
        found.roles[int(pid)].add(role)
        lag = file.read_text(encoding="ascii")
        if lag:
            found.worst_lag_s[role] = max(found.worst_lag_s.get(role, 0.0), float(lag))
    found.unprobed.update(pid for pid in seen if "worker" not in found.roles[pid])
    for pid in found.unprobed:
        found.roles[pid].add("worker")
    return found
