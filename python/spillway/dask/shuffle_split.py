"""Splits inputs of one shuffle by worker and partition."""

from time import thread_time_ns
from typing import Any

from spillway import _native, frame_columns
from spillway.column_memory import BLOB, Column
from spillway.dask.shuffle_message import Piece
from spillway.frame_labels import label_list

_ROW_SIZE = 4
"""Bytes of the number of rows of a shard."""


class Splitter:
    """What all inputs of a shuffle on one worker are split by."""

    def __init__(self, spec: Any, worker_for: dict[int, str]) -> None:
        import numpy as np

        self._column, self._meta = spec.column, spec.meta
        self._drops = spec.drop_column
        self.partitions_of: dict[str, list[int]] = {}
        """By worker, the partitions that it puts together, in ascending order."""
        for partition in sorted(worker_for):
            self.partitions_of.setdefault(worker_for[partition], []).append(partition)
        # What is for one worker is side by side, and last what nobody wants: a graph
        # may leave partitions out.
        self._numbers = np.full(spec.npartitions, len(worker_for), np.uint32)
        self._ends = np.cumsum([*map(len, self.partitions_of.values()), 1], dtype="u4")
        ends = self._ends.tolist()
        self._begins = [0, *ends[:-1]]
        self._ranges = list(zip(self.partitions_of, self._begins, ends, strict=False))
        wanted = [p for parts in self.partitions_of.values() for p in parts]
        self._numbers[wanted] = np.arange(len(wanted), dtype=np.uint32)
        names = list(self._meta.columns)
        self._labels = set(label_list(self._meta.columns))
        if self._drops:
            names.remove(self._column)
        self._names = names

    def check(self, data: Any) -> None:
        """Raise TypeError or ValueError if an input is not what the graph says."""
        from dask.utils import is_dataframe_like

        if not (frame_columns.has_blocks(data) or is_dataframe_like(data)):
            raise TypeError(
                f"An input of a shuffle is to be a DataFrame, and is a {type(data)}"
            )
        # Lists are cheaper; a label that misses may be another in them.
        if set(label_list(data.columns)) != self._labels and (
            set(data.columns) != set(self._meta.columns)
        ):
            raise ValueError(
                "An input of a shuffle is to have the columns of its meta, "
                f"{list(self._meta.columns)}, and has {list(data.columns)}"
            )

    def split(self, data: Any, partition_id: int) -> tuple[Any, dict[str, Piece], int]:
        """The layout of a frame and, by worker, what is for it, if there is any row;
        then the nanoseconds of CPU time under the GIL.

        Raises
        ------
        ValueError
            When a row has no partition, or one that there is not.
        """
        import numpy as np

        start = thread_time_ns()
        ids = self._partition_ids(data)
        taken = frame_columns.take_apart(data, self._column if self._drops else None)
        columns = taken.columns
        if BLOB in taken.layout.types:
            columns = self._with_pickles(columns, ids)
        apart_ns = thread_time_ns() - start
        rows_of, counts_of, buffers = _native.split(
            [column.native for column in columns],
            taken.rows,
            ids,
            self._numbers,
            self._ends,
        )
        pieces = {}
        count_size = len(counts_of) // int(self._ends[-1])
        rows = np.add.reduceat(np.frombuffer(rows_of, "u4"), self._begins, dtype="u8")
        for (address, begin, end), count, shards in zip(
            self._ranges, rows.tolist(), buffers, strict=False
        ):
            if shards is not None:
                pieces[address] = Piece(
                    partition_id,
                    -1,
                    count,
                    rows_of[begin * _ROW_SIZE : end * _ROW_SIZE],
                    counts_of[begin * count_size : end * count_size],
                    shards,
                )
        return taken.layout, pieces, apart_ns

    def as_meta_orders(self, frame: Any) -> Any:
        """The frame with its columns in the order that the graph says."""
        names = list(frame.columns)
        if names == self._names or len(set(names)) != len(names):
            return frame
        return frame[self._names]

    def _partition_ids(self, data: Any) -> Any:
        """The numbers that the rows' partitions have, as an array of integers."""
        import numpy as np

        ids = np.ascontiguousarray(frame_columns.column_values(data, self._column))
        if ids.dtype.kind in "iu":
            return ids
        with np.errstate(invalid="ignore"):  # that is found below
            whole = ids.astype(np.int64)
        if not (whole == ids).all():
            row = int(np.flatnonzero(whole != ids)[0])
            raise ValueError(
                f"Row {row} has {ids[row]!r} for the number of its partition"
            )
        return whole

    def _with_pickles(self, columns: list[Any], ids: Any) -> list[Any]:
        """The columns, those that only Python can describe pickled by partition."""
        import numpy as np

        if ids.size and not 0 <= ids.min() <= ids.max() < len(self._numbers):
            row = int(np.flatnonzero((ids < 0) | (ids >= len(self._numbers)))[0])
            raise ValueError(
                f"row {row} is of partition {ids[row]}, and there are "
                f"{len(self._numbers)}"
            )
        numbers = self._numbers[ids]
        order = np.argsort(numbers, kind="stable")
        begins = np.zeros(int(self._ends[-1]) + 1, np.int64)
        np.cumsum(np.bincount(numbers, minlength=len(begins) - 1), out=begins[1:])
        return [
            _pickled(column, order, begins) if column.type is BLOB else column
            for column in columns
        ]


def _pickled(column: Any, order: Any, begins: Any) -> Any:
    """A column of which only Python knows what rows are, as bytes by partition."""
    data, offsets = column.values.pickle(order, begins)
    return Column(BLOB, offsets, data)
