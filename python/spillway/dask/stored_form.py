"""From a worker's values to what the store writes, and back.

What is stored is what is sent: the header of Dask's wire format, and frames. The header
stays bytes, of which each use makes a dict of its own, since Dask's functions change
the one that they are given.
"""

import threading
from typing import Any

from distributed.metrics import context_meter
from distributed.utils import nbytes

from spillway.dask import value_sizes
from spillway.dask.decode import value_of
from spillway.dask.encode import pack_header
from spillway.dask.value_encoder import Frame, encode

NOTHING = object()
"""What a store has in the place of None, by which it says that a value is not at hand.
"""


class _Latest(threading.local):
    bytes: int | None = None


_latest = _Latest()


def pack(value: Any) -> list[Frame]:
    """The header of a value, as bytes, and its frames.

    Raises
    ------
    TypeError
        When no serialiser takes it, with what the last of them met as its cause.
    """
    with context_meter.meter("serialize"):
        value = None if value is NOTHING else value
        header, parts = encode(value, on_error="raise")
        value_sizes.note(header, value)
        frames = _as_shards(header, parts)
        packed = pack_header(header)
    _latest.bytes = len(packed) + sum(map(nbytes, frames))
    return [packed, *frames]


def unpack(frames: list[Frame]) -> Any:
    """The value of which `pack` made them."""
    _latest.bytes = sum(map(nbytes, frames))
    value = value_of(frames)
    return NOTHING if value is None else value


def take_bytes() -> int | None:
    """How many bytes this thread packed or unpacked last, None if it did neither since
    it was asked."""
    size, _latest.bytes = _latest.bytes, None
    return size


def _as_shards(header: dict[str, Any], parts: list[Any]) -> list[Frame]:
    """The frames, flat. One that is in parts becomes shards of one buffer, as Dask has
    it for what it splits, so that nothing is copied to join them."""
    if not any(type(part) is list for part in parts):
        return parts
    frames: list[Frame] = []
    counts, offsets = [], []
    for part in parts:
        shards = part if type(part) is list else [part]
        offsets.append(len(frames))
        counts.append(len(shards))
        frames += shards
    header["split-num-sub-frames"] = tuple(counts)
    header["split-offsets"] = tuple(offsets)
    return frames
