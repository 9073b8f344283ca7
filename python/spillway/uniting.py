"""Frames of unequal layouts, one after another: what Dask's concatenation gives."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals


def concat(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The rows of frames, in order, as `pandas.concat` gives them, but that categories
    are united where pandas would make them objects.

    Those of a column, or of an index, or of a level of one, that are categorical in all
    frames. What cannot be united, since the order of categories means something or they
    have several dtypes, becomes what pandas makes of it.

    Raises
    ------
    ValueError
        When there are no frames.
    Exception
        What `pandas.concat` raises.
    """
    if len(frames) > 1:
        indexes = unite_indexes([frame.index for frame in frames])
        frames = unite_columns(frames)
        if indexes is not None:
            frames = [
                frame.set_axis(index)
                for frame, index in zip(frames, indexes, strict=True)
            ]
    with warnings.catch_warnings():
        # As Dask has it: about labels that cannot be sorted, and empty frames' dtypes.
        warnings.simplefilter("ignore", RuntimeWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return pd.concat(frames, sort=False)


def unite_columns(frames: Sequence[pd.DataFrame]) -> Sequence[pd.DataFrame]:
    """The frames, with one dtype for each column that is categorical in all of them."""
    first = frames[0]
    categorical = [
        at
        for at, dtype in enumerate(first.dtypes)
        if isinstance(dtype, pd.CategoricalDtype)
    ]
    if not categorical:
        return frames
    places = [places_of(first, frame) for frame in frames]
    united = [frame.copy(deep=False) for frame in frames]
    for at in categorical:
        if any(at not in there for there in places):
            continue
        columns = [
            frame.iloc[:, there[at]].array
            for frame, there in zip(frames, places, strict=True)
        ]
        arrays = unite(columns)
        if arrays is not None:
            for frame, there, array in zip(united, places, arrays, strict=True):
                frame.isetitem(there[at], array)
    return united


def places_of(first: pd.DataFrame, frame: pd.DataFrame) -> dict[int, int]:
    """Where a frame has the columns that the first one has, by position."""
    if frame.columns.equals(first.columns):
        return {at: at for at in range(first.columns.size)}
    if not (first.columns.is_unique and frame.columns.is_unique):
        return {}  # and pandas.concat will say that it cannot tell either
    found = frame.columns.get_indexer(first.columns)
    return {at: int(there) for at, there in enumerate(found) if there >= 0}


def unite_indexes(indexes: list[pd.Index]) -> list[pd.Index] | None:
    """The indexes with one dtype for what is categorical in all; None if they stay."""
    if all(isinstance(index, pd.MultiIndex) for index in indexes):
        return unite_levels(indexes)
    arrays = unite([index.array for index in indexes])
    if arrays is None:
        return None
    return [
        pd.CategoricalIndex(array, name=index.name)
        for array, index in zip(arrays, indexes, strict=True)
    ]


def unite_levels(indexes: list[Any]) -> list[pd.Index] | None:
    depth = indexes[0].nlevels
    if any(index.nlevels != depth for index in indexes):
        return None
    columns = [[index.get_level_values(n) for n in range(depth)] for index in indexes]
    changed = False
    for n in range(depth):
        arrays = unite([levels[n].array for levels in columns])
        if arrays is not None:
            changed = True
            for levels, array in zip(columns, arrays, strict=True):
                levels[n] = pd.CategoricalIndex(array)
    if not changed:
        return None
    return [
        pd.MultiIndex.from_arrays(levels, names=index.names)
        for levels, index in zip(columns, indexes, strict=True)
    ]


def unite(arrays: list[Any]) -> list[pd.Categorical] | None:
    """Categoricals with the categories of all of them, in the order in which they come;
    None where there is nothing to unite, or no way to."""
    if not all(isinstance(array, pd.Categorical) for array in arrays):
        return None
    dtypes = [array.dtype for array in arrays]
    if all(dtype is dtypes[0] for dtype in dtypes[1:]):
        return None
    # Of categories that are none the dtype says nothing: that of all values missing.
    some = [dtype for dtype in dtypes if len(dtype.categories)] or dtypes[:1]
    if len({dtype.categories.dtype for dtype in some}) > 1:
        return None
    ordered = some[0].ordered
    if any(dtype.ordered != ordered for dtype in some):
        return None
    if ordered:
        if any(not dtype.categories.equals(some[0].categories) for dtype in some):
            return None
        dtype = some[0]
    else:
        none = np.empty(0, np.int8)
        dtype = union_categoricals(
            [pd.Categorical.from_codes(none, dtype=each) for each in some]
        ).dtype
    return [array.set_categories(dtype.categories, ordered=ordered) for array in arrays]
