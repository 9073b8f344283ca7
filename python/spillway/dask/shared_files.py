"""What one worker has on disk, and another of the same host takes: its file, not bytes.

Files of a store have no names and are never written to again where something stands. So
who takes the descriptor by which another process has one has what is in it, for as long
as he likes, and neither reads nor writes a byte. A value then comes as its header,
which says in a key that Dask does not know where its frames are; who gave it keeps them
until the other has answered. Who says in the handshake that he takes files is one who
may: Linux lets a process take another's as it lets it look into its memory.
"""

import os
from collections.abc import Iterable
from typing import Any

import msgpack
from distributed.protocol.serialize import Serialized, msgpack_encode_default

from spillway import _native

KEY = "spillway-file"
"""Of a header: whose file the frames are in, and where."""

LEAST_BYTES = 1 << 20
"""Values of fewer bytes are sent: a file is kept for all of a range, and a descriptor
with it."""

_YAMA = "/proc/sys/kernel/yama/ptrace_scope"

Frame = bytes | memoryview | _native.FileRange

_refused: str | None = None


class CannotTake(Exception):
    """A peer said where a value is, and we cannot have it from there."""


def why_not() -> str | None:
    """Why this process takes no files of others, None if it does."""
    if _refused is not None:
        return _refused
    try:
        with open(_YAMA, encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:  # a system without Yama
        return None
    return None if scope == "0" else f"{_YAMA} is {scope}"


def refuse(why: BaseException) -> None:
    """Take none from now on, and say so in later handshakes."""
    global _refused
    _refused = str(why)


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


def take(header: dict[str, Any]) -> list[Frame]:
    """The frames of a value that was given away, which its header no longer says.

    Raises
    ------
    CannotTake
        When there is no such file, or the system does not let us have it.
    """
    said = header.pop(KEY)
    try:
        places = said["places"]
        ranges: Iterable[Frame] = iter(
            _native.take_ranges(
                *(said[name] for name in ("process", "descriptor", "device", "inode")),
                [place for place in places if place is not None],
            )
        )
        return [
            memoryview(bytearray()) if place is None else next(ranges)
            for place in places
        ]
    except (OSError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise CannotTake(f"a value in a file of another process: {error}") from error


def packed(header: dict[str, Any]) -> bytes:
    """A value's header, as frames begin with it."""
    return msgpack.packb(header, default=msgpack_encode_default, use_bin_type=True)
