"""The extension over real sockets: what goes in comes out, stays alive as long as it
must and not longer, and every failure has a name."""

import array
import ast
import ctypes
import errno
import gc
import importlib.util
import itertools
import mmap
import os
import pathlib
import pickle
import random
import socket
import struct
import sys
import weakref
import zlib
from concurrent.futures import ThreadPoolExecutor

import msgpack
import pytest
import spillway._native
from loopback import (
    End,
    accept,
    budget,
    connected,
    drive,
    transfer,
    with_raw_peer,
)
from spillway import _native

KIB, MIB = 1 << 10, 1 << 20
HOSTS = ["127.0.0.1", "::1"]


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Whatever a test does, the budget is as it was when its objects are gone."""
    before = budget()
    yield
    assert budget() == before


@pytest.fixture
def pair():
    near, far = connected()
    yield near, far
    for end in (near, far):
        end.connection.close()
        end.messages.clear()


def some_bytes(size):
    return random.Random(size).randbytes(size)


def address(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0


def raw(frame):
    """The bytes that a frame stands for, by Python's own means."""
    view = memoryview(frame)
    if view.contiguous and view.nbytes:
        return bytes(pickle.PickleBuffer(frame).raw())
    return view.tobytes()


def mapped(size):
    memory = mmap.mmap(-1, size)
    memory[:] = some_bytes(size)
    return memory


def matrix(order):
    numpy = pytest.importorskip("numpy")
    return numpy.asarray(numpy.arange(300_000.0).reshape(600, 500), order=order)


