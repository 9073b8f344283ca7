"""What every native connection is made with, from Dask's configuration and ours."""

import asyncio
from typing import Any

import dask
from dask.utils import parse_timedelta

from spillway.dask.loop_bridge import bridge_of

CONGESTION_KEY = "spillway.comm.loopback-congestion"
LOOPBACK_CONGESTION = "reno"
"""Between two processes of one machine there is no network to spare: a way of
congestion control that measures one, as "bbr" does, only slows them down. Every system
lets everybody use this one. The key names another, or null for the system's own."""


def connection_settings(loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """Keyword arguments for ``connect`` and ``accept``, for a connection of a loop."""
    timeout = parse_timedelta(
        dask.config.get("distributed.comm.timeouts.tcp"), default="seconds"
    )
    return {
        "user_timeout_ms": int(timeout) * 1000,
        "loopback_congestion": dask.config.get(CONGESTION_KEY, LOOPBACK_CONGESTION),
        **bridge_of(loop).given,
    }
