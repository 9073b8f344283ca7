"""Forms of NumPy's arrays, and of rows that are pickled."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from spillway.array_form import ArrayForm
from spillway.column_memory import BLOB, Column, ItemsType, JoinedColumn
from spillway.opaque_rows import OpaqueRows, unpickle_all


class ItemsForm(ArrayForm):
    """Items of one size, as a NumPy array of one dimension has them."""

    __slots__ = ("_buffer_dtype", "dtype")
    in_blocks = True
    types: tuple[ItemsType]

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.types = (ItemsType(dtype.itemsize),)
        # Dates, and items that are bytes, give no buffer, or none that others know.
        opaque = dtype.kind not in "biufc"
        as_integers = opaque and dtype.itemsize == 8
        as_bytes = np.dtype(f"V{dtype.itemsize}") if opaque else None
        self._buffer_dtype = np.dtype("i8") if as_integers else as_bytes

    def columns(self, array: np.ndarray[Any, Any]) -> list[Column]:
        if self._buffer_dtype is not None:
            array = array.view(self._buffer_dtype)
        type = self.types[0]
        # From the last to the first row, or one for all.
        if array.strides[0] < type.item_size:
            array = np.ascontiguousarray(array)
        return [Column(type, array)]

    def block_columns(self, block: np.ndarray[Any, Any]) -> list[list[Column]]:
        if self._buffer_dtype is not None:
            block = block.view(self._buffer_dtype)
        type = self.types[0]
        if block.strides[1] < type.item_size:
            block = np.ascontiguousarray(block)
        return [[Column(type, row)] for row in block]

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        return columns[0].memory.view(self.dtype)

    def block(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        shared = columns[0].memory if len(columns) == 1 else columns[0].block
        if shared is None:
            shared = np.concatenate([column.memory for column in columns])
        return shared.view(self.dtype).reshape(len(columns), rows)


class PickledItemsForm(ArrayForm):
    """Items of a NumPy array that are Python's objects, or that no C program reads."""

    __slots__ = ("_dtype",)
    in_blocks = True

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.types = (BLOB,)
        self._dtype = dtype

    def columns(self, array: np.ndarray[Any, Any]) -> list[Column]:
        return [Column(BLOB, OpaqueRows(array))]

    def block_columns(self, block: np.ndarray[Any, Any]) -> list[list[Column]]:
        return [self.columns(row) for row in block]

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        return self.block(rows, columns)[0]

    def block(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        # Concatenating makes the bytes of items the machine's, and so does this.
        block = np.empty((len(columns), rows), self._dtype.newbyteorder("="))
        for row, column in zip(block, columns, strict=True):
            fill(row, column)
        return block


def fill(row: np.ndarray[Any, Any], column: JoinedColumn) -> None:
    """Put the items that a column has pickled into row.

    Raises
    ------
    ValueError
        When they are not as many.
    """
    at = 0
    for piece in unpickle_all(column.memory):
        row[at : at + len(piece)] = piece
        at += len(piece)
    if at != len(row):
        raise ValueError(f"{at} rows were pickled where {len(row)} are wanted")


class PickledArrayForm(ArrayForm):
    """An extension array of which nothing is known but what all of them can."""

    __slots__ = ("_array_type", "_dtype")

    def __init__(self, array_type: type, dtype: Any) -> None:
        self.types = (BLOB,)
        self._array_type = array_type
        self._dtype = dtype

    def columns(self, array: Any) -> list[Column]:
        return [Column(BLOB, OpaqueRows(array))]

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        pieces = list(unpickle_all(columns[0].memory))
        if not pieces:
            pieces = [self._array_type._from_sequence([], dtype=self._dtype)]
        # What pandas.concat calls for arrays of one dtype.
        joined = pieces[0]._concat_same_type(pieces) if len(pieces) > 1 else pieces[0]
        if len(joined) != rows:
            raise ValueError(f"{len(joined)} rows were pickled where {rows} are wanted")
        return joined


_items: dict[np.dtype[Any], ItemsForm | PickledItemsForm] = {}


def numpy_form(dtype: np.dtype[Any]) -> ItemsForm | PickledItemsForm:
    """The form of NumPy arrays of a dtype."""
    form = _items.get(dtype)
    if form is None:
        plain = dtype.isnative and not dtype.hasobject and dtype.itemsize > 0
        kind = ItemsForm if plain else PickledItemsForm
        form = kind.of(dtype.str if dtype.names is None else dtype, dtype)
        if len(_items) < 1000:  # dtypes with fields can be any number
            _items[dtype] = form
    return form


def pickled_form(array: pd.api.extensions.ExtensionArray) -> PickledArrayForm:
    """The form of any extension array."""
    cls, dtype = type(array), array.dtype
    return PickledArrayForm.of((cls, type(dtype), str(dtype), dtype), cls, dtype)
