"""What the system says of TCP sockets, added up for some processes."""

import os
import select
import socket
import subprocess
import sys
import time

import pytest

from spillway.compare.sock_diag import SockDiag
from spillway.compare.socket_bytes import SocketBytes

SENT, RECEIVED = 1_000_000, 2_000
EXTRA = 4
"""A connection's begin and end count as bytes, on each way."""


@pytest.fixture
def counted():
    made = SocketBytes()
    yield made
    made.close()


def listener(family, host):
    return socket.create_server((host, 0), family=family)


def pair(server, host="127.0.0.1"):
    client = socket.create_connection((host, server.getsockname()[1]))
    return client, server.accept()[0]


def exchange(client, accepted):
    for one, other, count in ((client, accepted, SENT), (accepted, client, RECEIVED)):
        for begin in range(0, count, 50_000):
            piece = min(50_000, count - begin)
            one.sendall(bytes(piece))
            other.recv(piece, socket.MSG_WAITALL)


def wait_for(counted, total, within=EXTRA):
    """The system tells of what ended a moment later."""
    deadline = time.monotonic() + 10
    while counted.total() < total and time.monotonic() < deadline:
        select.select([counted], [], [], 1)
        counted.read_ended()
    assert total <= counted.total() <= total + within


@pytest.mark.parametrize(
    ("family", "bound", "host"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
    ids=["IPv4", "IPv6", "mapped"],
)
def test_each_byte_between_own_sockets_counts_once(counted, family, bound, host):
    try:
        server = socket.create_server(
            (bound, 0), family=family, dualstack_ipv6=bound == "::"
        )
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with server:
        client, accepted = pair(server, host)
        with client, accepted:
            exchange(client, accepted)
            counted.sample([os.getpid()])
            wait_for(counted, SENT + RECEIVED)
            exchange(client, accepted)  # not seen while they are open
        wait_for(counted, 2 * (SENT + RECEIVED))
    counted.settle(10)
    assert counted.total() <= 2 * (SENT + RECEIVED) + EXTRA


def test_what_came_and_went_unseen_counts_where_a_port_is_known(counted):
    with listener(socket.AF_INET, "127.0.0.1") as server:
        counted.sample([os.getpid()])
        client, accepted = pair(server)
        with client, accepted:
            exchange(client, accepted)
        wait_for(counted, SENT + RECEIVED)


def test_what_others_send_and_get_counts_too(counted):
    """One end is another process's, which is none of those that are asked for."""
    code = (
        "import socket, sys\n"
        "one = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        f"one.recv({RECEIVED}, socket.MSG_WAITALL); one.sendall(bytes({SENT}))\n"
        "one.recv(1)\n"
    )
    with listener(socket.AF_INET, "127.0.0.1") as server:
        port = str(server.getsockname()[1])
        other = subprocess.Popen([sys.executable, "-c", code, port])
        accepted = server.accept()[0]
        with accepted:
            accepted.sendall(bytes(RECEIVED))
            accepted.recv(SENT, socket.MSG_WAITALL)
            counted.sample([other.pid])
            wait_for(counted, SENT + RECEIVED)
        other.wait(30)


def test_sockets_of_others_do_not_count(counted):
    with listener(socket.AF_INET, "127.0.0.1") as server:
        client, accepted = pair(server)
        with client, accepted:
            exchange(client, accepted)
            counted.sample([])
    counted.read_ended()
    assert counted.total() == 0


def test_sockets_from_before_do_not_count():
    with listener(socket.AF_INET, "127.0.0.1") as server:
        client, accepted = pair(server)
        counted = SocketBytes()
        with client, accepted:
            exchange(client, accepted)
            counted.sample([os.getpid()])
            counted.read_ended()
        assert counted.total() == 0
        counted.close()


def test_sock_diag_says_what_a_socket_is():
    diag = SockDiag()
    with listener(socket.AF_INET, "127.0.0.1") as server:
        end = (socket.inet_aton("127.0.0.1"), server.getsockname()[1])
        (found,) = [one for one in diag.sockets() if one.local == end]
        assert found.is_listening
        assert found.inode == os.fstat(server.fileno()).st_ino
        assert found.remote == (bytes(4), 0)
    diag.close()


def test_what_ended_before_its_port_was_known_counts(counted):
    with listener(socket.AF_INET, "127.0.0.1") as server:
        client, accepted = pair(server)
        with client, accepted:
            exchange(client, accepted)
        ended = 0
        while ended < 2:
            assert select.select([counted], [], [], 10)[0]
            counted.read_ended()
            ended = len(counted._unplaced)
        assert counted.total() == 0
        counted.sample([os.getpid()])
        wait_for(counted, SENT + RECEIVED)


def test_settle_waits_for_what_is_open_and_no_longer(counted):
    with listener(socket.AF_INET, "127.0.0.1") as server:
        client, accepted = pair(server)
        with client, accepted:
            counted.sample([os.getpid()])
            exchange(client, accepted)
    begin = time.monotonic()
    counted.settle(60)
    assert time.monotonic() - begin < 30
    assert SENT + RECEIVED <= counted.total() <= SENT + RECEIVED + EXTRA
