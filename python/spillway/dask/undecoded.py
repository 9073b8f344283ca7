"""What stands for a value that could not be decoded, until its own task has failed.

Dask gives up a whole message for one of its values: all keys of it are in error at the
worker, of which the scheduler never hears, so that their tasks wait for ever
(dask/distributed#6705). Who asks for failures here gets them in the value's place.
"""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from spillway import value_counts
from spillway.dask import foreign_errors

_wanted: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "spillway_undecoded_wanted", default=False
)


_KEPT = frozenset(
    {
        *(TypeError, ValueError, AttributeError, ImportError, RuntimeError),
        *(ArithmeticError, ZeroDivisionError, AssertionError, MemoryError),
    }
)
"""What somebody may expect to catch, and can be made from a message. Not OSError, which
to Dask would say that the connection failed."""


_SHOWN_LENGTH = 5000


class Undecoded:
    """A value that could not be decoded."""

    __slots__ = ("_line", "_where", "error")

    def __init__(self, error: BaseException) -> None:
        value_counts.add("undecoded")
        self._line = foreign_errors.line_of(error)
        trace = foreign_errors.trace_of(error)
        is_open = foreign_errors.let_go_of_frames(error)
        # What does not let itself be shown or changed would spoil what it causes.
        self.error = error if is_open and trace else RuntimeError(self._line)
        self._where = (trace or self._line)[-_SHOWN_LENGTH:]

    def as_error(self, key: Any, source: str) -> Exception:
        """What the task gets that wanted the value."""
        kind = foreign_errors.kind_of(self.error, _KEPT) or RuntimeError
        error = kind(
            f"the value of {key!r} could not be brought from {source}: {self._line}"
        )
        error.__cause__ = self.error
        error.add_note(f"Where it was decoded:\n{self._where}")
        return error


@contextlib.contextmanager
def wanted() -> Iterator[None]:
    """Within it, replies with data that this task reads, and tasks that it starts, may
    contain `Undecoded`."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def is_wanted() -> bool:
    """Whether who reads now can tell them from values."""
    return _wanted.get()


def are_data(failures: list[Undecoded], message: Any) -> bool:
    """Whether a message is a reply with data, and the failures are values in it."""
    if not isinstance(message, dict) or message.get("status") != "OK":
        return False
    data = message.get("data")
    if not isinstance(data, dict):
        return False
    values = {id(value) for value in data.values()}
    return all(id(failure) in values for failure in failures)


def take_from(data: dict[Any, Any]) -> dict[Any, Undecoded]:
    """Remove from the data of a reply what could not be decoded."""
    taken = {key: value for key, value in data.items() if type(value) is Undecoded}
    for key in taken:
        del data[key]
    return taken
