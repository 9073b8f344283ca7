"""What Dask's registry is given: one class a scheme, with stock's addresses."""

import pytest
from distributed.comm.registry import backends
from distributed.comm.tcp import TCPBackend

from comm_pairs import comms
from spillway.dask.backends import SpillwayBackend, TakeoverBackend
from spillway.dask.comm import SpillwayComm

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_the_takeover_writes_tcp_addresses(monkeypatch):
    monkeypatch.setitem(backends, "tcp", TakeoverBackend())
    async with comms("tcp", "tcp") as (near, far):
        assert isinstance(near, SpillwayComm)
        assert isinstance(far, SpillwayComm)
        for end in (near, far):
            assert end.local_address.startswith("tcp://127.0.0.1:")
            assert end.peer_address.startswith("tcp://127.0.0.1:")


@pytest.mark.parametrize(
    "location", ["127.0.0.1:80", "[::1]:80", "localhost:80", "127.0.0.1"]
)
def test_address_methods_are_those_of_stock(location):
    ours, stock = SpillwayBackend(), TCPBackend()
    for method in (
        "get_address_host",
        "get_address_host_port",
        "resolve_address",
        "get_local_address_for",
    ):
        assert outcome(ours, method, location) == outcome(stock, method, location)


def outcome(backend, method, location):
    try:
        return getattr(backend, method)(location)
    except ValueError as error:
        return str(error)
