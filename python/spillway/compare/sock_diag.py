"""What Linux tells everybody about the TCP sockets of a network namespace: which there
are, and how many bytes went each way, now and as each of them ends (sock_diag(7))."""

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_TCP_ENDED = 1 << 0 | 1 << 2
"""The groups SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY, as bits."""
_INET_DIAG_INFO = 2
_ALL_STATES = 0xFFF
_LISTEN = 10
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")
_SOCKET = struct.Struct("=BBxx2s2s16s16s4xQ12xII")
"""struct inet_diag_msg: family, state, ports, addresses, cookie, uid, inode."""
_ATTRIBUTE = struct.Struct("=HH")
_COUNTS = struct.Struct("=QQ")
_COUNTS_AT = 120
"""Where struct tcp_info has tcpi_bytes_acked and tcpi_bytes_received (Linux 4.1)."""
_RECEIVE_BYTES = 1 << 17
_QUEUE_BYTES = 4 << 20
"""For some ten thousand sockets that end between two looks."""
_MAPPED = bytes(10) + b"\xff\xff"
"""How an IPv6 socket has the address of an IPv4 peer."""

End = tuple[bytes, int]
"""An address, without its zeros if it is IPv4's, and a port."""


class TcpSocket(NamedTuple):
    """One socket, as it is now or was at its end."""

    cookie: int
    """What no other socket ever has."""
    inode: int
    """0 once no process has it, and before it is accepted."""
    local: End
    remote: End
    is_listening: bool
    sent_bytes: int
    """What the peer has acknowledged: with one each for the begin and the end of the
    connection, which TCP counts as bytes."""
    received_bytes: int


class SockDiag:
    """Asks for sockets, and is told of those that end."""

    def __init__(self) -> None:
        """Raises OSError where the system has no such thing."""
        self._asking = _open(0)
        try:
            self._ended = _open(_TCP_ENDED)
        except OSError:
            self._asking.close()
            raise
        self._ended.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
        self._ended.setblocking(False)

    def close(self) -> None:
        """Hear of no more."""
        self._asking.close()
        self._ended.close()

    def fileno(self) -> int:
        """What is readable when ended() has something."""
        return self._ended.fileno()

    def sockets(self) -> Iterator[TcpSocket]:
        """All that there are, but for what the system remembers of connections that
        have ended or not begun, of which it has no counts."""
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(
                family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 0, _ALL_STATES
            )
            header = _HEADER.pack(
                _HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0
            )
            self._asking.send(header + request)
            yield from self._answers()

    def ended(self) -> Iterator[TcpSocket]:
        """Those that ended since the last call. Raises OSError (ENOBUFS), once, when
        there were more than fit the queue."""
        while True:
            try:
                packet = self._ended.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return
            for _, body in _messages(packet):
                found = _parsed(body)
                if found is not None:
                    yield found

    def _answers(self) -> Iterator[TcpSocket]:
        while True:
            for kind, body in _messages(self._asking.recv(_RECEIVE_BYTES)):
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, "the system does not list its TCP sockets")
                found = _parsed(body)
                if found is not None:
                    yield found


def _open(groups: int) -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    try:
        made.bind((0, groups))
    except OSError:
        made.close()
        raise
    return made


def _messages(packet: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + _HEADER.size <= len(packet):
        length, kind, *_ = _HEADER.unpack_from(packet, position)
        if length < _HEADER.size:
            return
        yield kind, packet[position + _HEADER.size : position + length]
        position += (length + 3) & ~3


def _parsed(body: bytes) -> TcpSocket | None:
    counts = _counts(body)
    if counts is None:
        return None
    family, state, port, peer_port, address, peer, cookie, _, inode = (
        _SOCKET.unpack_from(body)
    )
    return TcpSocket(
        cookie,
        inode,
        (_address(family, address), int.from_bytes(port)),
        (_address(family, peer), int.from_bytes(peer_port)),
        state == _LISTEN,
        *counts,
    )


def _address(family: int, address: bytes) -> bytes:
    if family == socket.AF_INET:
        return address[:4]
    return address[12:] if address.startswith(_MAPPED) else address


def _counts(body: bytes) -> tuple[int, int] | None:
    position = _SOCKET.size
    while position + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, position)
        at = position + _ATTRIBUTE.size + _COUNTS_AT
        if kind == _INET_DIAG_INFO and at + _COUNTS.size <= position + length:
            sent, received = _COUNTS.unpack_from(body, at)
            return sent, received
        if length < _ATTRIBUTE.size:
            break
        position += (length + 3) & ~3
    return None
