"""Where comms encode and decode: by their setting, by their role, and in order."""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from typing import ClassVar

import dask
import numpy
import pytest
from distributed.comm import CommClosedError, connect
from distributed.comm import utils as comm_utils
from distributed.protocol import to_serialize
from distributed.protocol.serialize import ToPickle

from comm_pairs import OURS, comms, exchanged, listening, soon, with_raw_peer
from message_shapes import MIB, noise
from spillway import stats
from spillway.dask import disable, enable, hook_offload, offload_setting
from spillway.dask.offload_setting import ALWAYS, AUTO_BYTES, KEY, NEVER

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@contextlib.contextmanager
def counted():
    """What was counted meanwhile: (direction, place) of each message with values."""
    before, found = stats()["offload"], []
    yield found
    for direction, places in stats()["offload"].items():
        for place, now in places.items():
            count = now["count"] - before[direction][place]["count"]
            found.extend([(direction, place)] * count)


def both(place):
    return [("encoded", place), ("decoded", place)]


class Where:
    """Says in which threads it was pickled and unpickled."""

    pickled = unpickled = None

    def __init__(self, size=0):
        self.data = os.urandom(size)

    def __reduce__(self):
        Where.pickled = threading.current_thread().name
        return unpickle, (self.data,)


def unpickle(data):
    Where.unpickled = threading.current_thread().name
    return len(data)


def is_offloaded(thread):
    return thread.startswith("spillway-offload-")


@pytest.mark.parametrize("mark", [to_serialize, ToPickle])
@pytest.mark.parametrize("how", ["config", "attribute", "argument"])
@pytest.mark.parametrize(
    "value, size, place",
    [
        ("never", 4 * MIB, "inline"),
        ("always", 10, "offloaded"),
        ("3 MiB", 4 * MIB, "offloaded"),
    ],
)
async def test_each_way_to_set_it(mark, how, value, size, place):
    with dask.config.set({KEY: value} if how == "config" else {}):
        argument = {"spillway_offload": value} if how == "argument" else {}
        async with comms(OURS, OURS, connect_options=argument, **argument) as (
            near,
            far,
        ):
            if how == "attribute":
                near.offload = far.offload = value
            near.handshake_options["compression"] = "lz4"
            message = {"x": mark(Where(size)), "y": to_serialize(noise(5))}
            Where.pickled = Where.unpickled = None
            with counted() as found:
                received = await exchanged(near, far, message)
    assert received["x"] == size
    assert ("decoded", place) in found
    assert is_offloaded(Where.unpickled) == (place == "offloaded")
    if value != "3 MiB":
        assert found == both(place)
        assert is_offloaded(Where.pickled) == (place == "offloaded")


async def test_it_can_be_asked_for():
    async with comms(OURS, OURS) as (near, far):
        assert near.offload == far.offload == AUTO_BYTES
        for value, size in (("never", NEVER), ("always", ALWAYS), ("1 kiB", 1024)):
            near.offload = value
            assert near.offload == size
            assert near._stream.offload_bytes == size
        with pytest.raises(ValueError, match=KEY):
            near.offload = "sometimes"
        assert near.offload == 1024


@pytest.mark.parametrize("how", ["config", "argument"])
async def test_a_setting_that_means_nothing_is_refused_before_anything_is_made(how):
    with dask.config.set({KEY: "sometimes"} if how == "config" else {}):
        given = {"spillway_offload": "sometimes"} if how == "argument" else {}
        with pytest.raises(ValueError, match="sometimes"):
            async with listening(OURS, **given):
                pass
        with pytest.raises(ValueError, match="sometimes"):
            await connect("spillway://127.0.0.1:1", **given)


async def test_what_is_configured_later_holds_for_later_connections():
    async with listening(OURS) as (listener, accepted):
        for value, size in (("never", NEVER), ("always", ALWAYS)):
            with dask.config.set({KEY: value}):
                near = await connect(listener.contact_address)
                far = await soon(accepted.get())
            assert (near.offload, far.offload) == (size, size)
            near.abort()
            far.abort()


