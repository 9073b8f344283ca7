"""From messages to frames: plain ones directly, the others as Dask offloads them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import msgpack
from distributed import protocol
from distributed.comm import utils as comm_utils
from distributed.protocol.serialize import (
    Pickled,
    Serialize,
    Serialized,
    ToPickle,
    msgpack_encode_default,
)
from distributed.sizeof import safe_sizeof
from distributed.utils import offload

# Two Spillway peers cut their system calls themselves, so a buffer stays whole.
NEVER_SPLIT = sys.maxsize

# A packer keeps its buffer; above this it is let go with the message.
PACKER_KEEPS_BYTES = 1 << 20

_OPAQUE = (Serialize, Serialized, ToPickle, Pickled)


def pack_header(header: dict[str, Any]) -> bytes:
    """A value's header, as its frames begin with it; `decode.header_of` undoes it."""
    return msgpack.packb(header, default=msgpack_encode_default, use_bin_type=True)


class _NotPlain(Exception):
    """The message holds something that msgpack cannot pack."""


class _PlainPacker(threading.local):
    """Packs messages of plain values, and measures what is not plain on the way.

    Dask first walks a message to learn its size and then packs it with a new packer,
    whose buffer alone costs more than a small message. Here packing is the walk.
    """

    def __init__(self) -> None:
        self._packer: msgpack.Packer | None = None
        self._opaque_bytes = 0
        self._is_opaque = False

    def _default(self, obj: Any) -> Any:
        if isinstance(obj, _OPAQUE):
            self._is_opaque = True
            size = safe_sizeof(obj, default_size=-1)
            self._opaque_bytes = sys.maxsize if size < 0 else self._opaque_bytes + size
            return None
        encoded = msgpack_encode_default(obj)
        if encoded is obj:
            raise _NotPlain
        return encoded

    def pack(self, msg: Any) -> tuple[bytes | None, int]:
        """The packed message, or None with an estimate of its size in bytes.

        Raises whatever packing raises; the caller leaves such messages to Dask.
        """
        # The size of an opaque value can run any code, also some that packs a message,
        # so neither the packer nor what it found is left for that to use.
        packer, self._packer = self._packer, None
        if packer is None:
            packer = msgpack.Packer(default=self._default, use_bin_type=True)
        outer = self._is_opaque, self._opaque_bytes
        self._is_opaque, self._opaque_bytes = False, 0
        try:
            packed = packer.pack(msg)
            is_opaque, opaque_bytes = self._is_opaque, self._opaque_bytes
        finally:
            self._is_opaque, self._opaque_bytes = outer
        if len(packed) <= PACKER_KEEPS_BYTES:
            self._packer = packer
        if is_opaque:
            return None, len(packed) + opaque_bytes
        return packed, len(packed)


_plain_packer = _PlainPacker()


def encode_plain(msg: Any) -> tuple[bytes | None, int]:
    """The single frame of a plain message, or None and a size estimate in bytes.

    The estimate is -1 when the message must be left to Dask whole: it holds something
    that only pickle can take, or that cannot be packed at all, and Dask's encoder has
    the fall-backs and the error reports for that.
    """
    try:
        return _plain_packer.pack(msg)
    except Exception:  # Dask's encoder meets the same one, and reports it
        return None, -1


async def encode(
    msg: Any,
    size: int,
    allow_offload: bool,
    dumps: Callable[..., list[bytes | memoryview]] | None = None,
    **kwargs: Any,
) -> list[bytes | memoryview]:
    """Frames of any message, off the loop when they are large, as Dask has it.

    Parameters
    ----------
    size
        As `encode_plain` estimated it.
    dumps
        The encoder; None for Dask's.
    kwargs
        Passed to the encoder, which takes what ``distributed.protocol.dumps`` does.
    """
    if dumps is None:
        if size < 0:
            return await comm_utils.to_frames(
                msg, allow_offload=allow_offload, **kwargs
            )
        dumps = protocol.dumps

    threshold = comm_utils.OFFLOAD_THRESHOLD
    if allow_offload and threshold and (size > threshold or size < 0):
        return await offload(dumps, msg, **kwargs)
    return dumps(msg, **kwargs)
