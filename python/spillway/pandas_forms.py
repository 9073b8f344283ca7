"""Forms of pandas' own arrays: their parts, which pandas has as NumPy arrays.

What is said here of the inside of pandas' arrays is tried out by `array_families.py`
before it is relied on.
"""

import hashlib
import pickle
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from spillway.array_form import ArrayForm
from spillway.column_memory import Column, JoinedColumn
from spillway.numpy_forms import ItemsForm, numpy_form


class DatesForm(ItemsForm):
    """Dates, durations or periods: integers, and a dtype that says what they mean."""

    __slots__ = ("_dtype", "_simple_new")

    def __init__(self, array_type: Any, dtype: Any, items: np.dtype[Any]) -> None:
        super().__init__(items)
        self._simple_new = array_type._simple_new
        self._dtype = dtype

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        return self._wrap(super().array(rows, columns))

    def block(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        return self._wrap(super().block(rows, columns))

    def _wrap(self, items: np.ndarray[Any, Any]) -> Any:
        return self._simple_new(items, dtype=self._dtype)


_dates: dict[Hashable, DatesForm] = {}


def dates_form(array: Any) -> DatesForm:
    """The form of a DatetimeArray, TimedeltaArray or PeriodArray."""
    cls, dtype = type(array), array.dtype
    # Zones of several libraries are equal to pandas, and yet not the same.
    key = (cls, dtype, type(getattr(dtype, "tz", None)).__module__)
    form = _dates.get(key)
    if form is None:
        form = DatesForm.of(key, cls, dtype, array._ndarray.dtype)
        if len(_dates) < 1000:  # zones can be any number
            _dates[key] = form
    return form


class MaskedForm(ArrayForm):
    """Integers, floats or booleans, and a mask of bytes."""

    __slots__ = ("_array_type", "_data", "_mask")

    def __init__(self, array_type: type, dtype: np.dtype[Any]) -> None:
        self._array_type = array_type
        self._data, self._mask = numpy_form(dtype), numpy_form(np.dtype(bool))
        self.types = self._data.types + self._mask.types

    def columns(self, array: Any) -> list[Column]:
        return self._data.columns(array._data) + self._mask.columns(array._mask)

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        data = self._data.array(rows, columns[:1])
        return self._array_type(data, self._mask.array(rows, columns[1:]))


_masked: dict[Hashable, MaskedForm] = {}
"""As many as pandas has masked dtypes."""


def masked_form(array: Any) -> MaskedForm:
    """The form of an IntegerArray, FloatingArray or BooleanArray."""
    key = type(array), array._data.dtype
    form = _masked.get(key)
    if form is None:
        cls, dtype = key
        form = _masked[key] = MaskedForm.of((cls, dtype.str), cls, dtype)
    return form


class CategoriesForm(ArrayForm):
    """Codes; the categories are part of the form."""

    __slots__ = ("_codes", "_dtype")

    def __init__(self, dtype: pd.CategoricalDtype, codes: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._codes = numpy_form(codes)
        self.types = self._codes.types

    def columns(self, array: pd.Categorical) -> list[Column]:
        return self._codes.columns(array._codes)

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        codes = self._codes.array(rows, columns)
        return pd.Categorical.from_codes(codes, dtype=self._dtype, validate=False)


def categories_form(array: pd.Categorical) -> CategoriesForm:
    dtype, codes = array.dtype, array._codes.dtype
    key = (categories_digest(dtype.categories), dtype.ordered, codes.str)
    return CategoriesForm.of(key, dtype, codes)


_digests: dict[int, tuple[weakref.ref[pd.Index], bytes]] = {}


def categories_digest(categories: pd.Index) -> bytes:
    """16 bytes by which categories are told apart, reckoned once for each object.

    Equal digests are equal values in the same order, of the same types. Equal values
    may have several digests, if they are unusual: then pandas joins what has them.

    Raises
    ------
    Exception
        What pickle raises for categories that cannot be pickled.
    """
    known = _digests.get(id(categories))
    if known is not None and known[0]() is categories:
        return known[1]
    values: Any = categories._values
    # What memory strings are in, and at which offset, is no part of them.
    if isinstance(categories.dtype, pd.StringDtype) and hasattr(values, "_pa_array"):
        values = values._pa_array.to_pylist()
    elif isinstance(categories.dtype, pd.StringDtype) or categories.dtype.kind == "O":
        values = list(categories)
    elif isinstance(values, np.ndarray):
        values = values.tobytes()
    what = (type(categories), repr(categories.dtype), categories.name, values)
    digest = hashlib.blake2b(pickle.dumps(what, 5), digest_size=16).digest()
    number = id(categories)
    reference = weakref.ref(categories, lambda _: _digests.pop(number, None))
    _digests[number] = (reference, digest)
    return digest


class IntervalForm(ArrayForm):
    """The left sides, and the right ones, which both have the same form."""

    __slots__ = ("_dtype", "_side")

    def __init__(self, dtype: pd.IntervalDtype, side: ArrayForm) -> None:
        self._dtype = dtype
        self._side = side
        self.types = side.types * 2

    def columns(self, array: Any) -> list[Column]:
        left, right = (getattr(side, "_ndarray", side) for side in _sides(array))
        return self._side.columns(left) + self._side.columns(right)

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        half = len(columns) // 2
        left = self._side.array(rows, columns[:half])
        right = self._side.array(rows, columns[half:])
        return pd.arrays.IntervalArray.from_arrays(
            left, right, closed=self._dtype.closed, dtype=self._dtype
        )


def interval_form(array: pd.arrays.IntervalArray) -> IntervalForm:
    left, right = _sides(array)
    dates = not isinstance(left, np.ndarray)
    side: ArrayForm = dates_form(left) if dates else numpy_form(left.dtype)
    if left.dtype != right.dtype:
        raise TypeError(f"intervals from {left.dtype} to {right.dtype}")
    return IntervalForm.of((array.dtype, side), array.dtype, side)


def _sides(array: Any) -> tuple[Any, Any]:
    return array._left, array._right
