"""From frames to messages."""

from __future__ import annotations

import logging
from typing import Any

import msgpack
from distributed.comm import utils as comm_utils
from distributed.metrics import context_meter
from distributed.protocol import pickle
from distributed.protocol.compression import decompress as dask_decompress
from distributed.protocol.serialize import (
    Serialized,
    merge_and_deserialize,
    msgpack_decode_default,
)
from distributed.protocol.utils import msgpack_opts
from distributed.utils import nbytes, offload

from spillway import _native
from spillway.dask import checksums, packed, shared_files, value_sizes
from spillway.dask.encode import pack_header
from spillway.dask.foreign_errors import harmless, is_interrupt, line_of, trace_of
from spillway.dask.undecoded import Undecoded, are_data
from spillway.merging import join

logger = logging.getLogger("distributed.protocol.core")
"""Dask's, where people look for what cannot be deserialised."""

Frame = bytes | memoryview | _native.FileRange

# Every dict that stands for something else has a key that begins so.
_MARK = b"__"


async def decode(
    frames: list[Frame],
    deserialize: bool = True,
    deserializers: Any = None,
    keep_failures: bool = False,
    keep_packed: bool = False,
    takes_files: bool = False,
    *,
    allow_offload: bool = True,
) -> Any:
    """The message that some frames hold, decoded off the loop when they are large."""
    how = deserialize, deserializers, keep_failures, keep_packed, takes_files
    if len(frames) == 1:
        return loads(frames, *how)
    threshold = comm_utils.OFFLOAD_THRESHOLD
    if allow_offload and deserialize and threshold and not keep_packed:
        if sum(map(nbytes, frames)) > threshold:
            return await offload(loads, frames, *how)
    return loads(frames, *how)


def loads(
    frames: list[Frame],
    deserialize: bool = True,
    deserializers: Any = None,
    keep_failures: bool = False,
    keep_packed: bool = False,
    takes_files: bool = False,
) -> Any:
    """Decode as ``distributed.protocol.loads`` does, with these differences: a message
    without marks is unpacked without a hook, and compressed frames are decompressed
    once, into one aligned buffer for all shards of a value's buffer.

    With `keep_failures` an `Undecoded` stands for each value of a reply with data that
    cannot be decoded, and the others are as they would be without that one. Otherwise
    such a value raises: what it raises, or RuntimeError where that is no Exception.
    With `keep_packed` a `Packed` stands for each value of a message with data. Frames
    on disk are read only for a value that is decoded. With `takes_files` frames may be
    in files of the peer's: without, no file is opened for what a header says.
    """
    failures: list[Undecoded] = []
    kept: list[packed.Packed] = []
    given: list[tuple[packed.Packed, dict[str, Any]]] = []
    if deserializers is not None:  # who restricts them is to be told of others now
        keep_packed = False
    head = frames[0]
    if type(head) is bytes and _MARK not in head:
        return msgpack.unpackb(head, use_list=False, **msgpack_opts)

    def from_mark(obj: dict) -> Any:
        offset = obj.get("__Serialized__", 0)
        if offset > 0:
            try:
                header = header_of(frames[offset])
                is_given = takes_files and shared_files.KEY in header
                if keep_packed and is_given:
                    kept.append(packed.class_for(header.get("type"))([], 0))
                    given.append((kept[-1], header))
                    return kept[-1]
                own = (
                    shared_files.take(header)
                    if is_given
                    else frames[offset + 1 : offset + 1 + header["num-sub-frames"]]
                )
                if keep_packed:
                    kept.append(_packed(frames[offset], header, own, keep_failures))
                    return kept[-1]
                return _serialized(header, own, deserialize, deserializers)
            except shared_files.CannotTake:
                raise
            except BaseException as error:  # one of a value's code, such as SystemExit
                if not keep_failures or is_interrupt(error):
                    raise
                failures.append(Undecoded(error))
                return failures[-1]
        offset = obj.get("__Pickled__", 0)
        if offset > 0:
            return _pickled(frames, offset)
        return msgpack_decode_default(obj)

    try:
        message = msgpack.unpackb(
            head, object_hook=from_mark, use_list=False, **msgpack_opts
        )
        if kept and not packed.are_data(kept, message):
            return loads(
                frames,
                deserialize,
                deserializers,
                keep_failures,
                takes_files=takes_files,
            )
        if given:
            _take_files(given)
        if failures and not are_data(failures, message):
            raise failures[0].error
        return message
    except shared_files.CannotTake:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        logger.critical("Failed to deserialize\n%s", trace_of(error) or line_of(error))
        one = harmless(error)
        if one is error:
            raise
        raise one from error


def header_of(frame: Frame) -> dict[str, Any]:
    """The header of a value, packed, as a dict that is the caller's own: Dask's
    functions change the one that they are given."""
    return msgpack.unpackb(
        frame, object_hook=msgpack_decode_default, use_list=False, **msgpack_opts
    )