MESSAGES = {
    "one frame": lambda: [b"x"],
    "one empty frame": lambda: [b""],
    "empty frames only": lambda: [b"", bytearray(), memoryview(b""), b""],
    "empty frames between": lambda: [b"head", b"", some_bytes(5000), b"", b"tail", b""],
    "5,000 tiny frames": lambda: [b"%d" % i for i in range(5000)],
    "200,000 tiny frames": lambda: [b"head"] + [b"ab", b"cde"] * 100_000,
    "5,000 frames of all kinds": lambda: [
        bytearray(some_bytes(i)) if i % 3 else some_bytes(i) for i in range(5000)
    ],
    "large first frame": lambda: [some_bytes(MIB), b"tail"],
    "100 MB": lambda: [b"head", bytearray(100_000_000)],
    "several large": lambda: [b"h", *(some_bytes(n * MIB + n) for n in range(1, 6))],
    "read-only view": lambda: [b"h", memoryview(some_bytes(100_000))],
    "strided view": lambda: [b"h", memoryview(some_bytes(100_000))[::2]],
    "backward view": lambda: [b"h", memoryview(some_bytes(100_000))[::-1]],
    "typed view": lambda: [b"h", memoryview(some_bytes(80_000)).cast("d")],
    "matrix view": lambda: [b"h", memoryview(some_bytes(800)).cast("d", [10, 10])],
    "array": lambda: [b"h", array.array("d", range(10_000))],
    "ctypes array": lambda: [b"h", (ctypes.c_int32 * 30_000)(*range(30_000))],
    "mmap": lambda: [b"h", mapped(MIB)],
    "pickle buffer": lambda: [b"h", pickle.PickleBuffer(bytearray(70_000))],
    "C matrix": lambda: [b"h", matrix("C")],
    "Fortran matrix": lambda: [b"h", matrix("F")],
    "transposed slice": lambda: [b"h", matrix("C").T[3:, ::2]],
    "read-only matrix": lambda: [b"h", memoryview(matrix("C")).toreadonly()],
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("shape", MESSAGES)
def test_round_trip(host, shape):
    frames = MESSAGES[shape]()
    expected = [raw(frame) for frame in frames]
    near, far = connected(host)
    there = transfer(near, far, frames)
    assert list(map(bytes, there)) == expected
    back = transfer(far, near, there)
    assert list(map(bytes, back)) == expected
    assert all(not view.readonly and view.format == "B" for view in back[1:])


@pytest.mark.skipif(
    not os.environ.get("SPILLWAY_TEST_HUGE"),
    reason="needs 9 GB of memory; set SPILLWAY_TEST_HUGE=1",
)
def test_frame_over_4_gib(pair):
    frame = bytearray((4 << 30) + 12345)
    frame[-8:] = b"the end."
    _, received = transfer(*pair, [b"head", frame])
    assert len(received) == len(frame)
    assert received[-8:] == b"the end."


def test_send_says_what_goes_over_the_wire():
    end, peer = with_raw_peer()
    with peer:
        size = end.connection.send([b"abc", b"", bytearray(b"de")])
        prelude = struct.pack("<QQQQ", 3, 3, 0, 2)
        assert size == 8 + len(prelude) + 5
        assert peer.recv(size, socket.MSG_WAITALL)[8:] == prelude + b"abcde"


@pytest.mark.parametrize("size, kind", [(64 * KIB, bytes), (64 * KIB + 1, memoryview)])
def test_only_a_small_first_frame_is_bytes(pair, size, kind):
    before = _native.figures()["copies"]["metadata"]
    head, tail = transfer(*pair, [some_bytes(size), b"tail"])
    assert type(head) is kind
    assert type(tail) is memoryview
    after = _native.figures()["copies"]["metadata"]
    copied = size if kind is bytes else 0
    assert after["bytes"] - before["bytes"] == copied
    assert after["count"] - before["count"] == bool(copied)


@pytest.mark.parametrize("size", [4 * KIB, 100_001, 3 * MIB])
def test_every_large_frame_is_aligned_and_has_a_life_of_its_own(pair, size):
    before = budget()["held"]
    _, *views = transfer(*pair, [b"head", *[some_bytes(size)] * 5])
    assert [address(view) % 64 for view in views] == [0] * 5
    assert len({id(view.obj) for view in views}) == 5
    assert budget()["held"] - before == 5 * size
    del views[1:4]
    assert budget()["held"] - before == 2 * size
    views[0][:3] = b"new"
    assert views[0][:3] == b"new"


def value(*buffers):
    """A sub-header as Dask sends it, and the shards of the buffers behind it."""
    counts = [len(shards) for shards in buffers]
    header = {
        "serializer": "pickle",
        "num-sub-frames": sum(counts),
        "split-num-sub-frames": counts,
        "split-offsets": [sum(counts[:i]) for i in range(len(counts))],
        "compression": [None] * sum(counts),
    }
    return [msgpack.packb(header), *(shard for shards in buffers for shard in shards)]


def test_shards_of_one_buffer_are_one_object_side_by_side(pair):
    sizes = [[70_000, 70_000, 10], [70_000, 70_000, 10], [300], [0], [50, 40]]
    buffers = [[some_bytes(size) for size in shards] for shards in sizes]
    message = transfer(*pair, [b"head", *value(*buffers), *value([b"other"])])
    frames = iter(message[2:])
    views = [[next(frames) for _ in shards] for shards in sizes]
    for shards, sent in zip(views, buffers, strict=True):
        assert b"".join(shards) == b"".join(sent)
        assert len({id(shard.obj) for shard in shards}) == 1
        for left, right in itertools.pairwise(shards):
            assert address(right) - address(left) == len(left)
        assert address(shards[0]) % 64 == 0
    assert views[0][0].obj is not views[1][0].obj


def test_an_empty_frame_pins_nothing(pair):
    before = budget()["held"]
    message = transfer(*pair, [b"h", some_bytes(MIB), b""])
    empty = message.pop()
    message.clear()
    assert budget()["held"] == before
    assert len(empty) == 0
    assert not empty.readonly


def test_frames_stay_alive_until_sent_and_no_longer(pair):
    near, far = pair
    frame = array.array("B", bytes(50 * MIB))
    head = some_bytes(100_000)
    references = sys.getrefcount(head)
    is_gone = weakref.ref(frame)
    near.connection.send([head, frame])
    assert near.connection.queued_bytes() > 0
    assert budget()["queued"] > 0
    with pytest.raises(BufferError):
        frame.append(1)
    del frame
    assert is_gone() is not None
    assert sys.getrefcount(head) == references + 1
    drive([near, far], lambda: far.messages)
    drive([near], lambda: near.connection.queued_bytes() == 0)
    assert is_gone() is None
    assert sys.getrefcount(head) == references
    assert budget()["queued"] == 0


def test_close_releases_what_was_not_sent(pair):
    near, _ = pair
    frame = bytearray(50 * MIB)
    near.connection.send([b"head", frame])
    with pytest.raises(BufferError):
        frame.append(1)
    near.connection.close()
    frame.append(1)
    assert budget()["queued"] == 0


def test_dropping_a_connection_closes_it_and_releases_its_frames(pair):
    near, far = pair
    frame = bytearray(50 * MIB)
    near.connection.send([b"head", frame])
    del near.connection
    frame.append(1)
    drive([far], lambda: far.error)
    assert far.error.status in ("TRUNCATED", "RESET")
    near.connection = far.connection


def test_closing_while_a_message_arrives_releases_it(pair):
    near, far = pair
    near.connection.send([b"head", bytearray(50 * MIB)])
    drive([near, far], lambda: budget()["in_flight"] > 0)
    far.connection.close()
    assert budget()["in_flight"] == 0


class Noisy(bytearray):
    """Calls back when it is dropped."""

    def __del__(self):
        self.on_drop()


def test_finalizer_of_a_frame_may_close_its_connection(pair):
    near, far = pair
    seen = []

    def on_drop():
        for call in (near.connection.fileno, lambda: near.connection.send([b"x"])):
            with pytest.raises(RuntimeError, match="in use"):
                call()
        near.connection.close()
        assert near.connection.fileno() == -1
        assert near.connection.interest() == near.connection.queued_bytes() == 0
        assert not (near.connection.open or near.connection.connecting)
        seen.append("dropped")

    frame = Noisy(50 * MIB)
    frame.on_drop = on_drop
    near.connection.send([b"head", frame])
    del frame, on_drop
    assert seen == []
    drive([near, far], lambda: far.messages)
    drive([near], lambda: seen)
    assert near.connection.fileno() == -1
    drive([far], lambda: far.error)
    assert far.error.status == "PEER_CLOSED"


def test_close_from_another_thread_ends_a_transfer(pair):
    near, far = pair

    def read_until_error():
        while far.error is None:
            far.receive_all()
            far.connection.on_readable()

    def in_flight():
        return _native.figures()["budget"]["in_flight"]

    near.connection.send([b"head", bytearray(200 * MIB)])
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_until_error)
        drive([near], lambda: in_flight() > 0)
        far.connection.close()
        assert far.connection.fileno() == -1
        reading.result()
    assert far.error.status == "CLOSED"
    assert in_flight() == 0
    drive([near], lambda: near.error)
    assert near.error.status in ("RESET", "PEER_CLOSED")


