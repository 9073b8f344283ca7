"""What workers of one shuffle send each other, over Dask's own calls.

A message is pickled as anything else that is sent, with the shards beside the pickle,
so that they go over any connection without being copied.
"""

import pickle
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Piece:
    """The rows of one input that are for one worker."""

    input: int
    layout: int
    """Which of the layouts its sender has named so far."""
    rows: int
    rows_of: Any
    """A u32 for each partition of that worker's: its rows."""
    counts_of: Any
    """For each of these partitions a u64 for each column that has a count."""
    shards: Any
    """Their shards, one after another."""

    @property
    def nbytes(self) -> int:
        """Its bytes in memory and on the wire."""
        return memoryview(self.shards).nbytes + memoryview(self.rows_of).nbytes

    def __reduce_ex__(self, protocol: Any) -> Any:
        tables = bytes(self.rows_of), bytes(self.counts_of)
        shards: Any = pickle.PickleBuffer(self.shards)
        if protocol < 5:
            shards = bytes(self.shards)
        return Piece, (self.input, self.layout, self.rows, *tables, shards)


@dataclass(slots=True)
class Pieces:
    """Pieces for one worker."""

    sender: str
    sequence: int
    """Of this sender's messages to this worker; the same when it is sent again."""
    pieces: list[Piece]
    layouts: dict[int, Any] = field(default_factory=dict)
    """Those of these pieces' layouts of which it is not known that it has them."""

    @property
    def nbytes(self) -> int:
        """The bytes of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)


@dataclass(slots=True)
class Sums:
    """What a sender has sent to one worker in all: the rows of each input."""

    sender: str
    rows_of: dict[int, int]


@dataclass(slots=True)
class ReadAgain:
    """Partitions of this shuffle are asked for more than once: the next run keeps what
    was read."""
