"""Columns of memory: what a frame is taken apart to, and what it is put together from.

The kinds are those of `spw_column_kind` (include/spillway/shuffle.h), and one more: a
`blob` is a column of which only Python knows what its rows are, so that each shard has
them pickled.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from spillway.buffer_protocol import Buffer

Kind = Literal["fixed", "bits", "binary", "blob"]
Bytes = npt.NDArray[np.uint8]
Allocate = Callable[[int], Buffer]

MAX_SMALL_OFFSET = 2**31 - 1
"""The bytes that signed offsets of 4 bytes can count."""


class ColumnType(NamedTuple):
    """What all shards of a column have in common.

    `item_size` is the bytes of an item (`fixed`), of an offset (`binary`, 4 or 8, which
    the table and the result may have different ones of), or 0.
    """

    kind: Kind
    item_size: int
    has_validity: bool = False


class Column:
    """One column of a frame, in the memory that the frame has it in.

    Attributes
    ----------
    kind, item_size, has_validity
        See `ColumnType`.
    values
        What the items, bits or offsets are read from: an object with a buffer, kept
        alive by this one. An ndarray has one dimension and begins at row 0, and may
        be strided. A range stands for its integers of 8 bytes. For a `blob`, the
        object that pickles rows (`opaque_rows.py`).
    stride
        Bytes from one item to the next, at least `item_size`; 0 unless `fixed`.
    offset
        Rows that `values` and `validity` have before the first one of the column.
    values_bit_offset
        `bits`: bits that `values` has before its first row.
    data
        `binary`: what the offsets point into.
    validity
        A bitmap, 1 where there is a value, or None where every row has one.
    validity_bit_offset
        Bits that `validity` has before its first row.
    """

    __slots__ = (
        "data",
        "has_validity",
        "item_size",
        "kind",
        "offset",
        "stride",
        "validity",
        "validity_bit_offset",
        "values",
        "values_bit_offset",
    )

    def __init__(
        self,
        type: ColumnType,
        values: Any,
        stride: int = 0,
        offset: int = 0,
        data: Buffer | None = None,
        validity: Buffer | None = None,
    ) -> None:
        self.kind, self.item_size, self.has_validity = type
        self.values = values
        self.stride = stride
        self.offset = offset
        self.values_bit_offset = 0
        self.data = data
        self.validity = validity
        self.validity_bit_offset = 0


class JoinedColumn:
    """Memory for the rows of a column, to be filled with those of all shards.

    Attributes
    ----------
    kind, item_size, has_validity
        See `ColumnType`; here `item_size` is what the offsets in `values` have.
    values
        Writeable bytes for items, for a bitmap, or for one offset more than rows;
        empty for a `blob`.
    data
        Writeable bytes for what the offsets point into, or, for a `blob`, for the
        pickles of all shards one after another; else None.
    validity
        Writeable bytes for a bitmap, or None if the type has no validity.
    block
        Memory that this column's items and its neighbours' are one after another in,
        or None.
    """

    __slots__ = (
        "block",
        "data",
        "has_validity",
        "item_size",
        "kind",
        "validity",
        "values",
    )

    def __init__(
        self,
        type: ColumnType,
        values: Bytes,
        data: Bytes | None = None,
        validity: Bytes | None = None,
        block: Bytes | None = None,
    ) -> None:
        self.kind, self.item_size, self.has_validity = type
        self.values = values
        self.data = data
        self.validity = validity
        self.block = block


def room(nbytes: int, allocate: Allocate) -> Bytes:
    """nbytes writeable bytes; `allocate` is asked for some only."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(allocate(nbytes), np.uint8, nbytes)


def place(type: ColumnType, rows: int, count: int, allocate: Allocate) -> JoinedColumn:
    """Memory for one column of `rows` rows, of which the values of a `binary` and the
    pickles of a `blob` have `count` bytes."""
    kind, item_size, has_validity = type
    validity = room((rows + 7) // 8, allocate) if has_validity else None
    if kind == "fixed":
        return JoinedColumn(type, room(rows * item_size, allocate), None, validity)
    if kind == "bits":
        return JoinedColumn(type, room((rows + 7) // 8, allocate), None, validity)
    if kind == "binary" and count > MAX_SMALL_OFFSET:
        type = ColumnType(kind, 8, has_validity)
    offsets = room((rows + 1) * type.item_size if kind == "binary" else 0, allocate)
    return JoinedColumn(type, offsets, room(count, allocate), validity)


def block_places(
    type: ColumnType, width: int, rows: int, allocate: Allocate
) -> list[JoinedColumn]:
    """Memory for `width` columns of items, side by side in one allocation."""
    size = rows * type.item_size
    block = room(width * size, allocate)
    return [
        JoinedColumn(type, block[n * size : (n + 1) * size], block=block)
        for n in range(width)
    ]
