"""Runs a script on both sides in turn, and refuses where nothing can be compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spillway.compare.answer import Answer
from spillway.compare.side import spillway_side, stock_side

STOCK, SPILLWAY = "stock", "spillway"

NOT_ON_SPILLWAY = 3
SCRIPT_FAILED = 4
ANSWERS_DIFFER = 5


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
        self._script, self._arguments = script, arguments
        self._sides = {STOCK: stock_side(stock_python), SPILLWAY: spillway_side()}
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
        run = self._sides[side].run(self._script, self._arguments)
        if run.code != 0:
            raise Refused(
                SCRIPT_FAILED,
                f"the script failed in {name}, with exit code {run.code}; the end of "
                f"its standard error:\n{run.errors_end.rstrip() or '(nothing)'}",
            )
        self._check_answer(name, run.answer)
        if run.not_on_spillway is not None:
            raise Refused(NOT_ON_SPILLWAY, f"{name}: {run.not_on_spillway}")
        for note in run.notes:
            self._comparison.note(note)
        return run.figures

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


def _order(number: int) -> tuple[str, str]:
    return (STOCK, SPILLWAY) if number % 2 else (SPILLWAY, STOCK)
