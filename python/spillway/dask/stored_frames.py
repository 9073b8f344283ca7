"""What a store has of a value, made ready for a peer: not unpickled, and not read if it
can be sent from where it is."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from distributed.comm.core import Comm
from distributed.protocol.compression import compressions
from distributed.protocol.serialize import Serialized
from distributed.utils import nbytes

from spillway import _native
from spillway.dask import checksums, handshake, shared_files
from spillway.dask.comm import SpillwayComm
from spillway.dask.decode import header_of, pickles_inside, plain
from spillway.dask.hook_store import CODECS

Frame = bytes | memoryview | _native.FileRange

SMALL_BYTES = 1 << 16
"""Less than that is read from a file: to send it from there takes a call of its own."""


@dataclass(frozen=True)
class Recipient:
    """What matters of a peer and of the way to it."""

    takes_files: bool
    """The library sends to it."""
    compares: bool
    """It is one of ours, which looks at checksums before it uses what came, and reads
    all that a store may have compressed."""
    codec: str | None
    """Another reads what is compressed so."""
    shares_disk: bool = False
    """It keeps values, and takes those that are on disk as files."""

    @classmethod
    def of(cls, comm: Comm, keeps: bool = False) -> "Recipient":
        """The other end of a comm; `keeps` when it asks for a worker's store."""
        is_ours = isinstance(comm, SpillwayComm)
        return cls(
            takes_files=is_ours and comm.sends_files,
            compares=is_ours and handshake.CHECKSUMS in comm.peer_features,
            codec=compressions[comm.handshake_options.get("compression")].name,
            shares_disk=keeps and is_ours and comm.gives_files,
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
        reads = self.compares or frame.codec in (None, self.codec)
        return self.takes_files and reads


class _Frame(NamedTuple):
    """A frame, and what its value's header says of it."""

    data: Frame
    checksum: int | None
    codec: str | None


class Preparation:
    """One value's way to a peer. To be kept until the peer has it: who is given a file
    has to find it.

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
        # As a file, if all of it is on disk, its small frames too.
        self._is_given = (
            to.shares_disk
            and to.compares
            and sum(map(nbytes, frames)) >= shared_files.LEAST_BYTES
        )
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
        sent = self._frames[1:]
        none = (None,) * len(sent)
        is_foreign = self._is_foreign(header)
        known = header.pop(checksums.KEY, None) or none
        ready = [
            self._ready(_Frame(*one), is_foreign)
            for one in zip(sent, known, header.get("compression") or none, strict=True)
        ]
        sent = [one.data for one in ready]
        _put(header, checksums.KEY, [one.checksum for one in ready])
        _put(header, "compression", [one.codec for one in ready])
        if is_foreign:
            header, sent = plain(header, sent)
        given = shared_files.offer(header, sent) if self._is_given else None
        return given if given is not None else Serialized(header, sent)

    def _header(self) -> dict[str, Any]:
        head = self._frames[0]
        if type(head) is _native.FileRange:
            head = self._timed(head, lambda: memoryview(head))
        return header_of(head)

    def _is_allowed(self, header: dict[str, Any]) -> bool:
        if self._serializers is None:
            return True
        return header.get("serializer") in self._serializers and (
            "pickle" in self._serializers or not pickles_inside(header)
        )

    def _is_foreign(self, header: dict[str, Any]) -> bool:
        """Whether there is a compressed frame that the peer may not know to read."""
        codecs = header.get("compression") or ()
        known = (None, self._to.codec, *(CODECS if self._is_given else ()))
        return any(codec not in known for codec in codecs)

    def _ready(self, one: "_Frame", is_foreign: bool) -> "_Frame":
        """The frame as it is sent, and its checksum if who gets it compares that;
        else it is compared here, also with what it came with from elsewhere."""
        compares = self._to.compares and not is_foreign
        data, came_with = one.data, one.checksum
        if type(data) is _native.FileRange:
            if is_foreign or not self._goes_from_file(one):
                data = self._timed(data, lambda: memoryview(data))
            else:
                codec, data = one.codec or data.codec, data.as_stored()
                if compares:
                    known = data.checksum if came_with is None else came_with
                    return _Frame(data, known, codec)
                self._timed(data, data.verify)
                if came_with in (None, data.checksum):
                    return _Frame(data, None, codec)
        if came_with is not None and not compares:
            checksums.verify({checksums.KEY: (came_with,)}, [data])
        return _Frame(data, came_with if compares else None, one.codec)

    def _goes_from_file(self, one: "_Frame") -> bool:
        is_read = one.data.nbytes < SMALL_BYTES and not self._is_given
        if is_read or not self._to.takes(one.data):
            return False
        # Nothing is compressed twice, and a checksum is of what arrives.
        is_as_it_came = one.codec is None and one.checksum is None
        return one.data.codec is None or is_as_it_came

    def _timed(self, frame: _native.FileRange, call: Any) -> Any:
        start = time.perf_counter()
        answer = call()
        self.seconds += time.perf_counter() - start
        self.read_bytes += frame.nbytes
        return answer


def _put(header: dict[str, Any], key: str, entries: list[Any]) -> None:
    """Have a header say something of each frame, if there is anything to say."""
    if key in header or any(entry is not None for entry in entries):
        header[key] = tuple(entries)