async def test_by_itself_arrays_stay_and_large_pickles_leave():
    async with comms(OURS, OURS) as (near, far):
        with counted() as found:
            array = noise(64 * MIB)
            received = await exchanged(near, far, {"x": to_serialize(array)})
        assert (received["x"] == array).all()
        assert found == both("inline")
        with counted() as found:
            numbers = dict.fromkeys(range(30_000), 5)
            received = await exchanged(near, far, {"x": to_serialize(numbers)})
        assert received["x"] == numbers
        assert found[0] == ("encoded", "offloaded")
        with counted() as found:
            received = await exchanged(near, far, {"x": ToPickle("text" * MIB)})
        assert received["x"] == "text" * MIB
        assert found[1] == ("decoded", "offloaded")
        with counted() as found:
            received = await exchanged(near, far, {"x": to_serialize("text" * MIB)})
        assert received["x"] == "text" * MIB
        assert found[1] == ("decoded", "offloaded")


async def test_plain_messages_are_not_counted_and_stay():
    async with comms(OURS, OURS) as (near, far):
        near.offload = far.offload = "always"
        with counted() as found:
            message = {"x": b"x" * (4 * MIB)}
            assert await exchanged(near, far, message) == message
        assert found == []


# By role


async def test_where_dask_says_no_nothing_leaves_and_nobody_decides(monkeypatch):
    def never(*_):
        raise AssertionError("a scheduler does not pay for deciding")

    monkeypatch.setattr("spillway.dask.comm.decode_bytes", never)
    monkeypatch.setattr("spillway.dask.encode_cost.expected_bytes", never)
    with dask.config.set({KEY: "always"}):
        async with comms(OURS, OURS, allow_offload=False) as (near, far):
            near.allow_offload = False
            for one, other in ((near, far), (far, near)):
                with counted() as found:
                    message = {"x": ToPickle(Where(4 * MIB))}
                    received = await exchanged(one, other, message)
                assert received["x"] == 4 * MIB
                assert found == both("inline")
                assert not is_offloaded(Where.pickled)
                assert not is_offloaded(Where.unpickled)


# Order


class Slow:
    """Takes a thread until it is let go."""

    gates: ClassVar[dict[int, threading.Event]] = {}

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        Slow.gates[self.number].wait(30)
        return int, (self.number,)


def gates(count):
    Slow.gates = {number: threading.Event() for number in range(count)}
    return list(Slow.gates.values())


async def test_messages_of_one_comm_keep_their_order():
    first, second = gates(2)
    async with comms(OURS, OURS) as (near, far):
        near.offload = "always"
        writes = [
            asyncio.ensure_future(near.write(message))
            for message in (
                [to_serialize(Slow(0))],
                "plain",
                [to_serialize(Slow(1))],
                [to_serialize(5)],
            )
        ]
        second.set()  # the later one is encoded first
        await soon(asyncio.sleep(0.01))
        assert not any(write.done() for write in writes)
        first.set()
        await soon(asyncio.gather(*writes))
        got = [await soon(far.read()) for _ in writes]
        assert got == [(0,), "plain", (1,), (5,)]
        assert near._turn is None
        with counted() as found:
            near.offload = "auto"
            assert await exchanged(near, far, [to_serialize(1)]) == (1,)
        assert found == both("inline")


async def test_comms_do_not_wait_for_each_other():
    gate, _ = gates(2)
    async with comms(OURS, OURS) as (near, far), comms(OURS, OURS) as (other, end):
        near.offload = other.offload = "always"
        held = asyncio.ensure_future(near.write(to_serialize(Slow(0))))
        assert await exchanged(other, end, to_serialize(7)) == 7
        assert not held.done()
        gate.set()
        assert await soon(far.read()) == 0
        await soon(held)


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_who_is_cancelled_lets_the_others_keep_their_order(which):
    opened = gates(3)
    async with comms(OURS, OURS) as (near, far):
        near.offload = "always"
        writes = [
            asyncio.ensure_future(near.write([to_serialize(Slow(number))]))
            for number in range(3)
        ]
        await asyncio.sleep(0)
        writes[which].cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(writes[which])
        assert not near.closed()
        for gate in reversed(opened):
            gate.set()
        left = [number for number in range(3) if number != which]
        assert [await soon(far.read()) for _ in left] == [(n,) for n in left]
        await soon(asyncio.gather(*writes, return_exceptions=True))
        assert await exchanged(near, far, "next") == "next"


