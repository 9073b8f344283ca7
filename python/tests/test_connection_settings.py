"""What native connections are made with."""

import os
import socket

import dask

from comm_pairs import OURS, comms, exchanged
from spillway import stats
from spillway.dask.connection_settings import LOOPBACK_CONGESTION


def congestion(comm):
    """What the system says of a comm's descriptor."""
    with socket.socket(fileno=os.dup(comm._stream._fd)) as copy:
        name = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def systems():
    with socket.socket() as any_socket:
        name = any_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


async def test_peers_on_this_machine_do_without_the_measuring_of_a_network():
    before = stats()["connections"]["tuned"]
    async with comms(OURS, OURS) as (near, far):
        assert congestion(near) == congestion(far) == LOOPBACK_CONGESTION
        assert await exchanged(near, far, "sent") == "sent"
    assert stats()["connections"]["tuned"] == before + 2


async def test_the_systems_congestion_control_can_be_kept():
    before = stats()["connections"]["tuned"]
    with dask.config.set({"spillway.comm.loopback-congestion": None}):
        async with comms(OURS, OURS) as (near, far):
            assert congestion(near) == congestion(far) == systems()
            assert await exchanged(near, far, "sent") == "sent"
    assert stats()["connections"]["tuned"] == before


async def test_dasks_time_out_is_the_connections():
    with dask.config.set({"distributed.comm.timeouts.tcp": "11s"}):
        async with comms(OURS, OURS) as (near, _far):
            with socket.socket(fileno=os.dup(near._stream._fd)) as copy:
                got = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert got == 11_000