def _packed(
    head: Frame, header: dict, sub_frames: list[Frame], is_verified: bool
) -> packed.Packed:
    if is_verified:  # as far as nothing need be read; else it is when it is used
        checksums.verify_on_disk(header, sub_frames)
    own = [head, *sub_frames]
    return packed.class_for(header.get("type"))(own, value_sizes.of(header, own))


def _take_files(given: list[tuple[packed.Packed, dict[str, Any]]]) -> None:
    """Have values what stands in files of the peer's, all at once: however many they
    are, it takes as many descriptors as there are files."""
    taken = shared_files.take_all([header for _, header in given])
    for (value, header), own in zip(given, taken, strict=True):
        header["num-sub-frames"] = len(own)
        value.frames = [pack_header(header), *own]
        value.nbytes = value_sizes.of(header, value.frames)


def read(frame: Frame) -> bytes | memoryview:
    """A frame in memory: one that is on disk is read, and looked at."""
    return memoryview(frame) if type(frame) is _native.FileRange else frame


def _in_memory(frames: list[Frame]) -> list[bytes | memoryview]:
    return [read(frame) for frame in frames]


def value_of(frames: list) -> Any:
    """The value of a header, as bytes, and its frames, as `Packed` has them. What its
    code raises that is no Exception becomes RuntimeError."""
    try:
        header, sub_frames = header_of(frames[0]), frames[1:]
        checksums.verify(header, sub_frames)
        header, sub_frames = plain(header, sub_frames)
        return merge_and_deserialize(header, sub_frames)
    except Exception:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise harmless(error) from error


def _serialized(
    header: dict, sub_frames: list[Frame], deserialize: bool, deserializers: Any
) -> Any:
    sub_frames = _in_memory(sub_frames)
    if not deserialize:
        return Serialized(header, sub_frames)
    checksums.verify(header, sub_frames)
    header, sub_frames = plain(header, sub_frames)
    if deserializers is not None and "pickle" not in deserializers:
        if pickles_inside(header):
            raise TypeError(f"it is pickled, and only {deserializers} are allowed")
    return merge_and_deserialize(header, sub_frames, deserializers=deserializers)


def pickles_inside(header: Any) -> bool:
    """Whether Dask's header of a value says that a serialiser pickled an array of
    objects where it was not asked for pickles."""
    if not isinstance(header, dict):
        return False
    inner = (header.get(name) for name in ("sub-header", "data-header", "mask-header"))
    return (
        header.get("pickle") is True
        or any(map(pickles_inside, inner))
        or any(map(pickles_inside, header.get("sub-headers", ())))
    )


def _pickled(frames: list, offset: int) -> Any:
    header = msgpack.unpackb(frames[offset])
    sub_frames = _in_memory(frames[offset + 1 : offset + 1 + header["num-sub-frames"]])
    header, sub_frames = plain(header, sub_frames)
    return pickle.loads(header["pickled-obj"], buffers=sub_frames)


def plain(header: dict, frames: list) -> tuple[dict, list]:
    """A value's header and frames without compression."""
    if "compression" in header:
        with context_meter.meter("decompress"):  # of whatever is compressed, as in Dask
            if any(header["compression"]):
                return _decompress(header, frames)
    return header, frames


def _decompress(header: dict, frames: list) -> tuple[dict, list]:
    """A value's frames without compression, and its header changed to match.

    Each logical buffer becomes one frame. Shards of which some are compressed and some
    are not are left to be joined by the merge that follows.
    """
    codecs = header["compression"]
    counts = header.get("split-num-sub-frames") or [1] * len(frames)
    offsets = header.get("split-offsets") or range(len(frames))
    plain, new_counts, new_offsets = [], [], []
    for count, offset in zip(counts, offsets, strict=True):
        shards = frames[offset : offset + count]
        names = codecs[offset : offset + count]
        new_offsets.append(len(plain))
        if len(set(names)) == 1 and names[0]:
            plain.append(_expand(names[0], shards))
        else:
            plain.extend(
                _expand(name, [shard]) if name else shard
                for name, shard in zip(names, shards, strict=True)
            )
        new_counts.append(len(plain) - new_offsets[-1])
    header = {**header, "compression": (None,) * len(plain)}
    if "split-num-sub-frames" in header:
        header["split-num-sub-frames"] = tuple(new_counts)
        header["split-offsets"] = tuple(new_offsets)
    return header, plain


def _expand(codec: str, shards: list) -> memoryview:
    try:
        return _native.decompress(codec, shards)
    except ValueError:
        # A codec that somebody registered with Dask.
        parts = dask_decompress({"compression": [codec] * len(shards)}, shards)
        return memoryview(parts[0]) if len(parts) == 1 else join(parts)
