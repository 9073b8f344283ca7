"""Completions: connections that come back from threads, and who keeps whom alive."""

import errno
import gc
import os
import resource
import select
import weakref

import pytest
from loopback import PATIENCE_S, TIMEOUT_MS, budget
from samples import MIB, some_bytes

from spillway import _native

READ, WRITE, COMPLETION = 1, 2, 4


@pytest.fixture
def completions():
    return _native.Completions(2)


@pytest.fixture
def ends(completions):
    """Two connected connections that are given completions."""
    listener = _native.Listener("127.0.0.1", 0, 16)
    near = _native.Connection.connect(
        *listener.local(), TIMEOUT_MS, completions=completions
    )
    assert select.select([listener.fileno()], [], [], PATIENCE_S)[0]
    far = listener.accept(TIMEOUT_MS, completions=completions)
    while near.connecting:
        assert select.select([], [near.fileno()], [], PATIENCE_S)[1]
        near.on_writable()
    listener.close()
    yield near, far
    near.close()
    far.close()


def take_back(completions):
    """Wait until something has come back."""
    assert select.select([completions.fileno()], [], [], PATIENCE_S)[0]
    back = set()
    while (connection := completions.next()) is not None:
        back.add(connection)
    return back


def receive(connection, completions):
    while (message := connection.receive()) is None:
        if connection.interest() & COMPLETION:
            take_back(completions)
        else:
            assert select.select([connection.fileno()], [], [], PATIENCE_S)[0]
            connection.on_readable()
    return message


@pytest.mark.parametrize("threads", [-1, 65, 2**70])
def test_a_wrong_number_of_threads(threads):
    with pytest.raises(ValueError, match=r"a number of threads must be from 0 to 64"):
        _native.Completions(threads)


@pytest.mark.parametrize("arguments", [(), ("two",), (2.0,), (1, 2)])
def test_wrong_arguments(arguments):
    with pytest.raises(TypeError):
        _native.Completions(*arguments)


def test_a_connection_takes_completions_only():
    with pytest.raises(TypeError):
        _native.Connection.connect("127.0.0.1", 1, TIMEOUT_MS, completions=3)


def test_nothing_comes_back_of_nothing(completions):
    assert completions.next() is None
    assert not select.select([completions.fileno()], [], [], 0)[0]


def test_a_large_message_goes_away_and_comes_back(completions, ends):
    near, far = ends
    body = some_bytes(8 * MIB)
    near.send([b"head", body])
    assert near.interest() == READ | COMPLETION
    head, received = receive(far, completions)
    assert (head, received) == (b"head", body)
    while near.interest() & COMPLETION:
        assert near in take_back(completions)
    assert near.queued_bytes() == 0
    assert near.interest() == READ


def test_a_small_message_does_not(completions, ends):
    near, far = ends
    near.send([b"small"])
    assert near.interest() == READ
    assert receive(far, completions) == [b"small"]


def test_frames_are_let_go_when_the_connection_has_come_back(completions, ends):
    near, far = ends
    frame = bytearray(8 * MIB)
    near.send([frame])
    with pytest.raises(BufferError):
        frame.append(1)
    receive(far, completions)
    while near.interest() & COMPLETION:
        take_back(completions)
    near.queued_bytes()  # any call lets go of what has been sent
    frame.append(1)


def test_close_lets_go_of_what_a_thread_sends(ends):
    near, _ = ends
    frame = bytearray(64 * MIB)
    near.send([frame])
    assert near.interest() & COMPLETION
    near.close()
    frame.append(1)
    assert near.interest() == 0
    assert budget()["queued"] == 0


def test_a_dropped_connection_does_not_come_back(completions):
    listener = _native.Listener("127.0.0.1", 0, 16)
    near = _native.Connection.connect(
        *listener.local(), TIMEOUT_MS, completions=completions
    )
    while near.connecting:
        assert select.select([], [near.fileno()], [], PATIENCE_S)[1]
        near.on_writable()
    frame = bytearray(64 * MIB)
    near.send([frame])
    assert near.interest() & COMPLETION
    del near
    frame.append(1)
    assert completions.next() is None
    assert not select.select([completions.fileno()], [], [], 0)[0]


def test_a_connection_keeps_its_completions(ends):
    """The threads end when the last connection is gone that may need them."""
    near, far = ends
    before = set(os.listdir("/proc/self/fd"))
    lone = _native.Completions(1)
    listener = _native.Listener("127.0.0.1", 0, 16)
    connection = _native.Connection.connect(
        *listener.local(), TIMEOUT_MS, completions=lone
    )
    listener.close()
    del lone
    gc.collect()
    opened = set(os.listdir("/proc/self/fd")) - before
    assert len(opened) == 5  # the connection's, its completions', their reactor's three
    del connection, listener
    assert set(os.listdir("/proc/self/fd")) == before
    near.send([b"others are as they were"])
    assert far.open


def test_the_peers_end_comes_back(completions, ends):
    near, far = ends
    near.send([bytes(64 * MIB)])
    assert near.interest() & COMPLETION
    far.close()
    while near.open:
        take_back(completions)
    with pytest.raises(_native.SpillwayError, match=r"127\.0\.0\.1"):
        near.receive()


def test_no_descriptor_for_completions():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    open_now = max(map(int, os.listdir("/proc/self/fd"))) + 1
    assert used <= open_now
    for free in range(3):
        descriptors = [os.dup(0) for _ in range(64)]
        highest = max(descriptors)
        for descriptor in descriptors[:free]:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        try:
            with pytest.raises(_native.SpillwayError) as raised:
                _native.Completions(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for descriptor in descriptors[free:]:
                os.close(descriptor)
        assert raised.value.errno == errno.EMFILE
        assert "ulimit" in raised.value.strerror


def test_completions_are_collected():
    completions = _native.Completions(1)
    with pytest.raises(TypeError):
        weakref.ref(completions)
    descriptor = completions.fileno()
    del completions
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
