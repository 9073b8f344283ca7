"""Values in a store of the library's, and what may happen to them on disk."""

import contextlib
import os
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

import msgpack
from distributed.protocol.serialize import (
    merge_and_deserialize,
    msgpack_decode_default,
    msgpack_encode_default,
)

from spillway import _native
from spillway.dask.value_encoder import serialize

LIVE, PACKED, ON_DISK, LOST = 1, 2, 4, 8

WEIGHT = 1 << 20


class Unpacked(Exception):
    """What was to stay as it is was unpacked."""


def refuse(frames):
    raise Unpacked


@contextlib.contextmanager
def store(pack=list, unpack=refuse, **options):
    """A store with a directory, whose values are lists of frames."""
    with tempfile.TemporaryDirectory(prefix="spw", dir="/tmp") as directory:
        made = _native.Store(pack, unpack, [(directory, 0)], **options)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def spilled():
    """Gives what makes a value the frames of one that is on disk."""
    with mini_store() as made:

        def frames_of(value):
            made["x"] = value
            made.entry("x").spill()
            assert made.entry("x").forms == ON_DISK
            return made.entry("x").frames()

        yield frames_of


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


class MiniStore(MutableMapping):
    """What a worker's data is to who sends it: a mapping, entries, and somebody who is
    told of losses. It does not have None."""

    def __init__(self, native):
        self.native = native
        self.on_lost = self.lost = None
        self.entries = {}

    def entry(self, key):
        return self.entries.get(key)

    def __getitem__(self, key):
        return self.entries[key].get()

    def __setitem__(self, key, value):
        self.entries[key] = self.native.put(repr(key), value, WEIGHT)

    def put_packed(self, key, value):
        self.entries[key] = self.native.put_packed(repr(key), pack(value), WEIGHT)

    def __delitem__(self, key):
        self.entries.pop(key).remove()

    def __iter__(self):
        return iter(self.entries)

    def __len__(self):
        return len(self.entries)


def pack(value):
    header, frames = serialize(value, on_error="raise")
    return [
        msgpack.packb(header, default=msgpack_encode_default, use_bin_type=True),
        *frames,
    ]


def unpack(frames):
    header = msgpack.unpackb(
        frames[0],
        object_hook=msgpack_decode_default,
        use_list=False,
        strict_map_key=False,
    )
    return merge_and_deserialize(header, frames[1:])


@contextlib.contextmanager
def mini_store(**options):
    with store(pack, unpack, **options) as made:
        yield MiniStore(made)
