"""What one worker has on disk, and another of the same host takes: its file, not bytes.

Files of a store have no names and are never written to again where something stands. So
who takes the descriptor by which another process has one has what is in it, for as long
as he likes, and neither reads nor writes a byte. A value then comes as its header,
which says in a key that Dask does not know where its frames are; who gave it keeps them
until the other has answered. Who says in the handshake that he takes files is one who
may: Linux lets a process take another's as it lets it look into its memory.
"""

import errno
import functools
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from distributed.protocol.serialize import Serialized
from distributed.utils import nbytes

from spillway import _native

KEY = "spillway-file"
"""Of a header: whose file the frames are in, and where."""

_NAME = KEY.encode()
_LONGEST_HEADER = 1 << 20

LEAST_BYTES = 1 << 20
"""Values of fewer bytes are sent: a file is kept for all of a range, and a descriptor
with it."""

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"

Frame = bytes | memoryview | _native.FileRange

_REFUSED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
"""The system lets us have no file of anybody's."""

_refused: str | None = None
_refused_by: dict[str, str] = {}
"""By the address of a peer of which one could not be had, for whatever reason."""
_refusals = 0


class CannotTake(Exception):
    """A peer said where a value is, and we cannot have it from there."""


def why_not(peer: str = "") -> str | None:
    """Why this process takes no files of others, or of the peer at an address; None if
    it does."""
    why = _refused or _refused_by.get(peer)
    if why is not None:
        return why
    try:
        with open(_YAMA, encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:  # a system without Yama
        scope = "0"
    return _refused_even_ours() if scope == "0" else f"{_YAMA} is {scope}"


@functools.cache
def _refused_even_ours() -> str | None:
    """Why the system lets us take no file even of our own, as in some containers; None
    if it does."""
    try:
        with tempfile.TemporaryFile() as file:
            found = os.fstat(file.fileno())
            one = os.getpid(), file.fileno(), found.st_dev, found.st_ino
            _native.take_ranges(*one, [])
    except OSError as error:
        return str(error)
    return None


def refuse(why: BaseException, peer: str) -> None:
    """Take none of a peer from now on, and say so in later handshakes: it has ended, or
    there are too many open files here. Or none of anybody, if the system refused."""
    global _refused, _refusals
    if isinstance(why.__cause__, OSError) and why.__cause__.errno in _REFUSED:
        _refused = str(why)
    else:
        _refused_by[peer] = str(why)
    _refusals += 1


def refusals() -> int:
    """How often one could not be had."""
    return _refusals


def offer(header: dict[str, Any], frames: list[Frame]) -> Serialized | None:
    """A value that is in a file, as it is given away; None if not all of it is in one,
    or it is small. The frames are to be kept until it has been taken."""
    places = [_place(frame) for frame in frames]
    files = {place[0] for place in places if place is not None}
    size = sum(place[2] for place in places if place is not None)
    if len(files) != 1 or None in files or size < LEAST_BYTES:
        return None
    (descriptor,) = files
    found = os.fstat(descriptor)
    said = {
        "process": os.getpid(),
        "descriptor": descriptor,
        "device": found.st_dev,
        "inode": found.st_ino,
        "places": tuple(place and place[1:] for place in places),
    }
    return Serialized({**header, KEY: said}, [])


def _place(frame: Frame) -> tuple[int | None, int, int] | None:
    """Descriptor, offset and size; None of what has no bytes, no descriptor of what is
    in memory."""
    if type(frame) is _native.FileRange:
        return frame.place
    size = memoryview(frame).nbytes
    return (None, 0, size) if size else None


def are_named(frames: list[Frame]) -> bool:
    """Whether a message may have values in it that are given away."""
    return any(
        type(frame) is not _native.FileRange
        and nbytes(frame) <= _LONGEST_HEADER
        and _NAME in bytes(frame)
        for frame in frames[1:]
    )


def take(header: dict[str, Any]) -> list[Frame]:
    """The frames of one value, as `take_all`."""
    return take_all([header])[0]


def take_all(headers: list[dict[str, Any]]) -> list[list[Frame]]:
    """The frames of values that were given away, which their headers no longer say.
    However many values are in a file, one descriptor of it is taken.

    Raises
    ------
    CannotTake
        When there is no such file, or the system does not let us have it.
    """
    try:
        return _take_all([header.pop(KEY) for header in headers])
    except (OSError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise CannotTake(f"a value in a file of another process: {error}") from error


def _take_all(said: list[dict[str, Any]]) -> list[list[Frame]]:
    files: dict[tuple[Any, ...], list[Any]] = {}
    for one in said:
        places = [place for place in one["places"] if place is not None]
        files.setdefault(_file_of(one), []).extend(places)
    ranges: dict[tuple[Any, ...], Iterator[Frame]] = {
        file: iter(_native.take_ranges(*file, places)) for file, places in files.items()
    }
    return [
        [
            memoryview(bytearray()) if place is None else next(ranges[_file_of(one)])
            for place in one["places"]
        ]
        for one in said
    ]


def _file_of(said: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(said[name] for name in ("process", "descriptor", "device", "inode"))
