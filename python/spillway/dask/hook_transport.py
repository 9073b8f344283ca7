"""Takes over the scheme tcp.

A scheme of our own would not be enough: LocalCluster and most deployments write
tcp:// addresses by themselves. What listens or is connected already stays as it is.
"""

from typing import Any

from spillway import in_force
from spillway.dask import manifest, switches

NAME = "transport"
OFF_WITH = (switches.ALL, switches.TRANSPORT)

_SCHEME = "tcp"
_stock: Any = None
_ours: Any = None


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Have every new tcp:// listener and connection made by Spillway."""
    global _ours, _stock
    from distributed.comm.registry import backends

    from spillway.dask import same_host
    from spillway.dask.backends import TakeoverBackend

    in_force.same_host_off = same_host.why_off()
    ours = TakeoverBackend()
    _stock, _ours = backends[_SCHEME], ours
    backends[_SCHEME] = ours


def remove() -> None:
    """Put the backend back that was there, unless somebody has replaced ours."""
    global _ours, _stock
    from distributed.comm.registry import backends

    if backends.get(_SCHEME) is _ours:
        backends[_SCHEME] = _stock
    _stock = _ours = None
    in_force.same_host_off = None
