"""What stands for a value that could not be decoded, until its own task has failed.

Dask gives up a whole message for one of its values: all keys of it are in error at the
worker, of which the scheduler never hears, so that their tasks wait for ever
(dask/distributed#6705). Who asks for failures here gets them in the value's place.
"""

import contextlib
import contextvars
import traceback
from collections.abc import Iterator
from typing import Any

from spillway import value_counts

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

    __slots__ = ("_where", "error")

    def __init__(self, error: BaseException) -> None:
        value_counts.add("undecoded")
        self.error = error
        self._where = "".join(traceback.format_exception(error))[-_SHOWN_LENGTH:]
        _let_go_of_frames(error)

    def as_error(self, key: Any, source: str) -> Exception:
        """What the task gets that wanted the value."""
        kinds = (kind for kind in type(self.error).__mro__ if kind in _KEPT)
        error = next(kinds, RuntimeError)(
            f"the value of {key!r} could not be brought from {source}: "
            f"{type(self.error).__name__}: {_text_of(self.error)}"
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


def _let_go_of_frames(error: BaseException | None) -> None:
    """Tracebacks keep the variables of functions alive, among them the message."""
    met = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in met:
            met.add(id(one))
            one.__traceback__ = None
            waiting += [one.__cause__, one.__context__]


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:
        return f"<its __str__ raises {type(other).__name__}>"
