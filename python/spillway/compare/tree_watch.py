"""What the processes of a tree use, by role, from what the system says of them.

A role is what Dask runs in a process, or else what its parent is; the script's own
process is the client, whatever else runs in it.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import psutil

from spillway.stats import peak_rss_bytes

CLIENT, SCHEDULER, WORKER = "client", "scheduler", "worker"
_ROLE_OF = (("worker", WORKER), ("scheduler", SCHEDULER), ("nanny", WORKER))
"""What is told of a process that runs several, and of nannies that have a process."""


@dataclass
class _Used:
    parent: int
    cpu_s: float = 0.0
    peak_bytes: int = 0


class TreeWatch:
    """Remembers the last that was seen of each process, and the most of all."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        """The most memory that they had together, what they share counted once."""
        self._used: dict[psutil.Process, _Used] = {}

    def sample(self, processes: Iterable[psutil.Process]) -> None:
        """Look at the CPU time and the peak of each."""
        for process in processes:
            # Some end meanwhile.
            with contextlib.suppress(psutil.NoSuchProcess):
                if process not in self._used:
                    self._used[process] = _Used(process.ppid())
                used = self._used[process]
                times = process.cpu_times()
                used.cpu_s = times.user + times.system
                peak = peak_rss_bytes(process.pid) or 0  # of one not waited for yet
                used.peak_bytes = max(used.peak_bytes, peak)

    def sample_memory(self, processes: Iterable[psutil.Process]) -> None:
        """Look at the memory of all, for which the system walks through all of it."""
        total = 0
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().pss
        self.peak_bytes = max(self.peak_bytes, total)

    def cpu_s(self, root: int, roles: Mapping[int, set[str]]) -> dict[str, float]:
        """By role, without those of which there was no process."""
        found: dict[str, float] = {}
        for role, used in self._by_role(root, roles):
            found[role] = found.get(role, 0.0) + used.cpu_s
        return found

    def worker_peak_bytes(self, root: int, roles: Mapping[int, set[str]]) -> int | None:
        """The most that one process of the workers had resident, None without any."""
        return max(
            (
                used.peak_bytes
                for role, used in self._by_role(root, roles)
                if role == WORKER
            ),
            default=None,
        )

    def _by_role(
        self, root: int, roles: Mapping[int, set[str]]
    ) -> list[tuple[str, _Used]]:
        parents = {process.pid: used.parent for process, used in self._used.items()}
        return [
            (_role(process.pid, root, roles, parents), used)
            for process, used in self._used.items()
        ]


def _role(
    pid: int, root: int, roles: Mapping[int, set[str]], parents: Mapping[int, int]
) -> str:
    passed = set()
    while pid != root and pid in parents and pid not in passed:
        for ran, role in _ROLE_OF:
            if ran in roles.get(pid, ()):
                return role
        passed.add(pid)  # a pid can be used again
        pid = parents[pid]
    return CLIENT
