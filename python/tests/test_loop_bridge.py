"""Threads under asyncio: what is configured, what happens when loops, comms, processes
end or fork in the middle of a transfer, and that nothing is left of it."""

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import dask
import numpy
import pytest
from distributed.comm.core import CommClosedError, connect
from distributed.protocol import to_serialize

import wire_oracle
from comm_pairs import (
    EVERY_PAIR,
    OURS,
    charged,
    comms,
    exchanged,
    listening,
    soon,
    until,
    with_raw_peer,
)
from message_shapes import MIB
from spillway import _native, stats
from spillway.dask.backends import SpillwayBackend
from spillway.dask.loop_bridge import (
    MOST_THREADS,
    THREADS_KEY,
    bridge_of,
    configured_threads,
)
from thread_scripts import both_ways, threads_of_process

pytestmark = pytest.mark.usefixtures("nothing_is_left", "threads_are_on")

SCRIPTS = Path(__file__).with_name("thread_scripts.py")


# What is configured


@pytest.mark.parametrize(
    ("value", "threads"), [("auto", 0), (0, None), (1, 1), (64, 64)]
)
def test_values_of_the_configuration(value, threads):
    with dask.config.set({THREADS_KEY: value}):
        assert configured_threads() == threads


def test_the_limit_is_the_librarys():
    _native.Completions(MOST_THREADS)
    with pytest.raises(ValueError, match=r"from 0 to 64, not 65"):
        _native.Completions(MOST_THREADS + 1)


def test_the_default_is_auto(monkeypatch):
    with dask.config.set({THREADS_KEY: 7}):
        monkeypatch.setattr(dask.config, "global_config", {})
        assert configured_threads() == 0


WRONG = [-1, 65, 2.0, True, None, "two", "4", [2]]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_wrong_value_is_named(value):
    with dask.config.set({THREADS_KEY: value}):
        with pytest.raises(ValueError, match=r'spillway\.comm\.threads must be "auto"'):
            configured_threads()


async def test_a_wrong_value_shows_when_listening_and_connecting():
    with dask.config.set({THREADS_KEY: "two"}):
        with pytest.raises(ValueError, match=r"spillway\.comm\.threads.*'two'"):
            async with listening(OURS):
                pass
        with pytest.raises(ValueError, match=r"spillway\.comm\.threads.*'two'"):
            await connect("spillway://127.0.0.1:1")


@pytest.mark.parametrize("threads", ["auto", 0, 1, 3])
async def test_as_many_threads_as_configured(threads):
    before = threads_of_process()
    with dask.config.set({THREADS_KEY: threads}):
        async with comms(OURS, OURS) as (near, far):
            assert await both_ways(near, far)
            started = threads_of_process() - before
    if threads == "auto":
        assert 2 <= started <= 4
    else:
        assert started == threads


async def test_without_threads_there_is_nothing_to_watch():
    with dask.config.set({THREADS_KEY: 0}):
        before = set(os.listdir("/proc/self/fd"))
        assert not bridge_of(asyncio.get_running_loop()).given
        assert set(os.listdir("/proc/self/fd")) == before


async def test_a_loop_has_one_bridge():
    loop = asyncio.get_running_loop()
    bridge = bridge_of(loop)
    async with comms(OURS, OURS):
        assert bridge_of(loop) is bridge


# Transfers


@pytest.mark.parametrize(("near", "far"), EVERY_PAIR)
async def test_big_messages_both_ways_at_once(near, far):
    async with comms(near, far) as (ours, theirs):
        for _ in range(3):
            assert await both_ways(ours, theirs)


async def test_many_comms_at_once():
    async def one(number):
        async with comms(OURS, OURS) as (near, far):
            data = numpy.full(5 * MIB + number, number % 251, dtype="u1")
            for _ in range(3):
                received = await exchanged(near, far, to_serialize(data))
                assert numpy.array_equal(received, data)

    await soon(asyncio.gather(*map(one, range(12))))


async def test_small_messages_behind_large_ones_come_in_their_order():
    async with comms(OURS, OURS) as (near, far):
        data = numpy.arange(4 * MIB)
        sent = [7, to_serialize(data), "small", to_serialize(data[::-1].copy()), 8]
        for message in sent:
            await near.write(message)
        received = [await soon(far.read()) for _ in sent]
        assert [received[0], received[2], received[4]] == [7, "small", 8]
        assert numpy.array_equal(received[1], data)
        assert numpy.array_equal(received[3], data[::-1])


async def test_arrays_are_let_go_one_by_one_while_more_wait():
    """The peer has not read the last one when the first is gone."""
    async with comms(OURS, OURS) as (near, far):
        arrays = [numpy.zeros(96 * MIB, dtype="u1") for _ in range(3)]
        first, last = weakref.ref(arrays[0]), weakref.ref(arrays[-1])
        while arrays:
            await near.write(to_serialize(arrays.pop(0)))
        await soon(far.read())
        reading = asyncio.ensure_future(far.read())
        await until(lambda: first() is None)
        assert last() is not None
        await soon(reading)
        await soon(far.read())
        await until(lambda: last() is None)


