"""What it will cost to decode a message, in bytes that decoding has to go through.

Buffers stay where they were received and cost nothing. What costs is pickles, and what
is compressed or has a checksum. The headers say which frames those are; they are looked
at only in messages that are large enough to matter, and that have few enough values for
the look to be cheap.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from distributed.utils import nbytes

from spillway.dask import checksums
from spillway.dask.decode import header_of

MANY_FRAMES = 500
"""Of a message with more frames than that the whole counts."""

LARGE_HEADER_BYTES = 1 << 16
"""A larger header counts itself, and is not looked into."""


def decode_bytes(frames: list[bytes | memoryview], total_bytes: int) -> int:
    """The cost of decoding all values of a message."""
    if len(frames) > MANY_FRAMES:
        return total_bytes
    cost, at = nbytes(frames[0]), 1
    while at < len(frames):
        packed = frames[at]
        if nbytes(packed) > LARGE_HEADER_BYTES:
            return total_bytes
        header = header_of(packed)
        values = frames[at + 1 : at + 1 + header["num-sub-frames"]]
        cost += nbytes(packed) + _value_bytes(header, values)
        at += 1 + header["num-sub-frames"]
    return cost


def _value_bytes(header: dict[str, Any], frames: list[bytes | memoryview]) -> int:
    sizes = [nbytes(frame) for frame in frames]
    codecs = header.get("compression") or (None,) * len(sizes)
    if checksums.KEY in header:
        return sum(sizes)
    packed = sum(size for codec, size in zip(codecs, sizes, strict=True) if codec)
    if "pickled-obj" in header:
        return packed  # the pickle is in the header
    counts = header.get("split-num-sub-frames") or (1,) * len(sizes)
    return packed + _read_bytes(header, _sums(sizes, counts))


def _sums(sizes: list[int], counts: Sequence[int]) -> list[int]:
    """The sum of the first counts[0] sizes, of the next counts[1], and so on."""
    starts = accumulate(counts, initial=0)
    return [
        sum(sizes[start : start + count])
        for start, count in zip(starts, counts, strict=False)
    ]


def _read_bytes(header: dict[str, Any], buffers: list[int]) -> int:
    """The bytes of a value's buffers, of which the sizes are given, that its
    deserialiser goes through."""
    if "is-collection" in header:
        cost = start = 0
        for inner, length in zip(
            header["sub-headers"], header["frame-lengths"], strict=True
        ):
            cost += _read_bytes(inner, buffers[start : start + length])
            start += length
        return cost
    if header.get("serializer") == "pickle":
        return sum(buffers[:1])
    if header.get("type") == "numpy.ndarray":
        return sum(buffers[:1]) if header["sub-header"].get("pickle") else 0
    return sum(buffers)
