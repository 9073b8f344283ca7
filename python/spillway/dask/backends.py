"""What Dask's registry of comm schemes is given: one class a scheme.

Address handling is Dask's own for TCP.
"""

from distributed.comm.tcp import BaseTCPBackend

from spillway.dask.connector import SpillwayConnector, TakeoverConnector
from spillway.dask.listener import SpillwayListener, TakeoverListener


class SpillwayBackend(BaseTCPBackend):
    """Serves spillway://, the explicit way."""

    _connector_class = SpillwayConnector
    _listener_class = SpillwayListener


class TakeoverBackend(BaseTCPBackend):
    """Serves tcp:// in Dask's place."""

    _connector_class = TakeoverConnector
    _listener_class = TakeoverListener
