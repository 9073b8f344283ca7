"""Forms of pandas' arrays that have Arrow's: the buffers of an Arrow array as they are.

Types of a fixed width, booleans, strings and binaries. Of what else there is (nested
types, dictionaries, views) the rows are pickled.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from spillway.array_form import ArrayForm
from spillway.column_memory import MAX_SMALL_OFFSET, Column, ColumnType, JoinedColumn
from spillway.numpy_forms import PickledArrayForm, pickled_form

_NO_OFFSET = bytes(8)
"""The offsets of a column without rows: one, of any size, which is 0."""

_WIDER = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}

Wrap = Callable[[Any], Any]
"""Makes the array of pandas' of a chunked array of Arrow's."""


def column_type(arrow_type: pa.DataType) -> ColumnType | None:
    """How columns hold a type of Arrow's, or None if they do not."""
    if pa.types.is_boolean(arrow_type):
        return ColumnType("bits", 0, True)
    if arrow_type in (pa.string(), pa.binary()):
        return ColumnType("binary", 4, True)
    if arrow_type in (pa.large_string(), pa.large_binary()):
        return ColumnType("binary", 8, True)
    if (
        pa.types.is_integer(arrow_type)
        or pa.types.is_floating(arrow_type)
        or pa.types.is_decimal(arrow_type)
        or pa.types.is_temporal(arrow_type)
        or pa.types.is_fixed_size_binary(arrow_type)
    ) and arrow_type.bit_width >= 8:
        return ColumnType("fixed", arrow_type.bit_width // 8, True)
    return None


class ArrowForm(ArrayForm):
    """An Arrow array of one type, in an array of pandas'."""

    __slots__ = ("_arrow_type", "_wrap")

    def __init__(self, type: ColumnType, arrow_type: pa.DataType, wrap: Wrap) -> None:
        self.types = (type,)
        self._arrow_type = arrow_type
        self._wrap = wrap

    def columns(self, array: Any) -> list[Column]:
        type = self.types[0]
        one = one_chunk(array._pa_array)
        if len(one) == 0:
            return [Column(type, _NO_OFFSET, type.item_size, data=b"")]
        offset = one.offset
        if type.kind != "binary":
            validity, values = one.buffers()
            return [Column(type, values, type.item_size, offset, validity=validity)]
        validity, values, data = one.buffers()
        if one.type != self._arrow_type:
            type = type._replace(item_size=8)
        if data is None:
            data = b""
        return [Column(type, values, 0, offset, data, validity)]

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        return self._wrap(self._chunks(rows, columns[0]))

    def _chunks(self, rows: int, column: JoinedColumn) -> pa.ChunkedArray:
        arrow_type = self._arrow_type
        if rows == 0:
            return pa.chunked_array([], arrow_type)
        if column.kind == "binary" and column.item_size != self.types[0].item_size:
            arrow_type = _WIDER[arrow_type]
        parts = [column.validity, column.values]
        if column.kind == "binary":
            parts.append(column.data)
        buffers = [pa.py_buffer(part) for part in parts]
        array = pa.Array.from_buffers(arrow_type, rows, buffers)
        if arrow_type != self._arrow_type:
            return narrowed(array, self._arrow_type)
        return pa.chunked_array([array])


def one_chunk(chunks: pa.ChunkedArray, most: int = MAX_SMALL_OFFSET) -> pa.Array:
    """The only chunk, or all of them in one; a wider type if offsets of 4 bytes cannot
    count what they have, which may be `most` bytes."""
    if chunks.num_chunks == 1:
        return chunks.chunk(0)
    if chunks.type in _WIDER and chunks.nbytes > most:
        chunks = chunks.cast(_WIDER[chunks.type])
    return (
        pa.concat_arrays(chunks.chunks)
        if chunks.num_chunks
        else chunks.combine_chunks()
    )


def narrowed(
    wide: pa.Array, arrow_type: pa.DataType, most: int = MAX_SMALL_OFFSET
) -> pa.ChunkedArray:
    """A wide array as chunks of a type whose offsets count `most` bytes at most."""
    ends = np.frombuffer(wide.buffers()[1], np.int64, len(wide) + 1)
    chunks, begin = [], 0
    while begin < len(wide):
        end = int(np.searchsorted(ends, ends[begin] + most, side="right")) - 1
        end = min(max(end, begin + 1), len(wide))
        chunks.append(wide.slice(begin, end - begin).cast(arrow_type))
        begin = end
    return pa.chunked_array(chunks, arrow_type)


class _LikeOne:
    """Makes arrays such as another one, of which it has none of the rows."""

    __slots__ = ("_of",)

    def __init__(self, array: Any) -> None:
        self._of = type(array)._from_sequence([], dtype=array.dtype)

    def __call__(self, chunks: pa.ChunkedArray) -> Any:
        return self._of._from_pyarrow_array(chunks)


class _WithDtype:
    """Gives a chunked array to a class that is told the dtype."""

    __slots__ = ("_array_type", "_dtype")

    def __init__(self, array_type: type, dtype: Any) -> None:
        self._array_type = array_type
        self._dtype = dtype

    def __call__(self, chunks: pa.ChunkedArray) -> Any:
        return self._array_type(chunks, dtype=self._dtype)


_forms: dict[tuple[Any, ...], ArrowForm | None] = {}


def arrow_form(array: Any) -> ArrowForm | PickledArrayForm:
    """The form of an ArrowExtensionArray or an ArrowStringArray."""
    arrow_type, dtype = array._pa_array.type, array.dtype
    # Before pandas 2.3 string dtypes that differ in what is missing are of two classes.
    string = isinstance(dtype, pd.StringDtype)
    missing = getattr(dtype, "na_value", None) is pd.NA
    key = (type(array), arrow_type, string, missing)
    form = _forms.get(key)
    if form is None and key not in _forms:
        type_ = column_type(arrow_type)
        if type_ is not None:
            form = ArrowForm.of(key, type_, arrow_type, _wrapper(array))
        if len(_forms) < 1000:  # timezones and decimals are any number of types
            _forms[key] = form
    return form or pickled_form(array)


def _wrapper(array: Any) -> Wrap:
    """How to make an array such as this one: in pandas 2.2 its class has the dtype."""
    cls, dtype = type(array), array.dtype
    if hasattr(array, "_from_pyarrow_array"):
        return _LikeOne(array)
    if not isinstance(dtype, pd.StringDtype) or cls(array._pa_array).dtype == dtype:
        return cls
    return _WithDtype(cls, dtype)
