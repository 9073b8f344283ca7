"""A second reader and writer of docs/wire_format.md, which shares no code with the
library: what the two agree on is the format, not one program's idea of it.

It knows bytes, frames and which frames make up a buffer. It is slow, reads whole byte
strings and stops at the first thing that the format does not allow.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

ALIGNMENT = 64
OWN_REGION_FROM_BYTES = 4096
SHARED_REGION_BYTES = 65536
MARKS = ("__Serialized__", "__Pickled__")


class Malformed(ValueError):
    """The bytes are not what the format allows."""


@dataclass(frozen=True)
class Message:
    frames: list[bytes]
    first_frames: int
    """How many of the frames are in the first segment."""


@dataclass(frozen=True)
class Value:
    """What one mark in frame 0 stands for."""

    mark: str
    index: int
    """The frame that holds the sub-header."""
    header: dict[str, Any]
    buffers: list[range]
    """For each logical buffer the frames that are its shards."""

    @property
    def end(self) -> int:
        return self.index + 1 + self.header["num-sub-frames"]

    def compressed(self, buffer: range) -> bool:
        codecs = self.header.get("compression") or ()
        first = self.index + 1
        return any(codecs[buffer.start - first : buffer.stop - first])


def _unsigned(data: bytes, offset: int) -> int:
    if offset + 8 > len(data):
        raise Malformed(f"{len(data)} bytes end inside the number at {offset}")
    return struct.unpack_from("<Q", data, offset)[0]


def read_one(data: bytes) -> tuple[Message, bytes]:
    """The message at the start of some bytes, and the bytes after it."""
    first, count = _unsigned(data, 0), _unsigned(data, 8)
    if count == 0:
        raise Malformed("a message without frames")
    lengths = [_unsigned(data, 16 + 8 * i) for i in range(count)]
    first_end = 8 + first
    start = 16 + 8 * count
    boundaries = [start]
    frames = []
    for number, length in enumerate(lengths):
        frame = data[start : start + length]
        if len(frame) < length:
            raise Malformed(f"frame {number} has {len(frame)} of {length} bytes")
        frames.append(bytes(frame))
        start += length
        boundaries.append(start)
    if first_end not in boundaries:
        raise Malformed(f"the first segment ends at {first_end}, inside a frame")
    # Empty frames share a boundary; a reader takes them with what is before them.
    first_frames = max(i for i, end in enumerate(boundaries) if end == first_end)
    return Message(frames, first_frames), data[start:]


def read_all(data: bytes) -> list[Message]:
    """The messages that some bytes are made of, to the last byte."""
    messages = []
    while data:
        message, data = read_one(data)
        messages.append(message)
    return messages


def write(frames: Sequence[Any], first_frames: int | None = None) -> bytes:
    """The bytes of a message; by default all of it is in the first segment."""
    parts = [bytes(frame) for frame in frames]
    lengths = [len(part) for part in parts]
    first = 8 + 8 * len(parts) + sum(lengths[:first_frames])
    prelude = struct.pack(f"<{2 + len(parts)}Q", first, len(parts), *lengths)
    return b"".join([prelude, *parts])


def write_plain(message: Any) -> bytes:
    """The bytes of a message that msgpack can hold by itself."""
    return write([msgpack.packb(message, use_bin_type=True)])


def boundaries(frames: Sequence[bytes]) -> list[int]:
    """Where in the bytes of a message its numbers and frames begin and end."""
    ends = [8 * i for i in range(len(frames) + 3)]
    for frame in frames:
        ends.append(ends[-1] + len(frame))
    return sorted(set(ends))


def cuts(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Some bytes in two pieces, in every way."""
    for at in range(1, len(data)):
        yield data[:at], data[at:]


def content(frames: Sequence[Any]) -> Any:
    """Frame 0 as it is, marks and all."""
    return msgpack.unpackb(frames[0], strict_map_key=False, use_list=False)


