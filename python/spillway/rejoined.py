"""Rows of several tables one after another, in memory of their own: the only partition
of a shuffle within one process."""

from collections.abc import Sequence

import numpy as np

from spillway import _native
from spillway.column_memory import Column, ColumnType, JoinedColumn, share_out

_NUMBERS, _ENDS = np.zeros(1, np.uint32), np.ones(1, np.uint32)
"""There is one partition."""


def rejoined(
    types: Sequence[ColumnType], tables: Sequence[tuple[int, Sequence[Column]]]
) -> list[JoinedColumn]:
    """Join tables, each some rows of columns of these types, none of them a blob.

    Returns
    -------
    list
        A column for each type, filled; none where there are no rows.
    """
    held = _native.Partitions(1, [])
    number = held.add_types([type.native for type in types])
    for table, (rows, columns) in enumerate(tables):
        rows_of, counts_of, (shards,) = _native.split(
            [column.native for column in columns],
            rows,
            np.zeros(rows, np.uint8),
            _NUMBERS,
            _ENDS,
        )
        if shards is not None:
            held.put(number, table, shards, rows_of, counts_of)
    held.finish()
    places: list[JoinedColumn] = []
    for _, rows, counts in held.measure(0):  # one group, or none without rows
        shares = zip(types, share_out(types, counts), strict=True)
        places = [type.place(rows, own, _native.allocate) for type, own in shares]
        held.read(0, [(number, rows, tuple(place.memory for place in places))])
    return places
