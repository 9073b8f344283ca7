"""One of the sides of a comparison: what a script's processes run on."""

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spillway import process_stats
from spillway.compare import loop_probe, probe_files, run_figures, spillway_proof
from spillway.compare.answer import Answer
from spillway.compare.measured_run import MeasuredRun, measure
from spillway.compare.probe_files import ProbeFiles
from spillway.dask.preload_list import PRELOAD, with_preload

_MEMORY_DIRECTORY = "/dev/shm"
"""What processes leave here while they are measured is not written to a disk."""


@dataclass(frozen=True)
class RunOnSide:
    """What came of a run."""

    code: int
    answer: Answer
    output_end: str
    """Of the standard output."""
    errors_end: str
    """Of the standard error."""
    figures: dict[str, float | None]
    notes: list[str]
    not_on_spillway: str | None
    """Why it does not count as one on Spillway, on whose side it was to be."""


@dataclass(frozen=True)
class Side:
    """A python, and whether Spillway is under what it runs."""

    python: str
    on_spillway: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its processes get beside the environment of this one."""

    def command(self, script: str, arguments: Sequence[str] = ()) -> list[str]:
        """What runs a script there."""
        ours = ["-P", "-m", "spillway.script_process"] if self.on_spillway else []
        return [self.python, *ours, script, *arguments]

    def run(
        self, script: str, arguments: Sequence[str], limit_s: float = math.inf
    ) -> RunOnSide:
        """Run a script to its end, or interrupt it at a limit; all its processes have
        ended then."""
        with _directory() as directory:
            run = measure(
                self.command(script, arguments),
                self._environment(directory),
                limit_s,
            )
            probes = probe_files.read(directory / "probes")
            left = process_stats.collect(directory / "figures")
        notes = _notes(run, probes)
        if self.on_spillway:
            notes[:0] = spillway_proof.notes(left)
        return RunOnSide(
            code=run.code,
            answer=run.answer,
            output_end=run.output_end,
            errors_end=run.errors_end,
            figures=run_figures.figures_of(run, probes),
            notes=notes,
            not_on_spillway=(
                spillway_proof.why_not(left, probes.roles) if self.on_spillway else None
            ),
        )

    def _environment(self, directory: Path) -> dict[str, str]:
        """What the script's processes get: their side's commands first, and beside the
        preloads that are configured the probe, and on Spillway's side Spillway's, for
        schedulers and workers that the script starts as commands."""
        import dask.config
        import distributed  # noqa: F401  (its defaults join Dask's configuration)

        commands = os.path.dirname(self.python)
        environment = {
            **os.environ,
            **self.environment,
            "PATH": f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            loop_probe.DIRECTORY_VARIABLE: str(directory / "probes"),
        }
        added = [str(directory / "loop_probe.py")]
        if self.on_spillway:
            environment[process_stats.VARIABLE] = str(directory / "figures")
            added.append(PRELOAD)
        for role in loop_probe.ROLES:
            preload = dask.config.get(f"distributed.{role}.preload")
            arguments = dask.config.get(f"distributed.{role}.preload-argv")
            for one in added:
                preload, arguments = with_preload(one, preload, arguments)
            variable = f"DASK_DISTRIBUTED__{role.upper()}__PRELOAD"
            environment[variable] = repr(preload)
            environment[f"{variable}_ARGV"] = repr(arguments)
        return environment


def stock_side(python: Path, environment: Mapping[str, str] | None = None) -> Side:
    """Stock Dask, in an environment in which Spillway is not importable."""
    return Side(
        str(python.absolute()), on_spillway=False, environment=environment or {}
    )


def spillway_side() -> Side:
    """Spillway, in this process's environment."""
    return Side(sys.executable, on_spillway=True)


def _notes(run: MeasuredRun, probes: ProbeFiles) -> list[str]:
    notes = list(run.notes)
    ran_there = probes.roles.get(run.pid, set()) - {"nanny"}
    notes += [f"a {role} ran in the client's process" for role in sorted(ran_there)]
    if probes.unprobed:
        notes.append(
            "workers have preloads of the script's own in the place of ours, so "
            "how late their loops were is not known"
        )
    return notes


@contextmanager
def _directory() -> Iterator[Path]:
    """With all in it that the processes of a run need of us."""
    memory = _MEMORY_DIRECTORY if os.access(_MEMORY_DIRECTORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="spillway-", dir=memory) as name:
        directory = Path(name)
        (directory / "probes").mkdir()
        (directory / "figures").mkdir()
        shutil.copy(loop_probe.__file__, directory / "loop_probe.py")
        yield directory
