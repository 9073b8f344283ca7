"""Frames through columns, against pandas.concat of the same rows."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from frame_shards import Kept
from spillway.frame_columns import take_apart

N = 23

OWN_MISSING = pd.__version__ < "3"
"""Whether pandas.concat puts NaNs of its own where all items of a piece are missing."""


def partition_ids(rows):
    """Any partitions of so many rows."""
    some = st.lists(st.integers(0, 2), min_size=rows, max_size=rows)
    return some.map(lambda ids: np.array(ids, int))


def assert_dtype(got, expected):
    assert type(got) is type(expected)
    assert got == expected
    if isinstance(expected, pd.CategoricalDtype):
        assert got.ordered == expected.ordered
        assert_dtype(got.categories.dtype, expected.categories.dtype)
        assert list(got.categories) == list(expected.categories)
    if isinstance(expected, pd.StringDtype):
        assert got.storage == expected.storage
        assert repr(got.na_value) == repr(expected.na_value)
    if isinstance(expected, pd.DatetimeTZDtype):
        assert type(got.tz) is type(expected.tz)
    if isinstance(expected, pd.ArrowDtype):
        assert_arrow_type(got.pyarrow_dtype, expected.pyarrow_dtype)


def assert_arrow(got, expected):
    assert got.to_pylist() == expected.to_pylist()
    try:
        expected.validate(full=True)
    except pa.ArrowInvalid:  # behind what is missing Arrow itself has any codes
        return
    got.validate(full=True)


def assert_arrow_type(got, expected):
    """Arrow's own equality knows nothing of some of this."""
    assert type(got) is type(expected) and got.equals(expected, check_metadata=True)
    if isinstance(expected, pa.MapType):
        assert got.keys_sorted == expected.keys_sorted
    if isinstance(expected, pa.DictionaryType):
        assert got.ordered == expected.ordered
        assert_arrow_type(got.value_type, expected.value_type)
    if isinstance(expected, pa.BaseExtensionType):
        assert_arrow_type(got.storage_type, expected.storage_type)
    for at in range(expected.num_fields):
        ours, theirs = got.field(at), expected.field(at)
        assert (ours.name, ours.nullable) == (theirs.name, theirs.nullable)
        assert ours.metadata == theirs.metadata
        assert_arrow_type(ours.type, theirs.type)


def assert_index(got, expected):
    if not isinstance(expected, pd.RangeIndex):
        assert type(got) is type(expected)
    assert_dtype(got.dtype, expected.dtype)
    assert list(map(type, got.names)) == list(map(type, expected.names))
    if isinstance(expected, pd.MultiIndex):
        for n in range(expected.nlevels):
            assert_index(got.get_level_values(n), expected.get_level_values(n))


def level_values(index):
    return [index.get_level_values(n) for n in range(index.nlevels)]


def assert_same(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected.index, pd.MultiIndex):
        # Of one piece, pandas keeps the levels that no row has; and for what is in a
        # level it may have a range. What rows have is the same.
        assert_index(got.index, expected.index)
        for ours, theirs in zip(
            level_values(got.index), level_values(expected.index), strict=True
        ):
            pd.testing.assert_index_equal(ours, theirs, exact="equiv")
        got, expected = got.reset_index(drop=True), expected.reset_index(drop=True)
    known = [not isinstance(dtype, pd.ArrowDtype) for dtype in expected.dtypes]
    assert_frame_equal(
        got.loc[:, known],  # Arrow's nested types pandas cannot all compare
        expected.loc[:, known],
        check_exact=True,
        check_index_type="exact",
        check_column_type="exact",
        check_names=True,
        check_flags=True,
    )
    pd.testing.assert_index_equal(got.columns, expected.columns, exact=True)
    assert_index(got.index, expected.index)
    assert_index(got.columns, expected.columns)
    assert got.attrs == expected.attrs
    for at, dtype in enumerate(expected.dtypes):
        assert_dtype(got.dtypes.iloc[at], dtype)
        ours, theirs = got.iloc[:, at], expected.iloc[:, at]
        assert type(ours.array) is type(theirs.array)
        if isinstance(dtype, pd.ArrowDtype):
            assert_arrow(ours.array._pa_array, theirs.array._pa_array)
        if dtype.kind == "O" and isinstance(dtype, np.dtype):
            assert list(map(type, ours)) == list(map(type, theirs))
        if isinstance(dtype, np.dtype) and dtype.kind in "fc" and not OWN_MISSING:
            assert ours.to_numpy().tobytes() == theirs.to_numpy().tobytes()
    got._mgr._verify_integrity()
    if type(got) is pd.DataFrame:
        assert_dtypes_of_blocks(got)


def assert_dtypes_of_blocks(frame):
    for block in frame._mgr.blocks:
        if isinstance(block.values, np.ndarray):
            assert block.values.flags.writeable
            assert block.values.shape[0] == len(block.mgr_locs)


def by_partition(frames, ids, partitions, drop=None, one_layout=True):
    """Each partition's rows, by our columns and by pandas."""
    taken = [take_apart(frame, drop) for frame in frames]
    layouts = [each.layout for each in taken]
    if one_layout:
        for other in layouts[1:]:
            assert other == layouts[0] and hash(other) == hash(layouts[0])
    kept = Kept(partitions)
    for each, some in zip(taken, ids, strict=True):
        sent = pickle.loads(pickle.dumps(each.layout))
        assert sent == each.layout
        kept.put(each, some, sent)
    for p, got in enumerate(kept.frames()):
        pieces = [
            (frame if drop is None else frame.drop(columns=drop)).take(
                np.flatnonzero(i == p)
            )
            for frame, i in zip(frames, ids, strict=True)
        ]
        yield got, pd.concat(pieces)


def check(*frames, partitions=4, drop=None, one_layout=True):
    """Columns give what pandas does, for partitions of some rows, all rows and none."""
    rng = np.random.default_rng(5)
    random = [rng.integers(0, partitions, len(frame)) for frame in frames]
    all_in_one = [np.full(len(frame), partitions - 1) for frame in frames]
    for ids in (random, all_in_one):
        for got, expected in by_partition(frames, ids, partitions, drop, one_layout):
            assert_same(got, expected)


def frame_of(values, **more):
    """A frame whose columns are values and some others before and behind."""
    first = pd.Series(np.arange(len(values)))
    return pd.DataFrame({"x": first, "v": values, "y": first * 0.5}, **more)


def halves(frame):
    return frame.iloc[: N // 2], frame.iloc[N // 2 :]


def dates(periods=N, **more):
    return pd.date_range("2000-01-01", periods=periods, freq="h", **more)
