"""What the stores of this process have and did, for stats(). Neither Dask nor the C
library is needed to read it."""

import threading
from collections.abc import Callable
from typing import Any

Figures = dict[str, Any]

_TIERS = ("live", "packed", "on_disk", "clean")
_OF_A_TIER = ("count", "weight", "bytes")
_NUMBERS = (
    *("disk_bytes", "files", "leaving_bytes"),
    *("packs", "unpacks", "writes", "reads", "drops"),
    *("written_bytes", "read_bytes", "moved_bytes"),
    *("pack_ns", "unpack_ns", "write_ns", "read_ns", "compress_ns", "decompress_ns"),
    *("failures", "losses"),
    *("ahead_bytes", "ahead_used_bytes", "ahead_dropped_bytes"),
    *("arriving_bytes", "received", "received_bytes"),
    *("adopted", "adopted_bytes"),
    *("spilled_in_use", "spilled_in_use_bytes"),
)
_OF_NOW = (
    *("disk_bytes", "files", "leaving_bytes", "arriving_bytes"),
    *("spilled_in_use", "spilled_in_use_bytes"),
)
"""Those that end with their store; the others count what has been done."""

_lock = threading.Lock()
_open: dict[object, Callable[[], Figures]] = {}
_done: dict[str, int] = dict.fromkeys(_NUMBERS, 0)


def opened(owner: object, read: Callable[[], Figures]) -> None:
    """A store is there, and `read` says what it has."""
    with _lock:
        _open[owner] = read


def closed(owner: object, last: Figures) -> None:
    """It is not any more, and these are its last figures."""
    with _lock:
        if _open.pop(owner, None) is None:
            return
        for name in _NUMBERS:
            if name not in _OF_NOW:
                _done[name] += last[name]


def read() -> Figures:
    """The sum over all stores of this process, `stores` of which are open: for each
    form of values count, weight and bytes, and what was done since the process began.
    """
    with _lock:
        sources = list(_open.values())
        total: Figures = dict(_done)
    total.update({tier: dict.fromkeys(_OF_A_TIER, 0) for tier in _TIERS})
    for source in sources:
        figures = source()
        for name in _NUMBERS:
            total[name] += figures[name]
        for tier in _TIERS:
            for name in _OF_A_TIER:
                total[tier][name] += figures[tier][name]
    return {"stores": len(sources), **total}
