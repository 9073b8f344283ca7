"""What the C library does with columns, in NumPy: rows by partition, and shards joined.

Slow and plain, and by what the attributes of columns say they mean alone.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spillway.column_memory import Column, JoinedColumn
from spillway.frame_columns import TakenFrame, places, put_together


class Part(NamedTuple):
    """A column of one shard: items, bits, or each row's bytes; or pickles."""

    values: Any
    validity: Any


def split(taken: TakenFrame, ids: np.ndarray, partitions: int) -> list[list[Part]]:
    """The shards of a frame."""
    order = np.argsort(ids, kind="stable").astype(np.int64)
    begins = np.searchsorted(ids[order], np.arange(partitions + 1))
    columns = [
        split_column(column, taken.rows, order, begins) for column in taken.columns
    ]
    return [[parts[p] for parts in columns] for p in range(partitions)]


def split_column(
    column: Column, rows: int, order: np.ndarray, begins: np.ndarray
) -> list[Part]:
    if column.kind == "blob":
        data, offsets = column.values.pickle(order, begins)
        assert offsets.dtype == np.uint64
        assert offsets[0] == 0 and len(data) == offsets[-1]
        ends = offsets.tolist()
        return [Part(bytes(data[a:b]), None) for a, b in itertools.pairwise(ends)]
    values, validity = read(column, rows), None
    if column.has_validity:
        validity = np.ones(rows, bool)
        if column.validity is not None:
            first = column.offset + column.validity_bit_offset
            validity = bits(column.validity, first, rows)
    parts = []
    for begin, end in itertools.pairwise(begins):
        some = order[begin:end]
        parts.append(
            Part(
                [values[row] for row in some],
                None if validity is None else validity[some],
            )
        )
    return parts


def bits(memory: Any, first: int, count: int) -> np.ndarray:
    everything = np.unpackbits(np.frombuffer(memory, np.uint8), bitorder="little")
    assert len(everything) >= first + count
    return everything[first : first + count].astype(bool)


def read(column: Column, rows: int) -> Sequence[Any]:
    """A value for each row, in bytes or as a bit."""
    if column.kind == "bits":
        return bits(column.values, column.offset + column.values_bit_offset, rows)
    if column.kind == "binary":
        dtype = {4: np.int32, 8: np.int64}[column.item_size]
        offsets = np.frombuffer(column.values, dtype)[column.offset :][: rows + 1]
        assert len(offsets) == rows + 1
        data = bytes(column.data)
        assert offsets[-1] <= len(data)
        return [data[a:b] for a, b in itertools.pairwise(offsets)]
    assert column.kind == "fixed"
    if isinstance(column.values, range):
        assert (column.item_size, column.offset) == (8, 0)
        assert len(column.values) == rows
        return [value.to_bytes(8, "little", signed=True) for value in column.values]
    assert column.stride >= column.item_size > 0
    if isinstance(column.values, np.ndarray):
        assert column.values.shape == (rows,)
        assert column.values.strides == (column.stride,) or rows < 2
    whole = np.asarray(memoryview(column.values)).view()
    if whole.dtype.itemsize == column.item_size:
        items = [item.tobytes() for item in whole]
    else:
        data, size = bytes(column.values), column.item_size
        assert column.stride == size
        items = [data[at : at + size] for at in range(0, len(data) - size + 1, size)]
    items = items[column.offset :][:rows]
    assert len(items) == rows
    return items


def counts_of(types: Any, shards: list[list[Part]]) -> list[int]:
    """The bytes of each column whose values have none of one size."""
    counts = []
    for at, type in enumerate(types):
        if type.kind == "binary":
            counts.append(sum(len(v) for shard in shards for v in shard[at].values))
        elif type.kind == "blob":
            counts.append(sum(len(shard[at].values) for shard in shards))
    return counts


def fill(place: JoinedColumn, rows: int, parts: list[Part]) -> None:
    """Put the parts of a column into its place, after each other."""
    if place.validity is not None:
        flags = [flag for part in parts for flag in part.validity]
        place.validity[:] = np.packbits(np.array(flags, bool), bitorder="little")
    if place.kind == "blob":
        place.data[:] = np.frombuffer(b"".join(p.values for p in parts), np.uint8)
        return
    values = [value for part in parts for value in part.values]
    assert len(values) == rows
    if place.kind == "bits":
        place.values[:] = np.packbits(np.array(values, bool), bitorder="little")
        return
    together = np.frombuffer(b"".join(values), np.uint8)
    if place.kind == "fixed":
        place.values[:] = together
        return
    place.data[:] = together
    ends = np.cumsum([0, *map(len, values)])
    offsets = place.values.view({4: np.int32, 8: np.int64}[place.item_size])
    offsets[:] = ends


def allocate(nbytes: int) -> np.ndarray:
    assert nbytes > 0
    return np.full(nbytes, 0xA5, np.uint8)


def join(layout: Any, rows: int, shards: list[list[Part]], allocate: Any = allocate):
    """The frame that shards are of, in order."""
    joined = places(layout, rows, counts_of(layout.types, shards), allocate)
    assert len(joined) == len(layout.types)
    for at, place in enumerate(joined):
        fill(place, rows, [shard[at] for shard in shards])
    return put_together(layout, rows, joined)
