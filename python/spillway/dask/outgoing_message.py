"""A message on its way to frames, on the loop as far as that is cheap, and in threads
where it is not.

The message is packed once. Its values are serialised as the packer meets them, as long
as they are expected to cost little; the first that is not has packing begin again in a
thread, which takes over what is serialised already. Once all frames are there, and with
them their sizes, those that are to be compressed are, in threads if they are large.

What Dask's encoder makes of a message this makes of it, frame by frame, but for the
values where our serialiser is in force. A message that msgpack or a serialiser refuses
goes to Dask's encoder whole, which has the fall-backs and the error reports for it;
with our serialiser it is packed again with its fall-back, which is to pickle what
msgpack does not know.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import msgpack
from distributed import protocol
from distributed.metrics import context_meter
from distributed.protocol import pickle
from distributed.protocol.compression import compressions, maybe_compress
from distributed.protocol.serialize import (
    Pickled,
    Serialize,
    Serialized,
    ToPickle,
    msgpack_encode_default,
    serialize_and_split,
)
from distributed.protocol.utils import frame_split_size
from distributed.utils import ensure_memoryview, nbytes

from spillway.dask import encode_cost, value_sizes
from spillway.dask.encode import PACKER_KEEPS_BYTES, pack_header
from spillway.dask.offload_setting import NEVER
from spillway.dask.offload_threads import MOST_THREADS, in_thread

Frame = bytes | memoryview

EncodeValue = Callable[..., tuple[dict[str, Any], list[Frame | list[Frame]]]]
"""As `value_encoder.encode`."""

_OPAQUE = (Serialize, Serialized, ToPickle, Pickled)
_SERIALISED = (Serialized, Pickled)
_PICKLED = (ToPickle, Pickled)

logger = logging.getLogger("distributed.protocol.core")
"""Dask's, where people look for what cannot be serialised."""

SMALLEST_COMPRESSED = 10_000
"""Dask's: smaller frames are not compressed."""


class _CostsTooMuch(Exception):
    """To go on here would take the loop's turn."""


class _Packer(threading.local):
    """Packs messages with a packer that it keeps from one to the next."""

    def __init__(self) -> None:
        self._packer: msgpack.Packer | None = None
        self._message: OutgoingMessage | None = None

    def _default(self, obj: Any) -> Any:
        if isinstance(obj, _OPAQUE):
            return self._message.place(obj)
        encoded = msgpack_encode_default(obj)
        if encoded is obj:
            return self._message.place_unknown(obj)
        return encoded

    def pack(self, message: "OutgoingMessage", content: Any) -> bytes:
        # Serialising runs any code, also some that packs a message, so neither the
        # packer nor the message is left for that to use.
        packer, self._packer = self._packer, None
        if packer is None:
            packer = msgpack.Packer(default=self._default, use_bin_type=True)
        outer, self._message = self._message, message
        try:
            packed = packer.pack(content)
        finally:
            self._message = outer
        if len(packed) <= PACKER_KEEPS_BYTES:
            self._packer = packer
        return packed


_packer = _Packer()


class _Value:
    """A value's header and frames. What came serialised is not compressed."""

    __slots__ = ("codecs", "frames", "header", "is_new")

    def __init__(self, header: dict[str, Any], frames: list[Frame], is_new: bool):
        self.header = header
        self.frames = frames
        self.is_new = is_new
        self.codecs = list(header.get("compression") or (None,) * len(frames))

    def packed(self) -> list[Frame]:
        """Its frames in the message: the header, and what the header describes."""
        header = dict(self.header)
        if self.is_new:
            header["compression"] = tuple(self.codecs)
        header["num-sub-frames"] = len(self.frames)
        return [pack_header(header), *self.frames]


