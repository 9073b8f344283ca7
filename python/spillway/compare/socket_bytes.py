"""How many bytes some processes send and receive over TCP, seen from outside of them.

A socket is theirs when one of them has it open, or when it ends at a port on which one
of them listens: that finds also those that came and went between two looks. The system
says of each socket, as it ends, how much it moved, so that nothing is lost with it.
"""

import contextlib
import os
import select
import time
from collections.abc import Iterable
from pathlib import Path

from spillway.compare.sock_diag import End, SockDiag, TcpSocket

_LOOPBACK = b"\x7f"
_LOOPBACK_6 = bytes(15) + b"\x01"


class SocketBytes:
    """Adds up what sockets of the processes moved."""

    def __init__(self) -> None:
        """Raises OSError where the system does not list its sockets."""
        self._diag = SockDiag()
        self._moved: dict[int, TcpSocket] = {}
        self._open: set[int] = set()
        """Which of them have not ended; listeners, which move nothing, apart."""
        self._ports: set[int] = set()
        self._unplaced: list[TcpSocket] = []
        """Of unknown processes, ended since the last look: it may find a listener."""
        self._before = {one.cookie for one in self._diag.sockets()}

    def close(self) -> None:
        """Look no more; total() stays."""
        self._diag.close()

    def fileno(self) -> int:
        """What is readable when read_ended() has something to do."""
        return self._diag.fileno()

    def sample(self, pids: Iterable[int]) -> None:
        """Look at the sockets of now; the processes are those of now."""
        # In this order: a socket that is in the list was open before the processes
        # are asked.
        now = [one for one in self._diag.sockets() if one.cookie not in self._before]
        unknown = {one.inode for one in now if one.cookie not in self._moved} - {0}
        owned = unknown & _open_inodes(pids) if unknown else set()
        for one in now:
            is_ours = one.inode in owned or one.cookie in self._moved
            if is_ours and one.is_listening:
                self._ports.add(one.local[1])
            if is_ours or self._meets_a_listener(one):
                self._moved[one.cookie] = one
                if not one.is_listening:
                    self._open.add(one.cookie)
        self.read_ended()
        for one in self._unplaced:
            if self._meets_a_listener(one):
                self._moved[one.cookie] = one
        self._unplaced.clear()

    def read_ended(self) -> None:
        """Take the last figures of sockets that ended. Raises OSError when more of them
        ended at once than the system remembers."""
        for one in self._diag.ended():
            if one.cookie in self._moved or self._meets_a_listener(one):
                self._moved[one.cookie] = one
                self._open.discard(one.cookie)
            else:
                self._unplaced.append(one)

    def settle(self, timeout_s: float) -> None:
        """Once the processes are gone: wait for the system to say so of their sockets,
        which it does a moment later. Raises OSError as read_ended() does."""
        deadline = time.monotonic() + timeout_s
        while self._open:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self], [], [], left)[0]:
                return
            self.read_ended()

    def total(self) -> int:
        """Each byte once: what the processes sent, and what others sent to them."""
        ends = {one.local for one in self._moved.values() if not one.is_listening}
        return sum(
            one.sent_bytes + (0 if one.remote in ends else one.received_bytes)
            for one in self._moved.values()
        )

    def _meets_a_listener(self, one: TcpSocket) -> bool:
        if one.cookie in self._before or one.is_listening:
            return False
        if one.local[1] in self._ports:
            return True
        return one.remote[1] in self._ports and _is_here(one.local, one.remote)


def _is_here(local: End, remote: End) -> bool:
    address = remote[0]
    return (
        address == local[0]
        or address == _LOOPBACK_6
        or (len(address) == 4 and address.startswith(_LOOPBACK))
    )


def _open_inodes(pids: Iterable[int]) -> set[int]:
    found = set()
    for pid in pids:
        # Processes end meanwhile, descriptors are closed, and what became another
        # user's (sudo) shows none.
        with contextlib.suppress(
            FileNotFoundError, ProcessLookupError, PermissionError
        ):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    name = os.readlink(descriptor)
                    if name.startswith("socket:["):
                        found.add(int(name[8:-1]))
    return found
