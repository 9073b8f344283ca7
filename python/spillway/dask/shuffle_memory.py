"""How much memory the shuffles of a worker may have, and where they write what is more.

Both limits are for all shuffles together. What partitions hold is counted by the
library's budget, one for the process (`spw_partitions_options` in
include/spillway/partitions.h), as the store counts it too.
"""

import weakref
from typing import Any

from spillway import _native
from spillway.dask import shuffle_buffers
from spillway.dask.shuffle_outbox import AT_ONCE, Waiting
from spillway.dask.spill_directories import spill_directories

MEMORY_SHARE = 0.25
"""Of a worker's limit so much may be partitions, before the largest go to disk."""

OUTBOX_SHARE = 0.1
"""Of a worker's limit so much may wait to be sent."""

MESSAGE_BYTES = 32 << 20
"""A message takes no further piece from here on."""


_waiting: weakref.WeakKeyDictionary[Any, Waiting] = weakref.WeakKeyDictionary()


def waiting_on(worker: Any) -> Waiting:
    """What waits to be sent, of all shuffles of a worker. Thread: its loop's."""
    return _waiting.setdefault(worker, Waiting())


def open_partitions(worker: Any, count: int, limit: int | None) -> Any:
    """Where a run keeps the partitions that this worker puts together."""
    return _native.Partitions(
        max(1, count), spill_directories(worker, 0), memory=limit, ahead=True
    )


def memory_bytes(worker: Any, spec: Any) -> int | None:
    """What may be in memory of partitions before those of this shuffle are written;
    None if they stay there."""
    buffer = shuffle_buffers.chosen_for(spec)
    if buffer == shuffle_buffers.DISK:
        return 0
    whole = worker.memory_manager.memory_limit
    if buffer == shuffle_buffers.MEMORY or not whole:
        return None
    return int(whole * MEMORY_SHARE)


def outbox_bytes(worker: Any, others: int) -> int:
    """What may wait to be sent, or be under way, before a shuffle waits: the messages
    that are under way to that many other workers, but no more than Dask's setting and
    a share of what the worker has. What waits behind them is memory and no use."""
    import dask.config
    from dask.utils import parse_bytes

    under_way = max(1, others) * AT_ONCE * MESSAGE_BYTES
    configured = parse_bytes(dask.config.get("distributed.p2p.comm.buffer"))
    limit = min(under_way, configured)
    whole = worker.memory_manager.memory_limit
    return min(limit, int(whole * OUTBOX_SHARE)) if whole else limit


def retries() -> dict[str, Any]:
    """How often is tried to reach a worker, by Dask's settings."""
    import dask.config
    from dask.utils import parse_timedelta

    settings = dask.config.get("distributed.p2p.comm.retry")
    return {
        "count": settings["count"],
        "delay_min": parse_timedelta(settings["delay"]["min"], default="s"),
        "delay_max": parse_timedelta(settings["delay"]["max"], default="s"),
    }
