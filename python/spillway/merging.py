"""Merging frames: what was cut into several buffers becomes one again."""

from collections.abc import Iterable
from typing import Literal

from spillway import _native, debug
from spillway.buffer_protocol import Buffer


def merge(
    frames: Iterable[Buffer], copy: Literal["never", "if_needed"] = "never"
) -> memoryview:
    """Merge frames into one view of all their bytes, without a copy where they lie side
    by side.

    Frames lie side by side when each begins where the one before it ends, in the memory
    of one object: that at the end of the chain of ``memoryview.obj``. What merely
    touches, two arrays whose memory happens to follow each other, is never merged
    without a copy. Frames without bytes are skipped, wherever they are.

    Parameters
    ----------
    frames
        Anything that supports the buffer protocol, of any format and shape. What has
        strides counts in C order, and never lies side by side with anything.
    copy
        ``"never"``: raise when they do not lie side by side. ``"if_needed"``: then copy
        them, once, to memory that begins on a 64-byte boundary.

    Returns
    -------
    memoryview
        Bytes (format ``B``, one dimension), writeable if every frame is, also those
        without bytes. It keeps the frames alive, and exported: they cannot be resized
        or released before it is gone. A copy keeps nothing of them.

    Raises
    ------
    ValueError
        With ``copy="never"``, naming the first frame that does not follow the one
        before it by its index.

    Examples
    --------
    >>> whole = memoryview(bytearray(b"a prefix, and then more"))
    >>> bytes(merge([whole[10:14], b"", whole[14:]]))
    b'and then more'
    """
    if copy not in ("never", "if_needed"):
        raise ValueError(f'copy must be "never" or "if_needed", not {copy!r}')
    frames = tuple(frames)
    try:
        return _native.merge(frames)
    except ValueError:
        if copy == "never":
            raise
        joined = join(frames)
    is_writeable = not any(memoryview(frame).readonly for frame in frames)
    return joined if is_writeable else joined.toreadonly()


def join(frames: Iterable[Buffer]) -> memoryview:
    """Copy frames, one after another and each in C order, to writeable memory that
    begins on a 64-byte boundary. It counts among the copies of `spillway.stats()`."""
    frames = tuple(frames)
    debug.refuse_copy(frames)
    return _native.join(frames)


def buffer_offset(view: Buffer) -> int:
    """How many bytes into the memory of its owner a view begins.

    The owner is the object at the end of the chain of ``memoryview.obj``; what `merge`
    made belongs to the owner of its frames.

    Raises
    ------
    ValueError
        When the view does not say whose memory it has.

    Examples
    --------
    >>> buffer_offset(memoryview(b"0123456789")[4:6])
    4
    """
    return _native.buffer_offset(view)
