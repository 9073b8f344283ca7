"""Values in a store of the library's, and what may happen to them on disk."""

import contextlib
import os
import tempfile
from pathlib import Path

import msgpack

from spillway import _native

LIVE, PACKED, ON_DISK, LOST = 1, 2, 4, 8


class Unpacked(Exception):
    """What was to stay as it is was unpacked."""


def refuse(frames):
    raise Unpacked


def as_header(header):
    """The first frame of a value, as a worker's store has it."""
    return msgpack.packb(header)


@contextlib.contextmanager
def store(pack=list, unpack=refuse, **options):
    """A store with a directory, whose values are lists of frames."""
    with tempfile.TemporaryDirectory(prefix="spw", dir="/tmp") as directory:
        made = _native.Store(pack, unpack, [(directory, 0)], **options)
        try:
            yield made
        finally:
            made.close()


def segments():
    """The descriptors of this process that are files without a name."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        with contextlib.suppress(OSError):
            if Path(path).is_file() and os.readlink(path).endswith(" (deleted)"):
                found.append(path)
    return found


def spoil(content):
    """Change one byte of what is on disk, wherever it begins with some content."""
    spoilt = 0
    for path in segments():
        with open(path, "r+b") as file:
            at = file.read().find(content)
            if at >= 0:
                file.seek(at)
                file.write(bytes([content[0] ^ 1]))
                spoilt += 1
    assert spoilt