def _marks(content: Any) -> Iterator[tuple[str, int]]:
    if isinstance(content, dict):
        for mark in MARKS:
            if type(content.get(mark)) is int:
                yield mark, content[mark]
        for key, value in content.items():
            yield from _marks(key)
            yield from _marks(value)
    elif isinstance(content, tuple):
        for item in content:
            yield from _marks(item)


def values(frames: Sequence[Any]) -> list[Value]:
    """The values of a message. They must follow each other without gaps."""
    found = []
    expected = 1
    for mark, index in sorted(_marks(content(frames)), key=lambda found: found[1]):
        if index != expected:
            raise Malformed(f"a value at frame {index}, expected at {expected}")
        if index >= len(frames):
            raise Malformed(f"a value at frame {index} of {len(frames)}")
        header = msgpack.unpackb(frames[index], strict_map_key=False)
        value = Value(mark, index, header, _buffers(index, header))
        expected = value.end
        found.append(value)
    if expected != len(frames):
        raise Malformed(f"values end at frame {expected} of {len(frames)}")
    return found


def _buffers(index: int, header: dict[str, Any]) -> list[range]:
    count = header["num-sub-frames"]
    shards = header.get("split-num-sub-frames", [1] * count)
    offsets = header.get("split-offsets", range(count))
    starts = [sum(shards[:i]) for i in range(len(shards))]
    if list(offsets) != starts or sum(shards) != count:
        raise Malformed(f"shards {shards} at {list(offsets)} of {count} sub-frames")
    first = index + 1
    return [
        range(first + start, first + start + number)
        for start, number in zip(starts, shards, strict=True)
    ]


def first_frames_expected(frames: Sequence[bytes]) -> int:
    """How many frames of a message without compression our writer puts into the first
    segment: what decoding consumes, then the first buffer, if what is before it is
    small beside it."""
    kept = [
        buffer
        for value in values(frames)
        for number, buffer in enumerate(value.buffers)
        if number not in set(_consumed(value.header))
    ]
    if not kept:
        return len(frames)
    before = sum(len(frame) for frame in frames[: kept[0].start])
    size = sum(len(frames[i]) for i in kept[0])
    return kept[0].start if before > max(2048, size * 0.05) else kept[0].stop


def _consumed(header: dict[str, Any], first: int = 0) -> Iterator[int]:
    """The buffers of a value that are pickle streams: decoding reads and drops them,
    while it keeps what they refer to."""
    if header.get("is-collection"):
        parts = zip(header["sub-headers"], header["frame-lengths"], strict=True)
        for sub_header, length in parts:
            yield from _consumed(sub_header, first)
            first += length
    elif header.get("serializer") == "pickle":
        yield first


def address(view: memoryview) -> int:
    """Where a writeable view's first byte lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B")))


def check_placement(frames: Sequence[memoryview | bytes]) -> int:
    """Check where received frames lie, and how many buffers of several shards they
    have: each buffer on a boundary, its shards side by side in one region, a large one
    alone in it, small ones in a small one."""
    sharded = 0
    regions: dict[int, list[int]] = {}
    for buffer in _placed(frames):
        shards = [frames[i] for i in buffer if len(frames[i])]
        if not shards:
            continue
        region = shards[0].obj
        expected = address(shards[0])
        assert expected % ALIGNMENT == 0, f"frame {buffer.start} at {expected:#x}"
        for shard in shards:
            assert address(shard) == expected, f"frames {buffer} are apart"
            assert shard.obj is region, f"frames {buffer} are in several regions"
            expected += shard.nbytes
        sizes = regions.setdefault(id(region), [])
        sizes.append(sum(shard.nbytes for shard in shards))
        if max(sizes) >= OWN_REGION_FROM_BYTES:
            assert len(sizes) == 1, f"buffers of {sizes} bytes share a region"
        else:
            assert memoryview(region).nbytes <= SHARED_REGION_BYTES
        sharded += len(shards) > 1
    return sharded


def _placed(frames: Sequence[Any]) -> Iterable[range]:
    for value in values(frames):
        for buffer in value.buffers:
            if value.compressed(buffer):
                yield from (range(i, i + 1) for i in buffer)
            else:
                yield buffer
