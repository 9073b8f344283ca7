"""How much may wait to be sent to one peer.

What is written waits in memory, pinned, until the peer takes it. A peer that has
stopped takes nothing, so from a limit on who writes more waits as well. A message alone
in the queue is never held back, however large, and neither is a small one.
"""

from __future__ import annotations

from collections.abc import Iterable

from distributed.utils import nbytes

from spillway.dask.pool_trimmer import memory_limit
from spillway.dask.size_setting import configured_bytes

QUEUE_LIMIT_KEY = "spillway.comm.queue-limit"

LEAST_BYTES = 64 << 20
MEMORY_SHARE = 0.1

SMALL_BYTES = 64 << 10
"""What is no larger goes at once: it says that something works, or does not."""


def configured_limit() -> int | None:
    """The limit in bytes that `spillway.comm.queue-limit` asks for, as
    `size_setting.configured_bytes` answers it."""
    return configured_bytes(QUEUE_LIMIT_KEY)


def limit_in_force(configured: int | None) -> int:
    """The same when "auto" has been looked up: a tenth of what this process may use,
    and 64 MiB at least."""
    if configured is None:
        return max(LEAST_BYTES, int(MEMORY_SHARE * memory_limit()))
    return configured


def is_small(frames: Iterable[bytes | memoryview]) -> bool:
    """Whether a message never waits."""
    return sum(map(nbytes, frames)) <= SMALL_BYTES