def test_send_takes_all_frames_or_none(pair):
    near, far = pair
    good, locked = bytearray(10), memoryview(bytearray(10))
    locked.release()
    for bad in (1, "text", None, locked):
        with pytest.raises((TypeError, ValueError)):
            near.connection.send([b"head", good, bad])
        good.append(1)
    with pytest.raises(TypeError, match="list"):
        near.connection.send((b"head",))
    with pytest.raises(ValueError, match="frame"):
        near.connection.send([])
    assert near.connection.queued_bytes() == 0
    assert transfer(near, far, [b"still works"]) == [b"still works"]


def test_noncontiguous_frames_are_copied_once_and_counted(pair):
    frame = memoryview(some_bytes(200_000))[::2]
    before = _native.figures()["copies"]["noncontiguous"]
    transfer(*pair, [b"head", frame])
    after = _native.figures()["copies"]["noncontiguous"]
    assert after["count"] - before["count"] == 1
    assert after["bytes"] - before["bytes"] == 100_000


def test_addresses():
    for host in HOSTS:
        listener = _native.Listener(host, 0, 16)
        near = _native.Connection.connect(*listener.local(), 0)
        far = accept(listener)
        assert near.peer() == listener.local() == far.local()
        assert far.peer() == near.local()
        assert near.peer()[0] == host
        assert listener.accept(0) is None
        near.close()
        with pytest.raises(_native.SpillwayError) as caught:
            near.local()
        assert caught.value.status == "CLOSED"
        assert near.peer() == listener.local()


def test_both_families_listen_on_one_port():
    first = _native.Listener("0.0.0.0", 0, 16)
    second = _native.Listener("::", first.local()[1], 16)
    assert first.local()[1] == second.local()[1]


