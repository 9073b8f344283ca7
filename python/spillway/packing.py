"""Frames in one piece: how many, their lengths, and the frames one after another, as in
a message on the wire (docs/wire_format.md) behind its first number.

What Dask's functions of these names make and take, by bytes instead of by items.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, overload

if TYPE_CHECKING:
    from collections.abc import Buffer

_NUMBER_BYTES = 8


def pack_frames(frames: Iterable[Buffer]) -> bytes:
    """Pack frames, of anything that supports the buffer protocol, into bytes.

    See Also
    --------
    unpack_frames
    """
    views = [memoryview(frame) for frame in frames]
    lengths = [view.nbytes for view in views]
    prelude = struct.pack(f"<{len(views) + 1}Q", len(views), *lengths)
    return b"".join(
        [prelude, *(view if view.c_contiguous else view.tobytes() for view in views)]
    )


@overload
def unpack_frames(
    b: Buffer, *, remainder: bool = False, partial: Literal[False] = False
) -> list[memoryview]: ...


@overload
def unpack_frames(
    b: Buffer, *, remainder: bool = False, partial: Literal[True]
) -> tuple[list[memoryview], list[int]]: ...


def unpack_frames(b, *, remainder=False, partial=False):
    """Find the frames in what `pack_frames` made, without a copy.

    Parameters
    ----------
    b
        Packed frames, contiguous; what follows them is left alone.
    remainder
        Add one more frame: what follows them, which may be empty.
    partial
        Let `b` end after any frame, and return the lengths of those that are missing
        beside those that are there.

    Raises
    ------
    ValueError
        When `b` ends too early, or claims more frames than it can have lengths of.

    See Also
    --------
    pack_frames
    """
    view = _as_bytes(b)
    lengths = _lengths(view)
    frames, missing = [], []
    start, size = _NUMBER_BYTES * (1 + len(lengths)), view.nbytes
    for length in lengths:
        if partial and start == size:
            missing = list(lengths[len(frames) :])
            break
        if length > size - start:
            raise ValueError(
                f"frame {len(frames)} has {length} bytes, of which {size - start} are "
                "there"
            )
        frames.append(view[start : start + length])
        start += length
    if remainder:
        frames.append(view[start:])
    return (frames, missing) if partial else frames


def _as_bytes(b: Buffer) -> memoryview:
    view = memoryview(b)
    if view.format == "B" and view.ndim == 1 and view.contiguous:
        return view
    from spillway import _native

    return _native.merge((view,))


def _lengths(view: memoryview) -> tuple[int, ...]:
    if view.nbytes < _NUMBER_BYTES:
        raise ValueError(f"{view.nbytes} bytes cannot say how many frames there are")
    (count,) = struct.unpack_from("<Q", view)
    if count > (view.nbytes - _NUMBER_BYTES) // _NUMBER_BYTES:
        raise ValueError(
            f"{view.nbytes} bytes cannot say the lengths of {count} frames"
        )
    return struct.unpack_from(f"<{count}Q", view, _NUMBER_BYTES)
