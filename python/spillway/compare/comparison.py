"""Runs a script on both sides in turn, and refuses where nothing can be compared."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spillway import process_stats
from spillway.compare import loop_probe, probe_files, run_figures, spillway_proof
from spillway.compare.answer import Answer
from spillway.compare.measured_run import MeasuredRun, measure
from spillway.compare.probe_files import ProbeFiles
from spillway.dask.preload_list import PRELOAD, with_preload

STOCK, SPILLWAY = "stock", "spillway"

NOT_ON_SPILLWAY = 3
SCRIPT_FAILED = 4
ANSWERS_DIFFER = 5

_MEMORY_DIRECTORY = "/dev/shm"
"""What processes leave here while they are measured is not written to a disk."""


class Refused(Exception):
    """There is nothing to compare."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass
class Comparison:
    """What the rounds gave."""

    rounds: list[dict[str, dict[str, float | None]]] = field(default_factory=list)
    """The figures of each run by side, in the order of the runs."""
    notes: list[str] = field(default_factory=list)
    """What a reader has to know, each once."""

    def values(self, side: str, figure: str) -> list[float] | None:
        """Of a figure, by round; None unless all the runs of both sides have it."""
        found = [one[side][figure] for one in self.rounds]
        everybody = [one[figure] for runs in self.rounds for one in runs.values()]
        return None if None in everybody else found

    def note(self, text: str) -> None:
        """Add what is not there yet."""
        if text not in self.notes:
            self.notes.append(text)


class Comparer:
    """One script with its arguments, and the python of the stock side."""

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        stock_python: Path,
        say: Callable[[str], None],
    ) -> None:
        ours = ["-P", "-m", "spillway.script_process"]
        self._commands = {
            STOCK: [str(stock_python.absolute()), script, *arguments],
            SPILLWAY: [sys.executable, *ours, script, *arguments],
        }
        self._say = say
        self._comparison = Comparison()
        self._first: tuple[str, Answer] | None = None

    def run(self, rounds: int) -> Comparison:
        """Raises Refused, at the first run that gives a reason."""
        for number in range(1, rounds + 1):
            figures = {}
            for side in _order(number):
                name = f"round {number} of {rounds}, {side}"
                figures[side] = self._once(side, name)
                self._say(f"{name}: {figures[side]['wall_s']:.2f} s")
            self._comparison.rounds.append(figures)
        return self._comparison

    def _once(self, side: str, name: str) -> dict[str, float | None]:
        with _directory() as directory:
            run = measure(self._commands[side], self._environment(side, directory))
            probes = probe_files.read(directory / "probes")
            left = process_stats.collect(directory / "figures")
        if run.code != 0:
            raise Refused(
                SCRIPT_FAILED,
                f"the script failed in {name}, with exit code {run.code}; the end of "
                f"its standard error:\n{run.errors_end.rstrip() or '(nothing)'}",
            )
        self._check_answer(name, run.answer)
        if side == SPILLWAY:
            reason = spillway_proof.why_not(left, probes.roles)
            if reason is not None:
                raise Refused(NOT_ON_SPILLWAY, f"{name}: {reason}")
            for note in spillway_proof.notes(left):
                self._comparison.note(note)
        self._note(run, probes)
        return run_figures.figures_of(run, probes)

    def _check_answer(self, name: str, answer: Answer) -> None:
        if self._first is None:
            self._first = (name, answer)
            if answer.is_empty:
                self._comparison.note(
                    "the script printed nothing, so whether both sides computed the "
                    "same was not checked"
                )
            return
        first_name, first = self._first
        difference = first.difference(answer)
        if difference is not None:
            raise Refused(
                ANSWERS_DIFFER,
                f"the answers of {first_name} and of {name} differ: {difference}",
            )

    def _note(self, run: MeasuredRun, probes: ProbeFiles) -> None:
        for note in run.notes:
            self._comparison.note(note)
        ran_there = probes.roles.get(run.pid, set()) - {"nanny"}
        for role in sorted(ran_there):
            self._comparison.note(f"a {role} ran in the client's process")
        if probes.unprobed:
            self._comparison.note(
                "workers have preloads of the script's own in the place of ours, so "
                "how late their loops were is not known"
            )

    def _environment(self, side: str, directory: Path) -> dict[str, str]:
        """What the script's processes get: their side's commands first, and beside the
        preloads that are configured the probe, and on Spillway's side Spillway's, for
        schedulers and workers that the script starts as commands."""
        import dask.config
        import distributed  # noqa: F401  (its defaults join Dask's configuration)

        commands = os.path.dirname(self._commands[side][0])
        environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            loop_probe.DIRECTORY_VARIABLE: str(directory / "probes"),
        }
        added = [str(directory / "loop_probe.py")]
        if side == SPILLWAY:
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


def _order(number: int) -> tuple[str, str]:
    return (STOCK, SPILLWAY) if number % 2 else (SPILLWAY, STOCK)


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
