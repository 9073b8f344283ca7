"""From how many bytes on (de)serialisation and compression leave the event loop.

`spillway.comm.offload` in Dask's configuration, `comm.offload` of one comm, and
`spillway_offload=` among the arguments of a connection take the same values:

- "auto": from AUTO_BYTES on, or as `distributed.comm.offload` says where the user has
  set that to something else than Dask does;
- "never", "always": all of it on the loop, or none (of messages that have values: plain
  messages are packed on the loop always);
- a size, such as 4194304 or "4 MiB".

What has no size, such as pickling an object, counts as many bytes as it took
nanoseconds the last time.
"""

from typing import Any

import dask
from dask.utils import parse_bytes
from distributed.comm import utils as comm_utils
from distributed.config import defaults

KEY = "spillway.comm.offload"
ARGUMENT = "spillway_offload"

AUTO_BYTES = 1 << 20
"""A way to a thread and back takes 0.1 to 0.2 ms with an idle GIL and up to 5 ms for
each turn with a busy one; below a millisecond of work it does not pay."""

NEVER = 0
ALWAYS = 1
"""As the C library has them: work of at least so many bytes, or none."""

_NAMES = {"never": NEVER, "always": ALWAYS}

_STOCK_BYTES = parse_bytes(defaults["distributed"]["comm"]["offload"])


def parse(value: object) -> int:
    """The setting in bytes.

    Raises
    ------
    ValueError
        When it is none of the above.
    """
    if value == "auto":
        return _auto_bytes()
    if isinstance(value, str) and value in _NAMES:
        return _NAMES[value]
    try:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError
        if isinstance(value, str) and not value[:1].isdigit():
            raise ValueError  # parse_bytes takes "MiB" for one
        size = parse_bytes(value)
        if not 0 < size < 1 << 63:
            raise ValueError
    except ValueError:
        raise ValueError(
            f'{KEY} is {value!r}; it takes "auto", "never", "always", or a size of at '
            'least one byte such as "4 MiB"'
        ) from None
    return size


def of_connection(arguments: dict[str, Any]) -> int:
    """What the arguments of a connection or listener say, and without a word of theirs
    what the configuration says.

    Raises
    ------
    ValueError
        When that means nothing.
    """
    given = arguments.get(ARGUMENT)
    return configured() if given is None else parse(given)


def configured() -> int:
    """What Dask's configuration says.

    Raises
    ------
    ValueError
        When that means nothing.
    """
    return parse(dask.config.get(KEY, "auto"))


def _auto_bytes() -> int:
    by_user = comm_utils.OFFLOAD_THRESHOLD
    if not by_user:
        return NEVER  # False, as Dask takes it
    return AUTO_BYTES if by_user == _STOCK_BYTES else int(by_user)
