"""How large a value is for who keeps it as it came.

A worker that is given data asks each value for its size in memory, which Dask's
decisions rest on, and which what it is packed into does not show: text in a table is
larger, what is lazy much smaller. So who sends data says the size, in a key of the
value's header that Dask does not know and hands on.
"""

from typing import Any

from dask.sizeof import sizeof
from distributed.utils import nbytes

from spillway.dask.foreign_errors import is_interrupt

KEY = "spillway-nbytes"
"""Of a header: the size of its value in bytes, as `dask.sizeof` has it."""

_LARGEST = 1 << 62
"""No value is larger. What a header says comes from a peer."""

_SCATTERED = ("scatter", "update_data")
"""What brings data unasked: to a scheduler, and to a worker."""


def are_wanted(message: Any) -> bool:
    """Whether a message has data in it, or tells of other things."""
    return (
        isinstance(message, dict)
        and type(message.get("data")) is dict
        and (message.get("status") == "OK" or message.get("op") in _SCATTERED)
    )


def know(wrapped: Any, size: int) -> None:
    """Tell what `Serialize` has how large that is: nobody asks it again."""
    wrapped.spillway_nbytes = size


def known(wrapped: Any) -> int | None:
    """What was told."""
    return getattr(wrapped, "spillway_nbytes", None)


def note(header: dict[str, Any], value: Any, known: int | None = None) -> None:
    """Have the header of a value say how large it is, if that is known or its type can
    tell."""
    try:
        size = known if known is not None else int(sizeof(value))
    except BaseException as error:  # of the value's code
        if is_interrupt(error):
            raise
    else:
        header[KEY] = min(max(0, size), _LARGEST)


def of(header: dict[str, Any], frames: list[Any]) -> int:
    """What a header says, or else how much has come."""
    size = header.get(KEY)
    if type(size) is int and 0 <= size <= _LARGEST:
        return size
    return sum(map(nbytes, frames))
