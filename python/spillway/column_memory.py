"""Columns of memory: what a frame is taken apart to, and what it is put together from.

A column is items of one size, or an array of Arrow's (`arrow_forms.py`), or a `BLOB`,
of which only Python knows what its rows are, so that each shard has them pickled.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spillway.buffer_protocol import Buffer

Bytes = npt.NDArray[np.uint8]
Allocate = Callable[[int], Buffer]

_FIXED, _BLOB = 1, 4
"""As `spw_column_kind` has them (include/spillway/shuffle.h)."""

MAX_SMALL_OFFSET = 2**31 - 1
"""What signed offsets of 4 bytes can count."""


class JoinedColumn(NamedTuple):
    """Memory for the rows of a column, to be filled with those of all shards.

    Attributes
    ----------
    memory
        Writeable bytes, for items side by side or for the pickles of all shards one
        after another; or a `_native.ArrowArray`.
    block
        Memory that this column's items and its neighbours' are one after another in,
        or None.
    arrow_type
        Of an `ArrowArray`.
    """

    memory: Any
    block: Bytes | None = None
    arrow_type: Any = None


class ColumnType:
    """What all shards of a column have in common.

    Attributes
    ----------
    native
        What the C library is told of it: kind and size of items, or a capsule with the
        schema of a type of Arrow's.
    counts
        How many counts a shard has of it, beside its rows.
    """

    __slots__ = ("counts", "native")

    native: Any
    counts: int

    def place(
        self, rows: int, counts: Sequence[int], allocate: Allocate
    ) -> JoinedColumn:
        """Memory for a column of `rows` rows, of which all shards together have these
        counts."""
        raise NotImplementedError


class ItemsType(ColumnType):
    """Items of `item_size` bytes."""

    __slots__ = ("item_size",)

    def __init__(self, item_size: int) -> None:
        self.native = (_FIXED, item_size)
        self.counts = 0
        self.item_size = item_size

    def place(
        self, rows: int, counts: Sequence[int], allocate: Allocate
    ) -> JoinedColumn:
        return JoinedColumn(room(rows * self.item_size, allocate))

    def block_places(
        self, width: int, rows: int, allocate: Allocate
    ) -> list[JoinedColumn]:
        """Memory for `width` columns of items, side by side in one allocation."""
        size = rows * self.item_size
        block = room(width * size, allocate)
        return [
            JoinedColumn(block[n * size : (n + 1) * size], block) for n in range(width)
        ]


class BlobType(ColumnType):
    """Pickles, of so many bytes as the count says."""

    __slots__ = ()

    def __init__(self) -> None:
        self.native = (_BLOB, 0)
        self.counts = 1

    def place(
        self, rows: int, counts: Sequence[int], allocate: Allocate
    ) -> JoinedColumn:
        return JoinedColumn(room(counts[0], allocate))


BLOB = BlobType()


class Column(NamedTuple):
    """One column of a frame, in the memory that the frame has it in.

    Attributes
    ----------
    type
        What it has in common with that column of other frames.
    values
        Items: a buffer of one dimension that begins at row 0 and may be strided, or a
        range, which stands for its integers of 8 bytes. An array of Arrow's: a capsule
        with the schema, and that. A blob: what pickles its rows (`opaque_rows.py`), or,
        once it has, where each partition's pickle ends.
    data
        The pickles of a blob.
    """

    type: ColumnType
    values: Any
    data: Buffer | None = None

    @property
    def native(self) -> Any:
        """As `_native.split` takes it."""
        if isinstance(self.type.native, tuple):
            return (*self.type.native, self.values, self.data)
        return self.values


def room(nbytes: int, allocate: Allocate) -> Bytes:
    """nbytes writeable bytes; `allocate` is asked for some only."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(allocate(nbytes), np.uint8, nbytes)


def share_out(
    types: Sequence[ColumnType], counts: Sequence[int]
) -> list[Sequence[int]]:
    """The counts of each column.

    Raises
    ------
    ValueError
        When there are more or fewer than such types have.
    """
    shares, at = [], 0
    for type in types:
        shares.append(counts[at : at + type.counts])
        at += type.counts
    if at != len(counts):
        raise ValueError(f"{len(counts)} counts for columns that have {at}")
    return shares
