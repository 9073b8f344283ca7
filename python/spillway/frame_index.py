"""The index of a frame as columns, and back."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from spillway.array_families import bare, form_of
from spillway.array_form import ArrayForm, Interned
from spillway.column_memory import Column, JoinedColumn
from spillway.frame_labels import frozen_label
from spillway.numpy_forms import numpy_form

KNOWN = (
    pd.Index,
    pd.RangeIndex,
    pd.MultiIndex,
    pd.DatetimeIndex,
    pd.TimedeltaIndex,
    pd.PeriodIndex,
    pd.CategoricalIndex,
    pd.IntervalIndex,
)
"""Classes that have nothing but their values and names."""


class IndexForm(Interned):
    """What rebuilding an index needs beside the bytes of its columns.

    A RangeIndex is integers, which whoever splits it writes out. Of a MultiIndex each
    level is written out: what pandas.concat gives has levels found anew, too.

    Attributes
    ----------
    types
        Of its columns, level after level.
    """

    __slots__ = ("_forms", "_freq", "_is_multi", "_is_range", "_names", "types")

    def __init__(
        self,
        is_multi: bool,
        is_range: bool,
        names: tuple[Any, ...],
        forms: tuple[ArrayForm, ...],
        freq: Any,
    ) -> None:
        self._is_multi = is_multi
        self._names = names
        self._forms = forms
        self._is_range = is_range
        self._freq = freq
        self.types = tuple(type for form in forms for type in form.types)

    def index(self, rows: int, columns: Sequence[JoinedColumn]) -> pd.Index:
        arrays, at = [], 0
        for form in self._forms:
            end = at + len(form.types)
            arrays.append(form.array(rows, columns[at:end]))
            at = end
        if self._is_multi:
            levels = [index_of(array) for array in arrays]
            return pd.MultiIndex.from_arrays(levels, names=self._names)
        name = self._names[0]
        if self._is_range and ranges_stay():
            found = evenly_spaced(arrays[0])
            if found is not None:
                return pd.RangeIndex(found, name=name)
        index = index_of(arrays[0])
        if name is not None:
            index.name = name
        return index if self._freq is None else with_freq(index, self._freq)


def take_index(index: pd.Index) -> tuple[IndexForm, list[Column]]:
    """The form and the columns of an index, which is of a class in KNOWN."""
    cls = type(index)
    is_multi, is_range = cls is pd.MultiIndex, cls is pd.RangeIndex
    taken: list[tuple[ArrayForm, list[Column]]]
    if isinstance(index, pd.RangeIndex):
        # As it is, so that nothing is written out under the interpreter's lock.
        form = numpy_form(np.dtype(np.int64))
        steps = range(index.start, index.stop, index.step)
        taken = [(form, [Column(form.types[0], steps)])]
    elif is_multi:
        levels = [index.get_level_values(n) for n in range(index.nlevels)]
        taken = [take_array(level._values) for level in levels]
    else:
        taken = [take_array(index._values)]
    forms = tuple(form for form, _ in taken)
    columns = [column for _, some in taken for column in some]
    names = tuple(index.names) if is_multi else (index.name,)
    freq = None
    if cls is pd.DatetimeIndex or cls is pd.TimedeltaIndex:
        freq = index.freq  # type: ignore[attr-defined]
    parameters = (is_multi, is_range, names, forms, freq)
    key = (*parameters, tuple(map(frozen_label, names)))
    return IndexForm.of(key, *parameters), columns


def take_array(array: Any) -> tuple[ArrayForm, list[Column]]:
    """The form and the columns of an array of one dimension, NumPy's or pandas'."""
    if isinstance(array, np.ndarray):
        form: ArrayForm = numpy_form(array.dtype)
        return form, form.columns(array)
    form = form_of(array)
    return form, form.columns(bare(form, array))


def index_of(array: Any) -> pd.Index:
    """An index of an array that came from one, of its dtype, without a copy."""
    if isinstance(array, np.ndarray):  # which pandas has in no index but the plain one
        return pd.Index._simple_new(array, None)  # type: ignore[attr-defined]
    return pd.Index(array, dtype=array.dtype, copy=False)


@functools.cache
def ranges_stay() -> bool:
    """Whether evenly spaced rows of a RangeIndex are one again, as from pandas 3 on."""
    return type(pd.RangeIndex(4).take(np.array([1, 3]))) is pd.RangeIndex


def evenly_spaced(values: np.ndarray[Any, Any]) -> range | None:
    """The range that has these integers, as pandas finds it."""
    if len(values) == 0:
        return range(0)
    first = int(values[0])
    if len(values) == 1:
        return range(first, first + 1)
    step = int(values[1]) - first
    last = first + step * (len(values) - 1)
    if step == 0 or last != values[-1] or (np.diff(values) != step).any():
        return None
    return range(first, last + step, step)


def with_freq(index: Any, freq: Any) -> pd.Index:
    """The index with a freq, if its values are that regular.

    One of rows that were neighbours before, as pandas finds it. (Of rows of which
    pandas finds that they were every n-th, the freq is lost.)
    """
    if len(index):
        make = (
            pd.date_range if isinstance(index, pd.DatetimeIndex) else pd.timedelta_range
        )
        regular = make(index[0], periods=len(index), freq=freq, unit=index.unit)
        if not regular.equals(index):
            return index
    index.freq = freq
    return index
