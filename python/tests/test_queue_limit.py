"""Who writes to a peer that takes nothing waits from a limit on, loses nothing by that,
and is freed when the peer is gone."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import weakref
import zlib

import dask
import numpy
import pytest
from distributed.comm.core import CommClosedError, connect
from distributed.protocol import to_serialize

from comm_pairs import OURS, charged, comms, exchanged, soon, until
from message_shapes import MIB, noise
from spillway.dask.pool_trimmer import memory_limit
from spillway.dask.queue_limit import (
    LEAST_BYTES,
    SMALL_BYTES,
    configured_limit,
    is_small,
    limit_in_force,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")

KEY = "spillway.comm.queue-limit"
LIMIT = 16 * MIB
BODY = 6 * MIB
MESSAGES = 16  # far more than the limit and the system's buffers

PEER = """
import asyncio, zlib

from distributed.comm.core import listen
from distributed.comm.registry import backends
from spillway.dask.backends import SpillwayBackend

backends["spillway"] = SpillwayBackend()


async def main():
    accepted = asyncio.Queue()

    async def keep(comm):
        accepted.put_nowait(comm)

    async with listen("spillway://127.0.0.1:0", keep) as listener:
        print(listener.contact_address, flush=True)
        comm = await accepted.get()
        while (message := await comm.read()) != "end":
            if message == "are you there?":
                await comm.write("yes")
            else:
                number, body = message
                await comm.write([number, zlib.crc32(body.data)])
        await comm.close()


asyncio.run(main())
"""


class Peer:
    """A process that answers each array with its checksum."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER], stdout=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().strip()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def peer_process():
    peer = Peer()
    try:
        yield peer
    finally:
        peer.process.kill()
        peer.process.wait()
        peer.process.stdout.close()


def body_of(number):
    return numpy.roll(noise(BODY), number)


def queued():
    return charged()["queued"]


@pytest.fixture
def small_limit():
    with dask.config.set({KEY: LIMIT}):
        yield


async def connected(peer):
    """A comm to it, after a first large message."""
    comm = await connect(peer.address)
    for number in (-2, -1):
        body = body_of(number)
        await comm.write([number, to_serialize(body)])
        assert await soon(comm.read()) == (number, zlib.crc32(body.data))
    return comm


async def write_all(comm, written):
    for number in range(MESSAGES):
        await comm.write([number, to_serialize(body_of(number))])
        written.append(number)


async def held_back(comm, written):
    """Start to write, until a limit holds it back."""
    writer = asyncio.create_task(write_all(comm, written))
    await until(lambda: comm._stream.is_full(LIMIT) and comm._stream._writers)
    return writer


# A peer that is stopped


@pytest.mark.usefixtures("small_limit")
async def test_a_writer_waits_for_a_stopped_peer(way):
    with peer_process() as peer:
        comm = await connected(peer)
        peer.stop()
        written = []
        writer = await held_back(comm, written)
        assert not writer.done()
        # The socket of a peer that has just stopped may still take some of it.
        assert LIMIT // 2 <= queued() <= LIMIT + BODY + SMALL_BYTES
        # What is small goes, behind what has been written and before what waits.
        await soon(comm.write("are you there?"))
        already = len(written)
        assert already < MESSAGES
        peer.go_on()
        await soon(writer)
        answers = [await soon(comm.read()) for _ in range(MESSAGES + 1)]
        assert answers.pop(already) == "yes"
        assert answers == [
            (number, zlib.crc32(body_of(number).data)) for number in range(MESSAGES)
        ]
        await comm.write("end")
        await until(lambda: not queued())
        await comm.close()


@pytest.mark.usefixtures("small_limit")
async def test_a_writer_is_freed_when_the_peer_dies(way):
    with peer_process() as peer:
        comm = await connected(peer)
        peer.stop()
        bodies = [body_of(number) for number in range(MESSAGES)]
        pinned = [weakref.ref(body) for body in bodies]

        async def write():
            while bodies:
                await comm.write([0, to_serialize(bodies.pop(0))])

        writer = asyncio.create_task(write())
        await until(lambda: comm._stream.is_full(LIMIT) and comm._stream._writers)
        peer.process.kill()
        with pytest.raises(CommClosedError):
            await soon(writer)
        bodies.clear()
        del writer
        gc.collect()
        assert [ref for ref in pinned if ref() is not None] == []
        assert queued() == 0
        comm.abort()


