"""Settings that are a number of bytes, or left to us."""

from __future__ import annotations

import dask
from dask.utils import parse_bytes


def configured_bytes(key: str) -> int | None:
    """The size that Dask's configuration has under a key, 0 for no limit; None where it
    leaves that to us, as it does by default ("auto").

    Raises
    ------
    ValueError
        When it is neither "auto" nor a size.
    """
    value = dask.config.get(key, "auto")
    if value == "auto":
        return None
    try:
        size = parse_bytes(value)
    except (ValueError, TypeError, AttributeError):
        size = -1
    if size < 0:
        raise ValueError(
            f'{key} must be "auto" or a size such as "1 GiB", 0 for no limit, '
            f"not {value!r}"
        )
    return size
