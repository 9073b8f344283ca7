"""Connections and listeners: frames live as long as they must and not longer, and every
end of a connection has a name."""

import array
import errno
import os
import socket
import struct
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from loopback import (
    HOSTS,
    End,
    accept,
    budget,
    drive,
    with_raw_peer,
)
from samples import MIB, prelude, some_bytes

from spillway import _native


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
        assert near.connection.open
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


def test_any_thread_may_ask_whether_it_is_open(pair):
    near, far = pair
    near.connection.send([b"head", bytearray(200 * MIB)])
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(pump, near, far)
        answers = [near.connection.open and far.connection.open]
        while not moving.done():
            answers.append(near.connection.open and far.connection.open)
        moving.result()
    assert all(answers)


@pytest.fixture
def bystander():
    """Start another thread, which runs only if the GIL is given up, and what it did."""
    seen, go, interval = [], threading.Event(), sys.getswitchinterval()
    thread = threading.Thread(target=lambda: go.wait() and seen.append("ran"))
    thread.start()
    # No thread is asked to make way for this long, in seconds.
    sys.setswitchinterval(1000)
    yield go.set, seen
    sys.setswitchinterval(interval)
    go.set()
    thread.join()


def pump(near, far):
    """Move one message by calls of the extension alone."""
    while (message := far.connection.receive()) is None:
        near.connection.on_writable()
        far.connection.on_readable()
    return message


def test_other_threads_run_while_much_is_moved(pair, bystander):
    (near, far), (start, seen) = pair, bystander
    frame = bytearray(200 * MIB)
    start()
    near.connection.send([b"head", frame])
    pump(near, far)
    assert seen


def test_small_messages_keep_the_gil(pair, bystander):
    (near, far), (start, seen) = pair, bystander
    start()
    for _ in range(200):
        near.connection.send([b"head", b"x" * 1000])
        pump(near, far)
    assert not seen


def test_a_forked_child_does_not_end_what_is_its_parents(pair):
    near, far = pair
    listener = _native.Listener("127.0.0.1", 0, 16)
    child = os.fork()
    if child == 0:
        near.connection.close()
        listener.close()
        del far.connection
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    for sender, receiver in ((near, far), (far, near)):
        sender.connection.send([b"still here"])
        drive([receiver], lambda end=receiver: end.messages)
    late = _native.Connection.connect(*listener.local(), 0)
    assert accept(listener).peer() == late.local()


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
        assert near.local() == far.peer()  # what has been asked for stays known
        assert near.peer() == listener.local()
        never_asked = _native.Connection.connect(*listener.local(), 0)
        never_asked.close()
        with pytest.raises(_native.SpillwayError) as caught:
            never_asked.local()
        assert caught.value.status == "CLOSED"


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


def test_says_how_many_bytes_came_last(pair):
    near, far = pair
    assert far.connection.received_bytes == 0
    for frames in ([b"x" * 100, b"", b"y" * 5000], [b"z"]):
        near.connection.send(frames)
        count = len(far.messages)
        drive([near, far], lambda count=count: len(far.messages) > count)
        assert far.connection.received_bytes == sum(map(len, frames))
    assert near.connection.received_bytes == 0


def test_keeps_what_it_is_told_about_offloading(pair):
    near, far = pair
    assert near.connection.offload_bytes == 0
    for size in (1, 2**63 - 1, 0, True):
        near.connection.offload_bytes = size
        assert near.connection.offload_bytes == size
    assert far.connection.offload_bytes == 0
    for wrong in (-1, 2**63, 2**70):
        with pytest.raises(ValueError, match="a count of bytes must be from 0"):
            near.connection.offload_bytes = wrong
    with pytest.raises(TypeError):
        near.connection.offload_bytes = "auto"
    with pytest.raises(AttributeError):
        del near.connection.offload_bytes
    near.connection.close()
    near.connection.offload_bytes = 5
    assert near.connection.offload_bytes == 5