def test_listener_errors():
    listener = _native.Listener("127.0.0.1", 0, 16)
    with pytest.raises(_native.SpillwayError) as caught:
        _native.Listener(*listener.local(), 16)
    assert caught.value.status == "ADDRESS"
    assert caught.value.errno == errno.EADDRINUSE
    port = listener.local()[1]
    listener.close()
    listener.close()
    assert listener.fileno() == -1
    for call in (listener.local, lambda: listener.accept(0)):
        with pytest.raises(_native.SpillwayError) as caught:
            call()
        assert caught.value.status == "CLOSED"
    with pytest.raises(_native.SpillwayError) as caught:
        _native.Listener("no.such.name.as.this", port, 16)
    assert caught.value.status == "ADDRESS"


def test_connect_refused():
    listener = _native.Listener("127.0.0.1", 0, 16)
    address = listener.local()
    listener.close()
    with pytest.raises(_native.SpillwayError) as caught:
        connection = _native.Connection.connect(*address, 0)
        end = End(connection)
        drive([end], lambda: end.error)
        raise end.error
    assert caught.value.status == "REFUSED"
    assert caught.value.errno == errno.ECONNREFUSED
    assert str(address[1]) in caught.value.strerror


def prelude(*lengths):
    table = struct.pack(f"<{len(lengths) + 1}Q", len(lengths), *lengths)
    return struct.pack("<Q", len(table)) + table


@pytest.mark.parametrize(
    "sent, status",
    [
        (b"", "PEER_CLOSED"),
        (b"\1", "TRUNCATED"),
        (prelude(3, 5) + b"abcde", "TRUNCATED"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "LIMIT_EXCEEDED"),
        (bytes(range(32)), "PROTOCOL"),
        (prelude(), "PROTOCOL"),
        (prelude(1 << 50), "LIMIT_EXCEEDED"),
    ],
)
def test_ends_of_a_connection(sent, status):
    end, peer = with_raw_peer()
    with peer:
        peer.sendall(sent)
        peer.shutdown(socket.SHUT_WR)
        drive([end], lambda: end.error)
    assert isinstance(end.error, _native.SpillwayError)
    assert isinstance(end.error, OSError)
    assert end.error.status == status
    assert isinstance(end.error.errno, int)
    assert end.error.strerror
    assert not end.connection.open
    with pytest.raises(_native.SpillwayError) as again:
        end.connection.receive()
    assert again.value.status == status


def test_a_whole_message_outlives_its_peer():
    end, peer = with_raw_peer()
    with peer:
        peer.sendall(prelude(3, 5) + b"abcdefgh")
    drive([end], lambda: end.error)
    assert end.messages == [[b"abc", b"defgh"]]
    assert end.error.status == "PEER_CLOSED"


def test_reset_by_the_peer():
    end, peer = with_raw_peer()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    drive([end], lambda: end.error)
    assert end.error.status == "RESET"
    assert end.error.errno == errno.ECONNRESET
    frame = bytearray(10)
    with pytest.raises(_native.SpillwayError):
        end.connection.send([b"head", frame])
    frame.append(1)


def test_closed_on_this_side(pair):
    near, far = pair
    near.connection.close()
    near.connection.close()
    assert near.connection.fileno() == -1
    assert near.connection.interest() == 0
    assert not near.connection.open
    frame = bytearray(10)
    for call in (near.connection.receive, lambda: near.connection.send([frame])):
        with pytest.raises(_native.SpillwayError) as caught:
            call()
        assert caught.value.status == "CLOSED"
    frame.append(1)
    drive([far], lambda: far.error)
    assert far.error.status == "PEER_CLOSED"


@pytest.mark.parametrize("port", [-1, 65536, 1 << 70])
def test_ports_that_are_none(port):
    with pytest.raises(ValueError, match="port"):
        _native.Connection.connect("127.0.0.1", port, 0)
    with pytest.raises(ValueError, match="port"):
        _native.Listener("127.0.0.1", port, 1)


def test_arguments_of_the_wrong_type():
    with pytest.raises(TypeError):
        _native.Connection.connect("127.0.0.1", "80", 0)
    with pytest.raises(ValueError, match="null"):
        _native.Connection.connect("127.0.0.1\0", 80, 0)
    with pytest.raises(ValueError, match="milliseconds"):
        _native.Connection.connect("127.0.0.1", 80, -1)
    for kind in (_native.Buffer, _native.Connection):
        with pytest.raises(TypeError):
            kind()


