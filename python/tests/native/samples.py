"""Bytes to send: at random, and as a Dask process writes them."""

import random
import struct

import msgpack

KIB, MIB = 1 << 10, 1 << 20


def some_bytes(size):
    return random.Random(size).randbytes(size)


def value(*buffers):
    """A sub-header as Dask sends it, and the shards of the buffers behind it."""
    counts = [len(shards) for shards in buffers]
    header = {
        "serializer": "pickle",
        "num-sub-frames": sum(counts),
        "split-num-sub-frames": counts,
        "split-offsets": [sum(counts[:i]) for i in range(len(counts))],
        "compression": [None] * sum(counts),
    }
    return [msgpack.packb(header), *(shard for shards in buffers for shard in shards)]


def prelude(*lengths):
    table = struct.pack(f"<{len(lengths) + 1}Q", len(lengths), *lengths)
    return struct.pack("<Q", len(table)) + table
