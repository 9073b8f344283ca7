"""Peers that share our host meet us here, so that large bodies need no socket.

Each side of a handshake says which run of which machine it is on, where its loop's
meeting place is, and a secret. Two that are on the same one expect each other there;
the nonces by which they recognise their connection are made of both secrets, so that
nobody else knows them. Everything else is checked by the library when they meet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import threading
import weakref
from typing import TYPE_CHECKING, Any

from spillway import _native, in_force
from spillway.dask import switches
from spillway.dask.loop_bridge import (
    THREADS_KEY,
    LoopBridge,
    bridge_of,
    configured_threads,
)

if TYPE_CHECKING:
    from spillway.dask.stream import Stream

logger = logging.getLogger(__name__)

SECRET_BYTES = 16
BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
PROCESS_IDS_PATH = "/proc/self/ns/pid"
LONGEST_PATH_BYTES = 107  # of a Unix socket, as the system has it

SLOWER = "Large data goes a slower way between two processes of this host"

_lock = threading.Lock()
# By bridge, which goes when its loop is closed: others may keep the loop for long.
_places: weakref.WeakKeyDictionary[LoopBridge, MeetingPlace | None] = (
    weakref.WeakKeyDictionary()
)
_told: set[str] = set()


def _say_once(text: str, reason: object) -> None:
    with _lock:
        is_news = (line := f"{text}: {reason}") not in _told
        _told.add(line)
    if is_news:
        logger.warning("%s", line)


class MeetingPlace:
    """What one loop has of it. All methods are called in the loop's thread."""

    __slots__ = ("__weakref__", "_boot_id", "_meetings", "_processes", "secret")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        with open(BOOT_ID_PATH, encoding="ascii") as file:
            self._boot_id = file.read().strip()
        self._processes = _process_ids()
        self._meetings = _meetings_in(tempfile.gettempdir())
        self.secret = os.urandom(SECRET_BYTES)
        """What those tell who accept a connection of the loop. Those who make one tell
        a secret of their own."""
        # Loops that still run when the interpreter ends are never given back.
        weakref.finalize(self, _remove, self._meetings.path(), os.getpid())
        loop.add_reader(self._meetings.fileno(), self._let_in)

    def offer(self, secret: bytes) -> dict[str, Any]:
        """What the handshake says of us."""
        return {
            "boot": self._boot_id,
            "processes": self._processes,
            "path": self._meetings.path(),
            "secret": secret,
        }

    def is_shared_with(self, theirs: Any) -> bool:
        """Whether a peer's offer says that it runs on our host."""
        return _is_offer(theirs) and theirs["boot"] == self._boot_id

    def names_processes_of(self, theirs: Any) -> bool:
        """Whether a process id means the same to a peer, by its offer: containers of
        one host have their own as a rule."""
        return (
            self.is_shared_with(theirs)
            and self._processes is not None
            and theirs.get("processes") == self._processes
        )

    def meet(self, stream: Stream, ours: Any, theirs: Any, *, is_maker: bool) -> None:
        """Expect the peer of a connection, as both have offered; `is_maker` when the
        connection was made from here, and not accepted."""
        if not self.is_shared_with(theirs):
            return
        made, accepted = (
            (ours["secret"], theirs["secret"])
            if is_maker
            else (theirs["secret"], ours["secret"])
        )
        for_acceptor = bytes(a ^ b for a, b in zip(made, accepted, strict=True))
        for_maker = bytes([for_acceptor[0] ^ 1]) + for_acceptor[1:]
        own, peers = (
            (for_maker, for_acceptor) if is_maker else (for_acceptor, for_maker)
        )
        try:
            stream.meet(self._meetings, own, theirs["path"], peers)
        except _native.SpillwayError as error:
            if stream.is_open():  # else whoever reads or writes next is told
                _say_once(SLOWER, error)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """The loop needs no place any more: nobody has been told of it who may still
        come."""
        loop.remove_reader(self._meetings.fileno())

    def _let_in(self) -> None:
        reason = self._meetings.on_readable()
        if reason is not None:
            _say_once(SLOWER, reason)


def place_of(loop: asyncio.AbstractEventLoop) -> MeetingPlace | None:
    """The meeting place of a loop, None where there is to be none."""
    bridge = bridge_of(loop)
    if switches.is_off(switches.SAME_HOST) or not bridge.given:
        return None
    if bridge not in _places:
        try:
            place = MeetingPlace(loop)
            bridge.at_release(place.leave)
        except OSError as error:
            _say_once(SLOWER, error)
            in_force.same_host_off = str(error)
            place = None
        with _lock:
            _places[bridge] = place
    return _places[bridge]


def why_off() -> str | None:
    """Why there is to be none in this process, None when there is."""
    if switches.is_off(switches.SAME_HOST):
        return f"{switches.VARIABLE}={switches.SAME_HOST}"
    try:
        threads = configured_threads()
    except ValueError as error:
        return str(error)
    return None if threads is not None else f"{THREADS_KEY} is 0"


def _meetings_in(parent: str) -> _native.Meetings:
    """Raises OSError where there can be none."""
    fallback = "/tmp"
    # A directory of the user's may be too deep for a socket's path, or be gone; and the
    # handshake carries text.
    if parent != fallback and _is_text(parent):
        try:
            return _native.Meetings(parent)
        except OSError:
            logger.debug("no place to meet in %s", parent, exc_info=True)
    return _native.Meetings(fallback)


def _process_ids() -> int | None:
    """What tells the process ids that we see from those of other containers."""
    try:
        return os.stat(PROCESS_IDS_PATH).st_ino
    except OSError:
        return None


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _remove(path: str, pid: int) -> None:
    """What a meeting place made, unless it is a parent process's."""
    if os.getpid() != pid:
        return
    with contextlib.suppress(OSError):  # whoever tidied up first left nothing
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def _is_offer(value: Any) -> bool:
    """Whether a peer's offer is one; a peer may say anything."""
    if not isinstance(value, dict):
        return False
    path, secret = value.get("path"), value.get("secret")
    return (
        isinstance(value.get("boot"), str)
        and isinstance(path, str)
        and "\0" not in path
        and _is_text(path)
        and len(path.encode()) <= LONGEST_PATH_BYTES
        and isinstance(secret, bytes)
        and len(secret) == SECRET_BYTES
    )