def test_module_has_what_its_stub_promises():
    stub = pathlib.Path(spillway._native.__file__).with_name("_native.pyi")
    for node in ast.parse(stub.read_text()).body:
        if not isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            continue
        member = getattr(_native, node.name)
        assert member.__doc__
        for inner in getattr(node, "body", []):
            if isinstance(inner, ast.FunctionDef):
                assert hasattr(member, inner.name)
    assert issubclass(_native.SpillwayError, OSError)


def test_figures_count_messages_and_bytes(pair):
    before = _native.figures()
    near, far = pair
    sent = near.connection.send([b"head", bytearray(1000)])
    drive([near, far], lambda: far.messages)
    after = _native.figures()
    for figure, change in {
        "messages_sent": 1,
        "messages_received": 1,
        "bytes_sent": sent,
        "bytes_received": sent,
    }.items():
        assert after[figure] - before[figure] == change
    near.connection.close()
    assert _native.figures()["connections_closed"] > before["connections_closed"]


def test_each_module_object_has_a_state_of_its_own(pair):
    spec = importlib.util.spec_from_file_location("spillway._native", _native.__file__)
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    assert other.Buffer is not _native.Buffer
    near, _ = pair
    near.connection.send([b"head"])
    assert _native.figures()["messages_sent"] > 0
    assert other.figures()["messages_sent"] == 0
    view = other.decompress("zlib", [zlib.compress(b"alive")])
    is_gone = weakref.ref(other)
    del other, spec
    gc.collect()
    assert is_gone() is not None
    assert view == b"alive"
    del view
    gc.collect()
    assert is_gone() is None


def steps_without_memory(call, prepare=lambda: None):
    """Let allocation N of Python's fail, for all N until none is left to fail."""
    testcapi = pytest.importorskip("_testcapi")
    for n in range(1, 1000):
        prepare()
        testcapi.set_nomemory(n, n + 1)
        try:
            call()
        except MemoryError:
            continue
        finally:
            testcapi.remove_mem_hooks()
        return n
    pytest.fail("still no success")


def test_python_out_of_memory(pair):
    near, far = pair
    frame, strided = bytearray(5000), memoryview(bytes(100))[::2]
    message = [b"head", frame, strided, b"", *value([b"a", b"b"])]
    packed = [zlib.compress(b"a"), zlib.compress(b"b")]

    def message_is_whole():
        assert far.connection.receive() is None
        near.connection.send(message)
        assert near.connection.queued_bytes() == 0
        while not far.connection.on_readable():
            pass

    assert steps_without_memory(lambda: near.connection.send(message)) > 4
    frame.append(1)
    drive([near, far], lambda: far.messages)
    steps = steps_without_memory(far.connection.receive, message_is_whole)
    assert steps > 10
    assert steps_without_memory(lambda: _native.decompress("zlib", packed)) > 2
    assert steps_without_memory(_native.figures) > 20
    assert steps_without_memory(near.connection.peer) > 1
    assert transfer(near, far, [b"still works"]) == [b"still works"]


def blocks_after(rounds):
    """How many blocks of Python's memory many rounds leave behind."""
    rounds(20)
    gc.collect()
    before = sys.getallocatedblocks()
    rounds(200)
    gc.collect()
    return sys.getallocatedblocks() - before


def test_messages_leave_nothing_behind(pair):
    payload, strided = bytearray(5000), memoryview(bytes(400))[::2]
    frames = [some_bytes(9), payload, strided, memoryview(payload), some_bytes(3000)]
    references = [sys.getrefcount(frame) for frame in frames]
    frames.append(b"")

    def rounds(count):
        for _ in range(count):
            transfer(*pair, frames)
            with pytest.raises(TypeError):
                pair[0].connection.send([b"head", payload, None])

    assert blocks_after(rounds) < 100
    del frames[-1]
    assert [sys.getrefcount(frame) for frame in frames] == references


def test_failed_connections_leave_nothing_behind():
    def rounds(count):
        for _ in range(count):
            end, peer = with_raw_peer()
            with peer:
                peer.sendall(prelude(3, 5) + b"abcde")
            drive([end], lambda end=end: end.error)

    assert blocks_after(rounds) < 100