def test_several_loops_at_once():
    """Each in a thread, with threads of its own for large bodies."""
    results = []

    async def exchange():
        async with comms(OURS, OURS) as (near, far):
            bridge = bridge_of(asyncio.get_running_loop())
            for _ in range(3):
                results.append((id(bridge), await both_ways(near, far)))

    threads = [
        threading.Thread(target=lambda: asyncio.run(exchange())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [is_right for _, is_right in results] == [True] * 12
    assert len({bridge for bridge, _ in results}) == 4


# Ends in the middle


async def begun(comm, peer, size=32 * MIB):
    """A read of a body of which the peer has sent the half."""
    wire = wire_oracle.write([b"\x80", bytes(size)])
    reading = asyncio.ensure_future(comm.read())
    await peer.send(wire[: len(wire) // 2])
    await until(lambda: stats()["budget"]["in_flight"])
    return reading


async def test_abort_ends_a_read_with_a_body_under_way():
    async with with_raw_peer() as (comm, peer):
        reading = await begun(comm, peer)
        comm.abort()
        assert not stats()["budget"]["in_flight"]
        with pytest.raises(CommClosedError):
            await soon(reading)


async def test_close_ends_a_read_with_a_body_under_way():
    async with with_raw_peer() as (comm, peer):
        reading = await begun(comm, peer)
        await soon(comm.close())
        assert not stats()["budget"]["in_flight"]
        with pytest.raises(CommClosedError):
            await soon(reading)


async def test_a_cancelled_read_lets_the_body_go():
    async with with_raw_peer() as (comm, peer):
        reading = await begun(comm, peer)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(reading)
        assert comm.closed()
        assert not stats()["budget"]["in_flight"]


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_the_peer_ends_with_a_body_under_way(end):
    async with with_raw_peer() as (comm, peer):
        reading = await begun(comm, peer)
        getattr(peer, end)()
        with pytest.raises(CommClosedError, match=r"TRUNCATED|RESET"):
            await soon(reading)
        assert comm.closed()
        assert not stats()["budget"]["in_flight"]


@pytest.mark.parametrize("end", ["abort", "close", "reset"])
async def test_an_array_on_its_way_out_is_let_go_at_the_end(end):
    async with with_raw_peer() as (comm, peer):
        array = numpy.zeros(64 * MIB, dtype="u1")
        is_gone = weakref.ref(array)
        await comm.write(to_serialize(array))
        del array
        assert stats()["budget"]["queued"]
        if end == "abort":
            comm.abort()
        else:
            getattr(peer, end)()
            await until(comm.closed)
        assert not stats()["budget"]["queued"]
        await until(lambda: is_gone() is None)


async def test_close_flushes_what_a_thread_sends():
    async with with_raw_peer() as (comm, peer):
        await comm.write(to_serialize(numpy.ones(32 * MIB, dtype="u1")))
        receiving = asyncio.ensure_future(peer.receive_rest())
        await soon(comm.close())
        (received,) = wire_oracle.read_all(await soon(receiving))
        assert bytes(32 * MIB).replace(b"\0", b"\1") in received.frames


async def sending():
    """A comm that sends to a peer which does not read, and what tells of its array."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        comm = await SpillwayBackend().get_connector().connect(f"{host}:{port}")
        peer, _ = server.accept()
    comm.handshake_options["compression"] = None
    array = numpy.zeros(64 * MIB, dtype="u1")
    await comm.write(to_serialize(array))
    assert stats()["budget"]["queued"]
    return comm, peer, weakref.ref(array)


def test_a_loop_closed_with_a_transfer_under_way():
    """Nothing of it is left but what the user holds."""
    gc.collect()  # loops of other tests, which have threads of their own
    before = threads_of_process()
    loop = asyncio.new_event_loop()
    comm, peer, array = loop.run_until_complete(sending())
    bridge, closed = weakref.ref(bridge_of(loop)), weakref.ref(loop)
    assert threads_of_process() > before
    loop.close()
    comm.abort()
    assert not stats()["budget"]["queued"]
    assert array() is None
    peer.close()
    del comm, loop
    gc.collect()
    assert bridge() is None
    assert closed() is None
    assert threads_of_process() <= before


def test_a_comm_forgotten_after_its_loop_was_closed(caplog):
    loop = asyncio.new_event_loop()
    comm, peer, array = loop.run_until_complete(sending())
    closed = weakref.ref(loop)
    loop.close()
    del comm, loop
    gc.collect()
    assert "dangling" in caplog.text
    assert array() is None
    assert closed() is None
    assert not charged()["queued"]
    peer.close()


async def closed_comms():
    """Two that had threads, and met."""
    async with comms(OURS, OURS) as (near, far):
        assert await both_ways(near, far)
    return near, far


def test_closed_comms_and_loops_that_somebody_keeps():
    """Dask keeps the loop and the comms of a worker for long: they are objects, without
    threads and descriptors."""
    gc.collect()
    before = threads_of_process(), set(os.listdir("/proc/self/fd"))
    loop = asyncio.new_event_loop()
    kept = loop.run_until_complete(closed_comms())
    assert threads_of_process() > before[0]
    loop.close()
    gc.collect()
    assert (threads_of_process(), set(os.listdir("/proc/self/fd"))) == before
    assert [comm.closed() for comm in kept] == [True, True]


# A loop that goes on without comms


def ours_of_process():
    return threads_of_process(), set(os.listdir("/proc/self/fd"))


async def test_a_loop_without_comms_gives_up_its_threads_and_descriptors(monkeypatch):
    monkeypatch.setattr("spillway.dask.loop_bridge.IDLE_S", 0.01)
    await asyncio.sleep(0)
    before = ours_of_process()
    for _ in range(3):  # the next one makes new ones
        async with comms(OURS, OURS) as (near, far):
            assert await both_ways(near, far)
            assert ours_of_process() != before
        await until(lambda: ours_of_process() == before)


async def test_a_comm_that_its_peer_has_ended_keeps_nothing(monkeypatch):
    """Nobody reads from it, nor closes it: it lies in somebody's pool."""
    monkeypatch.setattr("spillway.dask.loop_bridge.IDLE_S", 0.01)
    before = ours_of_process()
    async with listening(OURS) as (listener, accepted):
        kept = await connect(listener.contact_address)
        other = await soon(accepted.get())
        assert await both_ways(kept, other)
        other.abort()
        await until(kept.closed)
    await until(lambda: ours_of_process() == before)
    assert kept.closed()


async def test_who_comes_before_a_loop_is_idle_finds_its_bridge(monkeypatch):
    async with comms(OURS, OURS) as (near, far):
        assert await both_ways(near, far)
        used = bridge_of(near._stream.loop)
        monkeypatch.setattr("spillway.dask.loop_bridge.IDLE_S", 0.01)
    async with comms(OURS, OURS) as (near, far):
        assert bridge_of(near._stream.loop) is used
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(0.05, later.set_result, None)  # after what was due at 0.01
        await soon(later)
        assert bridge_of(near._stream.loop) is used
        assert await both_ways(near, far)


async def test_a_listener_alone_keeps_the_bridge(monkeypatch):
    monkeypatch.setattr("spillway.dask.loop_bridge.IDLE_S", 0.01)
    async with listening(OURS) as (listener, accepted):
        used = bridge_of(asyncio.get_running_loop())
        comm = await connect(listener.contact_address)
        far = await soon(accepted.get())
        comm.abort()
        far.abort()
        loop = asyncio.get_running_loop()
        later = loop.create_future()
        loop.call_later(0.05, later.set_result, None)
        await soon(later)
        assert bridge_of(loop) is used


async def test_who_is_told_of_the_end_need_not_close(monkeypatch):
    monkeypatch.setattr("spillway.dask.loop_bridge.IDLE_S", 0.01)
    await asyncio.sleep(0)
    before = ours_of_process()
    async with listening(OURS) as (listener, accepted):
        comm = await connect(listener.contact_address)
        (await soon(accepted.get())).abort()
        with pytest.raises(CommClosedError):
            await soon(comm.read())
        # One that goes before it has said a word: its handshake fails.
        with socket.create_connection(listener.get_host_port()):
            pass
        await until(lambda: not listener._tasks)
    await until(lambda: ours_of_process() == before)


# Processes that end or fork in the middle


def started(program):
    environment = {
        **os.environ,
        "PYTHONPATH": str(SCRIPTS.parent),
        "DASK_DISTRIBUTED__COMM__OFFLOAD": "False",
        "DASK_SPILLWAY__COMM__THREADS": "auto",
    }
    return subprocess.Popen(
        [sys.executable, str(SCRIPTS), program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ended(process):
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize(
    "program", ["exit", "exit without a word", "exit beside a loop"]
)
def test_a_process_exits(program):
    assert ended(started(program)) == (0, "ready\n", "")


def test_a_process_ends_by_an_exception():
    code, out, err = ended(started("exception"))
    assert (code, out) == (1, "ready\n")
    assert err.rstrip().endswith("RuntimeError: a user's mistake")


def test_a_process_is_terminated():
    process = started("termination")
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert ended(process) == (-signal.SIGTERM, "", "")


def test_a_process_that_handles_its_termination():
    """The signal reaches the loop, whatever thread the system would give it to."""
    process = started("termination with a handler")
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert ended(process) == (0, "closed\n", "")


@pytest.mark.parametrize("program", ["fork by hand", "fork by multiprocessing"])
def test_user_code_forks(program):
    assert ended(started(program)) == (0, "ready\n", "")


# What the bridge relies on


async def test_what_comes_back_is_told_once():
    """A descriptor that stayed readable would have the loop spin."""
    loop = asyncio.get_running_loop()
    async with comms(OURS, OURS) as (near, far):
        assert await both_ways(near, far)
        for completions in given_to(bridge_of(loop)).values():
            assert completions.next() is None
            assert isinstance(completions, _native.Completions)
            assert loop._selector.get_key(completions.fileno())


def given_to(bridge):
    assert bridge.given
    return bridge.given
