"""What shuffles did in this process, for stats(). Neither Dask nor the C library is
needed to read it."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

Figures = dict[str, Any]


class Run(Protocol):
    """Who holds partitions."""

    def close_if_given_up(self) -> None:
        """Let go of them if nobody else can do it any more."""


_NUMBERS = (
    *("runs", "inputs", "rows_in", "bytes_in", "outputs", "rows_out"),
    *("sent_messages", "sent_bytes", "received_messages", "received_bytes"),
    *("opaque_columns", "kept_bytes", "repeats", "restarts"),
    *("apart_ns", "together_ns"),
    *("written_bytes", "read_bytes", "write_ns", "read_ns"),
)
_OF_NOW = ("memory_bytes", "disk_bytes")

_lock = threading.Lock()
_open: dict[Run, Callable[[], Figures]] = {}
_done: dict[str, int] = dict.fromkeys(_NUMBERS, 0)


def add(**numbers: int) -> None:
    """Count what was done."""
    with _lock:
        for name, number in numbers.items():
            _done[name] += number


def opened(owner: Run, read: Callable[[], Figures]) -> None:
    """A run holds partitions, and `read` says what it has of them."""
    _close_what_is_given_up()
    with _lock:
        _open[owner] = read


def closed(owner: Run, last: Figures) -> None:
    """It does not any more, and these are its last figures."""
    with _lock:
        if _open.pop(owner, None) is not None:
            _add_from(_done, last)


def read() -> Figures:
    """The sum over all runs since the process began.

    `inputs` were split (`rows_in`, `bytes_in` of shards), `outputs` put together.
    `opaque_columns` of inputs were pickled. `sent_bytes` went to other workers,
    `kept_bytes` stayed here; `repeats` came a second time and were dropped; `restarts`
    were asked for here, as a partition was read again. `apart_ns` and `together_ns` are
    CPU time under the GIL, of taking frames apart and of putting them together.
    `memory_bytes` and `disk_bytes` are held now, by `open_runs`.
    """
    _close_what_is_given_up()
    with _lock:
        total: Figures = {**_done, **dict.fromkeys(_OF_NOW, 0)}
        sources = list(_open.values())
    for source in sources:
        figures = source()
        _add_from(total, figures)
        for name in _OF_NOW:
            total[name] += figures[name]
    return {"open_runs": len(sources), **total}


def _close_what_is_given_up() -> None:
    with _lock:
        runs = list(_open)
    for run in runs:
        run.close_if_given_up()


def _add_from(total: Figures, figures: Figures) -> None:
    for name in ("written_bytes", "read_bytes", "write_ns", "read_ns"):
        total[name] += figures[name]
