"""Forms of pandas' arrays that have Arrow's.

The C library takes an array apart and puts one together by Arrow's C Data Interface
(include/spillway/arrow.h), whatever is nested in it. Of the types that it does not have
(views, unions, run-end encoded ones) the rows are pickled.

Dictionaries are part of the form, as categories are: what has others is put together
alone, and pandas keeps the dictionaries of each piece.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from spillway import _native, column_memory
from spillway.array_form import ArrayForm
from spillway.arrow_types import PickledType, as_columns, spelled
from spillway.column_memory import Allocate, Column, ColumnType, JoinedColumn
from spillway.numpy_forms import PickledArrayForm, pickled_form
from spillway.rejoined import rejoined

Wrap = Callable[[Any], Any]
"""Makes the array of pandas' of a chunked array of Arrow's."""


class ArrowType(ColumnType):
    """An array of one type, with these dictionaries in the order of the type's tree.

    Attributes
    ----------
    arrow_type
        Of the arrays that are taken apart and made.
    large
        A type with offsets of 8 bytes, for rows that offsets of 4 cannot count; None if
        there are none of these.
    """

    __slots__ = ("arrow_type", "dictionaries", "large")

    def __init__(
        self, arrow_type: pa.DataType, dictionaries: Sequence[pa.Array] = ()
    ) -> None:
        columns, large = as_columns(arrow_type), as_columns(arrow_type, large=True)
        self.native = columns.__arrow_c_schema__()
        self.counts = _native.arrow_counts(self.native)
        self.arrow_type = arrow_type
        self.large = None if large == columns else large
        self.dictionaries = dictionaries

    def column(self, array: pa.Array) -> Column:
        """An array, of this type or the large one, as a column."""
        if array.type == self.arrow_type:
            return Column(self, (self.native, array))
        return Column(self, (self.large.__arrow_c_schema__(), array))

    def place(
        self, rows: int, counts: Sequence[int], allocate: Allocate
    ) -> JoinedColumn:
        arrow_type, schema = self.arrow_type, self.native
        if self.large and max(counts) > column_memory.MAX_SMALL_OFFSET:
            arrow_type, schema = self.large, self.large.__arrow_c_schema__()
        made = _native.ArrowArray(schema, rows, counts, self.dictionaries)
        return JoinedColumn(made, arrow_type=arrow_type)


class ArrowForm(ArrayForm):
    """An Arrow array of one type, in an array of pandas'."""

    __slots__ = ("_wrap",)
    types: tuple[ArrowType]

    def __init__(
        self, type: PickledType, dictionaries: Sequence[pa.Array], wrap: Wrap
    ) -> None:
        self.types = (ArrowType(type.arrow_type, dictionaries),)
        self._wrap = wrap

    def columns(self, array: Any) -> list[Column]:
        return [self.types[0].column(one_chunk(array._pa_array))]

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        type = self.types[0]
        chunks = narrowed(imported(columns[0]), type)
        return self._wrap(pa.chunked_array(chunks, type.arrow_type))


def imported(column: JoinedColumn) -> pa.Array:
    """The array that a column was read into."""
    # By the type itself: in a schema of C's an extension is one only where it is known.
    return pa.Array._import_from_c(column.memory.address, column.arrow_type)


def one_chunk(chunks: pa.ChunkedArray) -> pa.Array:
    """The only chunk, or all of them in one; of the large type where offsets of 4 bytes
    may not count what they have."""
    if chunks.num_chunks == 1:
        return chunks.chunk(0)
    if chunks.num_chunks == 0:
        return pa.array([], chunks.type)
    if chunks.nbytes > column_memory.MAX_SMALL_OFFSET:
        type = ArrowType(chunks.type)
        # Dictionaries only Arrow unites.
        if type.large and not list(dictionaries(chunks.chunk(0))):
            return joined(chunks.chunks, type)
    return pa.concat_arrays(chunks.chunks)


def narrowed(array: pa.Array, type: ArrowType) -> list[pa.Array]:
    """The rows of an array, which may be of the large type, as arrays of the type: as
    many as its offsets need."""
    if array.type == type.arrow_type:
        return [array]
    middle = len(array) // 2  # not 0: one row came in an array of the type
    halves = (array[:middle], array[middle:])
    return [chunk for half in halves for chunk in narrowed(joined([half], type), type)]


def joined(arrays: Sequence[pa.Array], type: ArrowType) -> pa.Array:
    """Some rows of arrays of the type or the large one, with its dictionaries, in one
    array; of the large type if it has to be."""
    tables = [(len(array), [type.column(array)]) for array in arrays]
    (column,) = rejoined([type], tables)
    return imported(column)


def dictionaries(array: pa.Array) -> Iterator[pa.Array]:
    """The dictionaries of an array, in the order of its type's tree."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        yield array.dictionary
    elif isinstance(array, pa.StructArray):
        for at in range(array.type.num_fields):
            yield from dictionaries(array.field(at))
    elif isinstance(array, pa.MapArray):
        yield from dictionaries(array.keys)
        yield from dictionaries(array.items)
    elif isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        yield from dictionaries(array.values)


def digest(array: pa.Array) -> bytes:
    """16 bytes by which dictionaries are told apart; equal ones may have several, if
    they have anything behind what is missing."""
    written = pa.record_batch([array], [""]).serialize()  # what it shows, and no more
    inner = map(digest, dictionaries(array))
    return hashlib.blake2b(b"".join([written, *inner]), digest_size=16).digest()


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


_forms: dict[Hashable, ArrowForm | None] = {}


def arrow_form(array: Any) -> ArrowForm | PickledArrayForm:
    """The form of an ArrowExtensionArray or an ArrowStringArray.

    Raises
    ------
    pyarrow.ArrowException
        When chunks have dictionaries that Arrow cannot unite.
    """
    arrow_type, dtype = array._pa_array.type, array.dtype
    # Before pandas 2.3 string dtypes that differ in what is missing are of two classes.
    string = isinstance(dtype, pd.StringDtype)
    missing = getattr(dtype, "na_value", None) is pd.NA
    key = (type(array), spelled(arrow_type), string, missing)
    form = _forms.get(key)
    if form is None and key not in _forms:
        form = _new_form(array, key)
        if len(_forms) < 1000 and not (form and form.types[0].dictionaries):
            _forms[key] = form  # timezones and decimals are any number of types
    return form or pickled_form(array)


def _new_form(array: Any, key: tuple[Any, ...]) -> ArrowForm | None:
    arrow_type = array._pa_array.type
    try:
        _native.arrow_counts(arrow_type.__arrow_c_schema__())
    except (_native.SpillwayError, ValueError):
        return None  # what the C library has not, or has never heard of
    found = tuple(dictionaries(one_chunk(array._pa_array)))
    return ArrowForm.of(
        (*key, *map(digest, found)), PickledType(arrow_type), found, _wrapper(array)
    )


def _wrapper(array: Any) -> Wrap:
    """How to make an array such as this one: in pandas 2.2 its class has the dtype."""
    cls, dtype = type(array), array.dtype
    if not isinstance(dtype, pd.StringDtype):
        return cls  # whose dtype is Arrow's type
    if hasattr(array, "_from_pyarrow_array"):
        return _LikeOne(array)
    if cls(array._pa_array).dtype == dtype:
        return cls
    return _WithDtype(cls, dtype)
