"""Frames in one piece: how many, their lengths, and the frames one after another, as in
a message on the wire (docs/wire_format.md) behind its first number.

What Dask's functions of these names make and take, by bytes instead of by items.
"""

import struct
from collections.abc import Iterable
from typing import Literal, overload

from spillway.buffer_protocol import Buffer

_NUMBER_BYTES = 8


def pack_frames(frames: Iterable[Buffer]) -> bytes:
    """Pack frames into bytes, by a copy.

    Parameters
    ----------
    frames
        Anything that supports the buffer protocol, of any format, shape and strides,
        of which the bytes are taken in C order. There may be none, and they may be
        empty.

    Returns
    -------
    bytes
        8 bytes for the number of frames, 8 for the length of each in bytes, all of them
        unsigned and little-endian; and the frames.

    Raises
    ------
    TypeError
        When one does not support the buffer protocol.

    Examples
    --------
    >>> pack_frames([b"ab", b"", b"c"])[-3:]
    b'abc'

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


def unpack_frames(
    b: Buffer, *, remainder: bool = False, partial: bool = False
) -> list[memoryview] | tuple[list[memoryview], list[int]]:
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

    Returns
    -------
    list of memoryview
        The frames: bytes (format ``B``, one dimension), each a part of `b`, which it
        keeps alive, and writeable if `b` is.
    list of int
        With `partial` only, beside the frames: lengths in bytes.

    Raises
    ------
    ValueError
        When `b` ends too early, or claims more frames than it can have lengths of; or
        is not contiguous.
    TypeError
        When `b` does not support the buffer protocol.

    Examples
    --------
    >>> packed = pack_frames([b"ab", b"c"])
    >>> [bytes(frame) for frame in unpack_frames(packed)]
    [b'ab', b'c']
    >>> frames, missing = unpack_frames(packed[:-1], partial=True)
    >>> missing
    [1]

    See Also
    --------
    pack_frames
    """
    view = _as_bytes(b)
    lengths = _lengths(view)
    frames: list[memoryview] = []
    missing: list[int] = []
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