class OutgoingMessage:
    """One message of a comm.

    Parameters
    ----------
    content
        The message.
    offload_bytes
        From what expected cost on work leaves the loop; NEVER for not at all.
    make_options
        Gives the arguments of ``distributed.protocol.dumps``, all of them. Not called
        for a message without values.
    encode_value
        What encodes its values; None for Dask's own.
    """

    __slots__ = (
        "_content",
        "_encode_value",
        "_expected",
        "_head",
        "_limit",
        "_make_options",
        "_met",
        "_next_frame",
        "_options",
        "_pickles_unknown",
        "_spendable",
        "_values",
    )

    def __init__(
        self,
        content: Any,
        offload_bytes: int,
        make_options: Callable[[], dict[str, Any]],
        encode_value: EncodeValue | None = None,
    ) -> None:
        self._content = content
        self._limit = math.inf if offload_bytes == NEVER else offload_bytes
        self._make_options = make_options
        self._encode_value = encode_value
        self._pickles_unknown = False
        self._options: dict[str, Any] | None = None
        self._values: list[_Value] = []

    @property
    def is_plain(self) -> bool:
        """Whether packing was all that it took."""
        return self._options is None

    def encode_here(self) -> list[Frame] | None:
        """Its frames, or None when `encode_elsewhere` has to be awaited."""
        try:
            self._pack(self._limit)
        except _CostsTooMuch:
            return None
        except Exception:
            # It is met once more there. How long it takes cannot be known.
            self._options = self._make_options()
            return self._encode_refused() if self._limit == math.inf else None
        if not self._values:
            return [self._head]
        if sum(map(_frame_bytes, self._compressible())) >= self._limit:
            return None
        return self._finish()

    async def encode_elsewhere(self) -> list[Frame]:
        """Its frames, made in threads."""
        frames = await in_thread(self._pack_and_finish)
        if frames is not None:
            return frames
        jobs = self._compressible()
        shares = (jobs[first::MOST_THREADS] for first in range(MOST_THREADS))
        await asyncio.gather(
            *(in_thread(self._compress, share) for share in shares if share)
        )
        return await in_thread(self._lay_out)

    def place(self, value: Any) -> dict[str, int]:
        """What stands for a value in the packed message. Called by the packer."""
        if self._met == len(self._values):
            self._values.append(self._serialise(value))
        at = self._next_frame
        self._next_frame += 1 + len(self._values[self._met].frames)
        self._met += 1
        return {"__Pickled__" if isinstance(value, _PICKLED) else "__Serialized__": at}

    def place_unknown(self, obj: Any) -> Any:
        """What stands for something that msgpack does not know."""
        if not self._pickles_unknown:
            raise TypeError(f"msgpack cannot take {type(obj)}")
        from distributed.protocol.serialize import _is_msgpack_serializable

        return obj if _is_msgpack_serializable(obj) else self.place(ToPickle(obj))

    def _pack(self, spendable: float) -> None:
        self._spendable, self._expected = spendable, 0.0
        self._met, self._next_frame = 0, 1
        self._head = _packer.pack(self, self._content)

    def _pack_and_finish(self) -> list[Frame] | None:
        """All that a single thread has to do; None when compressing is for several."""
        try:
            self._pack(math.inf)
        except Exception:
            return self._encode_refused()
        if sum(map(_frame_bytes, self._compressible())) >= self._limit:
            return None
        return self._finish()

    def _encode_refused(self) -> list[Frame]:
        if self._encode_value is None:
            return protocol.dumps(self._content, **self._options)
        self._pickles_unknown = True
        try:
            self._pack(math.inf)
        except Exception:
            logger.critical("Failed to Serialize", exc_info=True)  # as Dask says it
            raise
        return self._finish()

    def _serialise(self, value: Any) -> _Value:
        if self._options is None:
            self._options = self._make_options()
        if self._limit == math.inf:
            return self._serialised(value)
        kind = encode_cost.kind_of(value)
        if self._spendable < math.inf:
            # One byte at least, so that ALWAYS is always.
            self._expected += max(1, encode_cost.expected_bytes(kind))
            if self._expected >= self._spendable:
                raise _CostsTooMuch
        if kind is None:
            return self._serialised(value)
        start = encode_cost.now_s()
        serialised = self._serialised(value)
        encode_cost.learn(kind, encode_cost.now_s() - start)
        return serialised

    def _serialised(self, value: Any) -> _Value:
        if isinstance(value, _SERIALISED):
            return _Value(value.header, value.frames, is_new=False)
        if isinstance(value, ToPickle):
            return _Value(*_pickled(value.data), is_new=True)
        options = self._options
        how = {name: options[name] for name in ("serializers", "on_error", "context")}
        size = options["frame_split_size"]
        if self._encode_value is None:
            return _Value(*serialize_and_split(value, size=size, **how), is_new=True)
        with context_meter.meter("serialize"):  # as Dask does
            header, frames = self._encode_value(value, **how)
            if type(value.data) not in _OPAQUE and value_sizes.are_wanted(
                self._content
            ):
                value_sizes.note(header, value.data, value_sizes.known(value))
            if "compression" in header:  # of what a serialiser of Dask's compressed
                value = Serialized(dict(header), frames)
                return _Value(*serialize_and_split(value, size=size), is_new=True)
            return _Value(*_split(header, frames, size), is_new=True)

    def _compressible(self) -> list[tuple[_Value, int]]:
        """The frames that are to be compressed if that makes them smaller."""
        if not compressions[self._codec()].name:
            return []
        return [
            (value, index)
            for value in self._values
            if value.is_new
            for index, codec in enumerate(value.codecs)
            if codec is None and nbytes(value.frames[index]) >= SMALLEST_COMPRESSED
        ]

    def _codec(self) -> Any:
        return (self._options.get("context") or {}).get("compression", "auto")

    def _compress(self, jobs: list[tuple[_Value, int]]) -> None:
        codec = self._codec()
        with context_meter.meter("compress"):  # as Dask does for each frame
            for value, index in jobs:
                value.codecs[index], value.frames[index] = maybe_compress(
                    value.frames[index], compression=codec
                )

    def _finish(self) -> list[Frame]:
        self._compress(self._compressible())
        return self._lay_out()

    def _lay_out(self) -> list[Frame]:
        frames = [self._head]
        for value in self._values:
            frames.extend(value.packed())
        return frames


def _split(
    header: dict[str, Any], frames: list[Frame | list[Frame]], limit: int | None
) -> tuple[dict[str, Any], list[Frame]]:
    """As Dask splits frames, and those that come in parts are split already."""
    split: list[Frame] = []
    counts, offsets = [], []
    for frame in frames:
        offsets.append(len(split))
        for part in frame if type(frame) is list else (frame,):
            split.extend(frame_split_size(part, limit))
        counts.append(len(split) - offsets[-1])
    header = {
        **header,
        "split-num-sub-frames": tuple(counts),
        "split-offsets": tuple(offsets),
        "compression": (None,) * len(split),
    }
    return header, split


def dumps(
    content: Any, encode_value: EncodeValue | None = None, **options: Any
) -> list[Frame]:
    """The frames of a message, made here and now.

    Parameters
    ----------
    encode_value
        What encodes its values; None for Dask's own.
    options
        As for ``distributed.protocol.dumps``, all of them.
    """
    message = OutgoingMessage(content, NEVER, lambda: options, encode_value)
    return message.encode_here()


def _frame_bytes(job: tuple[_Value, int]) -> int:
    value, index = job
    return nbytes(value.frames[index])


def _pickled(data: Any) -> tuple[dict[str, Any], list[Frame]]:
    frames: list[Frame] = []
    packed = pickle.dumps(
        data, buffer_callback=lambda one: frames.append(ensure_memoryview(one))
    )
    return {"pickled-obj": packed}, frames
