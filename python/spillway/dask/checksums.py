"""Whether the frames of a value came as they were stored.

What a worker has on disk it sends from there, without looking at it. So the value's
header says what the checksums are, in a key that Dask does not know and hands on, and
who uses the frames first compares: the receiver, whoever relayed them in between. A
peer that is not known to do so gets only what the sender has read through.
"""

from collections.abc import Iterable
from typing import Any

from distributed.utils import nbytes

from spillway import _native

KEY = "spillway-xxh3"
"""Of a header: for each frame its XXH3, or None for one that needs none."""

Frame = bytes | memoryview | _native.FileRange


class Damaged(RuntimeError):
    """The frames are not those that were stored."""


def verify(header: dict[str, Any], frames: list[Frame]) -> None:
    """Compare frames with what their header says, if it does.

    Raises
    ------
    Damaged
        When one differs, or when what the header says is no such thing.
    """
    for place, (known, frame) in enumerate(_known(header, frames)):
        if known is not None and known != _native.checksum(frame):
            raise _damaged(place, frame)


def verify_on_disk(header: dict[str, Any], frames: list[Frame]) -> None:
    """The same of those frames that came to disk here, whose checksums were taken as
    they came: none is read."""
    for place, (known, frame) in enumerate(_known(header, frames)):
        if known is None or type(frame) is not _native.FileRange:
            continue
        if frame.checksum not in (None, known):
            raise _damaged(place, frame)


def _known(
    header: dict[str, Any], frames: list[Frame]
) -> Iterable[tuple[int | None, Frame]]:
    sums = header.get(KEY)
    if sums is None:
        return ()
    if not isinstance(sums, tuple | list) or len(sums) != len(frames):
        raise Damaged(f"its header has no checksums of {len(frames)} frames: {sums!r}")
    return zip(sums, frames, strict=True)


def _damaged(place: int, frame: Frame) -> Damaged:
    return Damaged(
        f"frame {place} of it, of {nbytes(frame)} bytes, is not what was "
        "stored: it was damaged on the sender's disk, or on its way"
    )
