"""How many values were encoded which way, and how many could not be, for stats()."""

import threading
from typing import Literal

Way = Literal["in_place", "pickled", "registered", "by_dask", "failed", "undecoded"]

_WAYS: tuple[Way, ...] = (
    "in_place",
    "pickled",
    "registered",
    "by_dask",
    "failed",
    "undecoded",
)

_lock = threading.Lock()
"""Over the counts: values are encoded in many threads."""
_counts = dict.fromkeys(_WAYS, 0)


def add(way: Way) -> None:
    """Count one value."""
    with _lock:
        _counts[way] += 1


def read() -> dict[str, int]:
    """The counts since the start of the process."""
    with _lock:
        return dict(_counts)
