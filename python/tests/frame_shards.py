"""Frames through the C library: split by partition, and read from what was kept."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from spillway import _native
from spillway.column_memory import BLOB, Column
from spillway.frame_columns import (
    Layout,
    TakenFrame,
    concat,
    places,
    put_together,
    read,
    take_apart,
)


def allocate(nbytes: int) -> np.ndarray:
    """Memory whose bytes are none that a test expects."""
    assert nbytes > 0
    return np.full(nbytes, 0xA5, np.uint8)


class Kept:
    """The partitions of some frames, which all have one layout or several."""

    def __init__(self, partitions: int) -> None:
        self._held = _native.Partitions(partitions, [])
        self._partitions = partitions
        self._numbers: dict[Layout, int] = {}
        self._inputs = 0

    def put(self, taken: TakenFrame, ids: np.ndarray, layout: Layout) -> None:
        """Split a frame; layout is its own, or what came of that elsewhere."""
        rows, counts, (shards,) = _native.split(
            [column.native for column in with_pickles(taken, ids, self._partitions)],
            taken.rows,
            np.asarray(ids, np.int64),
            np.arange(self._partitions, dtype=np.uint32),
            np.array([self._partitions], np.uint32),
        )
        if layout not in self._numbers:
            types = [type.native for type in layout.types]
            self._numbers[layout] = self._held.add_types(types)
        if shards is not None:
            number = self._numbers[layout]
            self._held.put(number, self._inputs, shards, rows, counts)
            self._inputs += 1

    def frames(self, allocate: Any = allocate) -> Iterator[pd.DataFrame]:
        """Each partition; one without rows as the first layout has it."""
        self._held.finish()
        layouts = {number: layout for layout, number in self._numbers.items()}
        for partition in range(self._partitions):
            groups = read(self._held, partition, layouts, allocate)
            if groups:
                yield concat([put_together(*group) for group in groups])
            else:
                yield without_rows(layouts[0])


def without_rows(layout: Layout) -> pd.DataFrame:
    counts = [0] * sum(type.counts for type in layout.types)
    return put_together(layout, 0, places(layout, 0, counts, allocate))


def with_pickles(
    taken: TakenFrame, ids: np.ndarray, partitions: int
) -> Iterator[Column]:
    """A frame's columns, those that only Python can describe pickled by partition."""
    order = np.argsort(ids, kind="stable")
    begins = np.searchsorted(np.asarray(ids)[order], np.arange(partitions + 1))
    for column in taken.columns:
        if column.type is BLOB:
            data, offsets = column.values.pickle(order, begins)
            column = Column(BLOB, offsets, data)
        yield column


def joined(frame: pd.DataFrame, allocate: Any = allocate) -> pd.DataFrame:
    """A frame after it was one partition."""
    return partitioned([frame], [np.zeros(len(frame), int)], 1, allocate=allocate)[0]


def partitioned(
    frames: Sequence[pd.DataFrame],
    ids: Sequence[np.ndarray],
    partitions: int,
    allocate: Any = allocate,
) -> list[pd.DataFrame]:
    """What each partition is that frames have rows for."""
    kept = Kept(partitions)
    for frame, some in zip(frames, ids, strict=True):
        taken = take_apart(frame)
        kept.put(taken, some, taken.layout)
    return list(kept.frames(allocate))
