"""Labels as something that can be hashed and compared by what pandas makes of them."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from spillway.pandas_forms import categories_digest

_NAN = object
"""Stands for NaN, which is not equal to itself."""


def frozen_label(label: Hashable) -> Hashable:
    """Equal for labels that are equal and of one type, all the way down."""
    if type(label) is str:
        return label
    if isinstance(label, tuple):
        return (type(label), *map(frozen_label, label))
    if isinstance(label, float | np.floating) and label != label:
        return (type(label), _NAN)
    return (type(label), label)


def frozen_dtype(dtype: Any) -> Hashable:
    if isinstance(dtype, pd.CategoricalDtype):
        return (categories_digest(dtype.categories), dtype.ordered)
    if isinstance(dtype, pd.StringDtype):
        # Strings with NaN and with NA are of one dtype in pandas 2.2.
        return (dtype.storage, repr(getattr(dtype, "na_value", None)))
    return dtype  # type: ignore[no-any-return]


def label_list(index: pd.Index) -> list[Hashable]:
    """The labels of an index; what misses of Arrow's strings is None."""
    values = index._values
    if isinstance(index.dtype, pd.StringDtype) and hasattr(values, "_pa_array"):
        return values._pa_array.to_pylist()  # type: ignore[no-any-return]
    return index.tolist()  # type: ignore[no-any-return]


def frozen(index: pd.Index, labels: list[Hashable]) -> Hashable:
    """Equal for indexes that are interchangeable as a frame's columns; `labels` is its
    `label_list`."""
    cls, names = type(index), tuple(map(frozen_label, index.names))
    if isinstance(index, pd.RangeIndex):
        return (cls, names, index.start, index.stop, index.step)
    if isinstance(index, pd.MultiIndex):
        dtypes = tuple(frozen_dtype(level.dtype) for level in index.levels)
        return (cls, names, dtypes, tuple(map(frozen_label, labels)))
    freq = getattr(index, "freq", None)
    kept = labels if set(map(type, labels)) <= {str} else map(frozen_label, labels)
    return (cls, names, frozen_dtype(index.dtype), freq, tuple(kept))


def positions(index: pd.Index, labels: list[Hashable], label: str) -> list[int]:
    """Where labels are, or begin with, a label."""
    firsts: list[Any] = labels
    if isinstance(index, pd.MultiIndex):
        firsts = [parts[0] for parts in labels]  # type: ignore[index]
    found = [
        at
        for at, other in enumerate(firsts)
        if isinstance(other, str) and other == label
    ]
    if not found:
        raise KeyError(f"{label!r} is none of the columns")
    return found