class Refuses:
    def __reduce__(self):
        raise TypeError("does not want to")


async def test_who_fails_lets_the_others_go_on():
    (gate,) = gates(1)
    async with comms(OURS, OURS) as (near, far):
        near.offload = "always"
        slow = asyncio.ensure_future(near.write([to_serialize(Slow(0))]))
        failing = asyncio.ensure_future(near.write(ToPickle(Refuses())))
        last = asyncio.ensure_future(near.write("last"))
        with pytest.raises(TypeError, match="does not want to"):
            await soon(failing)
        assert not last.done()
        gate.set()
        assert [await soon(far.read()) for _ in range(2)] == [(0,), "last"]
        await soon(asyncio.gather(slow, last))


async def test_a_comm_that_is_closed_meanwhile_says_so():
    (gate,) = gates(1)
    async with comms(OURS, OURS) as (near, _):
        near.offload = "always"
        slow = asyncio.ensure_future(near.write([to_serialize(Slow(0))]))
        await asyncio.sleep(0)
        near.abort()
        gate.set()
        with pytest.raises(CommClosedError):
            await soon(slow)


async def test_cancelling_an_offloaded_read_leaves_the_comm():
    async with comms(OURS, OURS) as (near, far):
        far.offload = "always"
        await near.write([to_serialize(noise(9))])
        reading = asyncio.ensure_future(far.read())
        while not far._stream.received_bytes or reading.done():
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(reading)


# What is not held or waited for


async def test_what_was_offloaded_is_let_go():
    import gc
    import weakref

    async with with_raw_peer() as (comm, _):
        comm.offload = "always"
        array = noise(100)
        dropped = weakref.ref(array)
        await comm.write({"x": to_serialize(array)})
        del array
        deadline = asyncio.get_running_loop().time() + 30
        while dropped() is not None:
            gc.collect()
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0)


@pytest.mark.timeout(60)
def test_a_process_ends_with_offloaded_work_pending():
    script = (
        "import asyncio, threading\n"
        "from distributed.comm import connect, listen\n"
        "from distributed.protocol import to_serialize\n"
        "begun = threading.Event()\n"
        "class Endless:\n"
        "    def __reduce__(self):\n"
        "        begun.set(); threading.Event().wait()\n"
        "async def main():\n"
        "    listener = await listen('spillway://127.0.0.1:0', lambda comm: None)\n"
        "    comm = await connect(listener.contact_address)\n"
        "    write = asyncio.ensure_future(comm.write(to_serialize(Endless())))\n"
        "    while not begun.is_set(): await asyncio.sleep(0)\n"
        "    comm.abort(); listener.stop(); print('ends')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ
    )
    assert (done.returncode, done.stdout) == (0, "ends\n")


# Switched off


@pytest.mark.parametrize("through", ["enable", "spillway://"])
async def test_switched_off_it_is_as_in_dask(monkeypatch, through):
    monkeypatch.setenv("SPILLWAY_DISABLE", "offload")
    if through == "enable":
        enable()
        assert stats()["parts"]["offload"]["why_off"] == "SPILLWAY_DISABLE=offload"
        assert stats()["parts"]["transport"]["on"]
    async with comms(OURS, OURS) as (near, far):
        near.offload = far.offload = "always"
        with counted() as found:
            size = comm_utils.OFFLOAD_THRESHOLD + MIB
            array = numpy.zeros(size, "u1")
            await exchanged(near, far, {"x": to_serialize([array, Where(5)])})
        assert found == []
        assert Where.pickled.startswith("Dask-Offload")
        assert Where.unpickled.startswith("Dask-Offload")
        await exchanged(near, far, {"x": to_serialize(Where(5))})
        assert Where.pickled == threading.current_thread().name


async def test_disable_leaves_what_is_connected_and_nothing_else():
    enable()
    assert hook_offload.is_in_force()
    async with comms(OURS, OURS) as (near, far):
        disable()
        near.offload = "always"
        with counted() as found:
            await exchanged(near, far, [to_serialize(5)])
        assert found == [("encoded", "offloaded"), ("decoded", "inline")]


def test_auto_is_a_size_that_can_be_given():
    assert offload_setting.parse(AUTO_BYTES) == AUTO_BYTES
