"""Connecting: to whom of several addresses, and what it says when there is nobody."""

import asyncio
import contextlib
import errno
import gc
import socket

import pytest
from distributed.comm.core import CommClosedError, connect, listen

from comm_pairs import OURS, STOCK, connector_of, open_descriptors, soon
from spillway import _native
from spillway.dask.connector import open_stream
from spillway.dask.loop_bridge import bridge_of

pytestmark = pytest.mark.usefixtures("nothing_is_left")

KINDS = [OURS, STOCK]


def descriptors_before():
    """All that are open, with those of the loop's bridge, which the first stream of a
    loop would open, and without those of earlier loops that are still in cycles."""
    gc.collect()
    bridge_of(asyncio.get_running_loop())
    return open_descriptors()


def listening():
    return socket.create_server(("127.0.0.1", 0), backlog=8)


@contextlib.contextmanager
def closed_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()


@contextlib.contextmanager
def silent_port():
    """An address that answers nothing: its backlog is full."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()


async def test_the_first_address_that_answers_is_taken():
    with closed_port() as closed, listening() as first, listening() as second:
        addresses = [closed, first.getsockname(), second.getsockname()]
        stream = await soon(open_stream(addresses))
        assert stream.peer() == first.getsockname()
        stream.abort()


async def test_a_silent_address_does_not_cost_a_timeout():
    with silent_port() as silent, listening() as second:
        before = descriptors_before()
        addresses = [silent, second.getsockname()]
        stream = await soon(open_stream(addresses))
        assert stream.peer() == second.getsockname()
        stream.abort()
        while open_descriptors() != before:
            await soon(asyncio.sleep(0))  # the other attempt is being cancelled


async def test_the_error_is_that_of_the_first_address():
    with closed_port() as one, closed_port() as other:
        with pytest.raises(_native.SpillwayError) as caught:
            await soon(open_stream([one, other]))
        assert caught.value.status == "REFUSED"
        assert caught.value.errno == errno.ECONNREFUSED
        assert f"127.0.0.1:{one[1]}" in str(caught.value)


async def test_no_address():
    with pytest.raises(OSError, match="no address"):
        await open_stream([])


async def test_cancelling_closes_what_has_begun():
    with silent_port() as silent:
        before = descriptors_before()
        opening = asyncio.ensure_future(open_stream([silent]))
        while open_descriptors() == before:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(opening)
        while open_descriptors() != before:
            await soon(asyncio.sleep(0))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_host(kind):
    with pytest.raises(socket.gaierror):
        await connector_of(kind).connect("no.such.host.invalid:80")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_refused_connection(kind):
    with (
        closed_port() as (_, port),
        pytest.raises(CommClosedError, match=r"refused|Refused") as caught,
    ):
        await connector_of(kind).connect(f"127.0.0.1:{port}")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("kind", KINDS)
async def test_connect_gives_up_with_the_cause(kind):
    with (
        closed_port() as (_, port),
        pytest.raises(OSError, match="Timed out trying to connect") as caught,
    ):
        await connect(f"{kind}://127.0.0.1:{port}", timeout=0.2)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("kind", KINDS)
async def test_encryption_that_is_required_is_refused(kind):
    message = "encryption required by Dask configuration, refusing communication"
    with pytest.raises(RuntimeError, match=message):
        await connector_of(kind).connect("127.0.0.1:1", require_encryption=True)
    with pytest.raises(RuntimeError, match=message):
        listen(f"{kind}://127.0.0.1:0", lambda comm: None, require_encryption=True)
