"""What a store has of a value, made ready for a peer: not unpickled, and not read if it
can be sent from where it is."""

import time
from dataclasses import dataclass
from typing import Any

import msgpack
from distributed.comm.core import Comm
from distributed.protocol.compression import compressions
from distributed.protocol.serialize import Serialized, msgpack_decode_default
from distributed.protocol.utils import msgpack_opts
from distributed.utils import nbytes

from spillway import _native
from spillway.dask import checksums
from spillway.dask.comm import SpillwayComm
from spillway.dask.decode import pickles_inside, plain

Frame = bytes | memoryview | _native.FileRange

SMALL_BYTES = 1 << 16
"""Less than that is read from a file: to send it from there takes a call of its own."""


@dataclass(frozen=True)
class Recipient:
    """What matters of a peer and of the way to it."""

    takes_files: bool
    """The library sends to it."""
    compares: bool
    """It looks at checksums before it uses what came."""
    codec: str | None
    """It reads what is compressed so."""

    @classmethod
    def of(cls, comm: Comm) -> "Recipient":
        """The other end of a comm."""
        is_ours = isinstance(comm, SpillwayComm)
        return cls(
            takes_files=is_ours and comm.sends_files,
            compares=is_ours and checksums.FEATURE in comm.peer_features,
            codec=compressions[comm.handshake_options.get("compression")].name,
        )

    def costs_memory(self, frames: list[Frame]) -> bool:
        """Whether some of the frames have to be read to be sent to it."""
        return any(
            type(frame) is _native.FileRange and not self.takes(frame)
            for frame in frames
            if nbytes(frame) >= SMALL_BYTES
        )

    def takes(self, frame: _native.FileRange) -> bool:
        """Whether it can be sent to it from its file."""
        return self.takes_files and not frame.is_compressed


class Preparation:
    """One value's way to a peer.

    Parameters
    ----------
    frames
        As `StoreEntry.frames` has them: the header of Dask's format, packed, and then
        what it describes.
    serializers
        Those that are allowed, None for any.
    """

    def __init__(
        self, frames: list[Frame], to: Recipient, serializers: Any = None
    ) -> None:
        self._frames = frames
        self._to = to
        self._serializers = serializers
        self.read_bytes = 0
        """From disk."""
        self.seconds = 0.0
        """That took."""

    @property
    def is_quick(self) -> bool:
        """Whether there is no disk to wait for, and nothing to go through."""
        if any(type(frame) is _native.FileRange for frame in self._frames):
            return False
        header = self._header()
        return not self._is_foreign(header) and (
            checksums.KEY not in header or self._to.compares
        )

    def run(self) -> Serialized | None:
        """The value as it is sent; None if it has to be serialised otherwise. Any
        thread; waits for a disk unless it is quick.

        Raises
        ------
        SpillwayError
            When it cannot be read, or is not what was written.
        Damaged
            When it came otherwise than it was stored where it came from.
        """
        header = self._header()
        if not self._is_allowed(header):
            return None
        is_foreign = self._is_foreign(header)
        compares = self._to.compares and not is_foreign
        frames = self._frames[1:]
        known = header.pop(checksums.KEY, None) or (None,) * len(frames)
        ready = [
            self._ready(frame, came_with, compares)
            for frame, came_with in zip(frames, known, strict=True)
        ]
        frames = [frame for frame, _ in ready]
        sums = tuple(checksum for _, checksum in ready)
        if any(one is not None for one in sums):
            header[checksums.KEY] = sums
        if is_foreign:
            header, frames = plain(header, list(map(memoryview, frames)))
        return Serialized(header, frames)

    def _header(self) -> dict[str, Any]:
        # Its own each time, for Dask's functions change the one that they are given.
        head = self._frames[0]
        if type(head) is _native.FileRange:
            head = self._timed(head, lambda: memoryview(head))
        return msgpack.unpackb(
            head,
            object_hook=msgpack_decode_default,
            use_list=False,
            **msgpack_opts,
        )

    def _is_allowed(self, header: dict[str, Any]) -> bool:
        if self._serializers is None:
            return True
        return header.get("serializer") in self._serializers and (
            "pickle" in self._serializers or not pickles_inside(header)
        )

    def _is_foreign(self, header: dict[str, Any]) -> bool:
        """Whether there is a compressed frame that the peer may not know to read."""
        codecs = header.get("compression") or ()
        return any(codec not in (None, self._to.codec) for codec in codecs)

    def _ready(
        self, frame: Frame, came_with: int | None, compares: bool
    ) -> tuple[Frame, int | None]:
        """The frame as it is sent, and its checksum if who gets it compares that;
        else it is compared here, also with what it came with from elsewhere."""
        if type(frame) is _native.FileRange:
            if frame.nbytes < SMALL_BYTES or not self._to.takes(frame):
                frame = self._timed(frame, lambda: memoryview(frame))
            elif compares:
                return frame, frame.checksum if came_with is None else came_with
            else:
                self._timed(frame, frame.verify)
                if came_with in (None, frame.checksum):
                    return frame, None
        if came_with is not None and not compares:
            checksums.verify({checksums.KEY: (came_with,)}, [frame])
        return frame, came_with if compares else None

    def _timed(self, frame: _native.FileRange, call: Any) -> Any:
        start = time.perf_counter()
        answer = call()
        self.seconds += time.perf_counter() - start
        self.read_bytes += frame.nbytes
        return answer