@pytest.mark.usefixtures("small_limit")
async def test_one_message_is_never_held_back_however_large(way):
    with peer_process() as peer:
        comm = await connected(peer)
        peer.stop()
        body = numpy.tile(noise(BODY), 8)
        await soon(comm.write([0, to_serialize(body)]))
        assert queued() > LIMIT
        peer.go_on()
        assert await soon(comm.read()) == (0, zlib.crc32(body.data))
        comm.abort()


@pytest.mark.usefixtures("small_limit")
async def test_what_was_written_before_close_is_sent(way):
    with peer_process() as peer:
        comm = await connected(peer)
        peer.stop()
        written = []
        writer = asyncio.create_task(write_all(comm, written))
        await until(lambda: comm._stream._writers)
        closing = asyncio.ensure_future(comm.close())
        # It is through with the message that waited, and refuses the next one.
        with pytest.raises(CommClosedError):
            await soon(writer)
        assert len(written) >= 3
        peer.go_on()
        await soon(closing)


@pytest.mark.usefixtures("small_limit")
async def test_a_writer_that_is_cancelled_leaves_the_comm_as_it_was():
    with peer_process() as peer:
        comm = await connected(peer)
        peer.stop()
        written = []
        writer = await held_back(comm, written)
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer
        peer.go_on()
        for number in written:
            expected = (number, zlib.crc32(body_of(number).data))
            assert await soon(comm.read()) == expected
        await comm.write("are you there?")
        assert await soon(comm.read()) == "yes"
        comm.abort()


@pytest.mark.parametrize("limit", [0, "1 GiB"])
async def test_without_a_limit_nobody_waits(limit):
    with dask.config.set({KEY: limit}), peer_process() as peer:
        comm = await connected(peer)
        peer.stop()
        await soon(write_all(comm, []))
        assert queued() > (MESSAGES - 2) * BODY
        comm.abort()


# Who waits for whom


@pytest.mark.usefixtures("small_limit")
async def test_two_that_write_before_they_read_do_not_wait_for_each_other(way):
    bodies = [body_of(number) for number in range(MESSAGES)]

    async def talk(comm):
        for body in bodies:
            await comm.write(to_serialize(body))
        for body in bodies:
            assert (await comm.read() == body).all()

    async with comms(OURS, OURS) as (near, far):
        assert await exchanged(near, far, "hello") == "hello"
        await soon(asyncio.gather(talk(near), talk(far)))


@pytest.mark.usefixtures("small_limit")
async def test_streams_both_ways_with_readers_that_always_read(way):
    async def write(comm):
        for number in range(MESSAGES):
            await comm.write(to_serialize(body_of(number)))

    async def read(comm):
        return [zlib.crc32((await comm.read()).data) for _ in range(MESSAGES)]

    async with comms(OURS, OURS) as (near, far):
        _, _, *received = await soon(
            asyncio.gather(write(near), write(far), read(near), read(far))
        )
    expected = [zlib.crc32(body_of(number).data) for number in range(MESSAGES)]
    assert received == [expected, expected]


# The limit


def test_by_default_it_is_a_tenth_of_memory(monkeypatch):
    assert configured_limit() is None
    monkeypatch.setattr("spillway.dask.queue_limit.memory_limit", lambda: 10 << 30)
    assert limit_in_force(None) == 1 << 30
    monkeypatch.setattr("spillway.dask.queue_limit.memory_limit", lambda: 1 << 20)
    assert limit_in_force(None) == LEAST_BYTES
    assert memory_limit() > 0


@pytest.mark.parametrize(
    ("value", "limit"), [("auto", None), (0, 0), (12, 12), ("2 MiB", 2 * MIB)]
)
def test_it_is_configured(value, limit):
    with dask.config.set({KEY: value}):
        assert configured_limit() == limit
    assert limit_in_force(5) == 5


@pytest.mark.parametrize("value", ["much", -1, None, [], "-3 MiB"])
async def test_what_is_no_size_is_refused(value):
    with dask.config.set({KEY: value}):
        with pytest.raises(ValueError, match=KEY):
            configured_limit()


def test_what_is_small():
    assert is_small([])
    assert is_small([bytes(SMALL_BYTES - 8), memoryview(numpy.zeros(1))])
    assert not is_small([bytes(SMALL_BYTES - 8), memoryview(numpy.zeros(2))])
