"""How much may be arriving at once, from all peers of this process together.

A worker that fetches from many others, or a client that gathers, would take memory
for all that they send at the same time. From the limit on a large message (1 MiB and
more) waits unread, and so its sender does; who has begun to arrive is never
interrupted. Nobody waits while nothing else arrives, nor behind peers that have stopped
(`spw_budget_limit_in_flight` in include/spillway/budget.h has the rules).
"""

from spillway.dask.size_setting import configured_bytes

KEY = "spillway.comm.in-flight-limit"

LEAST_BYTES = 256 << 20
MEMORY_SHARE = 0.3


def limit_in_force(memory_limit: int) -> int:
    """In bytes, 0 for none: what `spillway.comm.in-flight-limit` says; by default three
    tenths of the memory that the process may use, and 256 MiB at least.

    Raises
    ------
    ValueError
        When the setting is neither "auto" nor a size.
    """
    configured = configured_bytes(KEY)
    if configured is None:
        return max(LEAST_BYTES, int(MEMORY_SHARE * memory_limit))
    return configured
