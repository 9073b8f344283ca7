"""Frames through columns, against pandas.concat of the same rows."""

import datetime
import decimal
import pickle
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from shard_model import join, split
from spillway import (
    array_families,
    arrow_forms,
    column_memory,
    frame_columns,
    pandas_forms,
)
from spillway.arrow_forms import narrowed, one_chunk
from spillway.frame_columns import places, put_together, take_apart

N = 23
OWN_MISSING = pd.__version__ < "3"
"""Whether pandas.concat puts NaNs of its own where all items of a piece are missing."""


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
    assert_frame_equal(
        got,
        expected,
        check_exact=True,
        check_index_type="exact",
        check_column_type="exact",
        check_names=True,
        check_flags=True,
    )
    assert_index(got.index, expected.index)
    assert_index(got.columns, expected.columns)
    assert got.attrs == expected.attrs
    for at, dtype in enumerate(expected.dtypes):
        assert_dtype(got.dtypes.iloc[at], dtype)
        ours, theirs = got.iloc[:, at], expected.iloc[:, at]
        assert type(ours.array) is type(theirs.array)
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


def by_partition(frames, ids, partitions, drop=None):
    """Each partition's rows, by our columns and by pandas."""
    taken = [take_apart(frame, drop) for frame in frames]
    layout = taken[0].layout
    for other in taken[1:]:
        assert other.layout == layout and hash(other.layout) == hash(layout)
    sent = pickle.loads(pickle.dumps(layout))
    assert sent == layout and sent.types == layout.types
    shards = [split(t, i, partitions) for t, i in zip(taken, ids, strict=True)]
    for p in range(partitions):
        rows = int(sum((i == p).sum() for i in ids))
        pieces = [
            (frame if drop is None else frame.drop(columns=drop)).take(
                np.flatnonzero(i == p)
            )
            for frame, i in zip(frames, ids, strict=True)
        ]
        yield join(sent, rows, [shard[p] for shard in shards]), pd.concat(pieces)


def check(*frames, partitions=4, drop=None):
    """Columns give what pandas does, for partitions of some rows, all rows and none."""
    rng = np.random.default_rng(5)
    random = [rng.integers(0, partitions, len(frame)) for frame in frames]
    all_in_one = [np.full(len(frame), partitions - 1) for frame in frames]
    for ids in (random, all_in_one):
        for got, expected in by_partition(frames, ids, partitions, drop):
            assert_same(got, expected)


def frame_of(values, **more):
    """A frame whose columns are values and some others before and behind."""
    first = pd.Series(np.arange(len(values)))
    return pd.DataFrame({"x": first, "v": values, "y": first * 0.5}, **more)


def halves(frame):
    return frame.iloc[: N // 2], frame.iloc[N // 2 :]


NUMPY = [
    *(
        "i1",
        "i2",
        "i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "f2",
        "f4",
        "f8",
        "c8",
        "c16",
        "?",
    ),
    *("g", "G", "M8[s]", "M8[ms]", "M8[us]", "M8[ns]"),
    *("m8[s]", "m8[ms]", "m8[us]", "m8[ns]"),
]


@pytest.mark.parametrize("dtype", NUMPY)
def test_numpy_dtype(dtype):
    values = pd.Series(np.arange(N).astype(dtype))
    assert values.dtype == np.dtype(dtype)
    check(*halves(frame_of(values)))


@pytest.mark.parametrize("dtype", [">f8", ">i4", "V4", "V8"])
def test_what_pandas_cannot_take(dtype):
    values = np.arange(16 * N, dtype="u1")[: N * np.dtype(dtype).itemsize].view(dtype)
    frames = halves(frame_of(pd.Series(values)))
    assert frames[0]["v"].dtype == values.dtype
    taken = [take_apart(frame) for frame in frames]
    shards = [split(one, np.zeros(one.rows, int), 1)[0] for one in taken]
    got = join(taken[0].layout, N, shards)["v"].to_numpy()
    assert got.dtype == np.dtype(dtype).newbyteorder("=")  # as concatenating makes it
    assert got.tobytes() == values.astype(got.dtype).tobytes()


def test_nan_keeps_its_bits_and_zero_its_sign():
    values = np.arange(N) * -0.0
    values[3] = np.nan
    values.view(np.uint64)[5] = 0x7FF8000000001234
    check(*halves(frame_of(values)))


MASKED = [
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float32", "Float64", "boolean"),
]


@pytest.mark.parametrize("dtype", MASKED)
@pytest.mark.parametrize("missing", [False, True])
def test_masked(dtype, missing):
    values = [bool(n % 2) if dtype == "boolean" else n for n in range(N)]
    if missing:
        values[2::3] = [pd.NA] * len(values[2::3])
    check(*halves(frame_of(pd.array(values, dtype=dtype))))


STRINGS = [
    "string[python]",
    "string[pyarrow]",
    pd.ArrowDtype(pa.string()),
    pd.ArrowDtype(pa.large_string()),
]
if pd.__version__ >= "3":
    STRINGS += ["str", pd.StringDtype("python", na_value=np.nan)]
else:
    STRINGS.append("string[pyarrow_numpy]")


@pytest.mark.parametrize("dtype", STRINGS, ids=repr)
def test_strings(dtype):
    values = [None if n % 5 == 2 else "é" * n for n in range(N)]
    check(*halves(frame_of(pd.Series(values, dtype=object).astype(dtype))))


ARROW = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns")),
    *(pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("s")),
    *(pa.decimal128(9, 2), pa.decimal256(50, 3), pa.binary(), pa.large_binary()),
    *(pa.binary(3), pa.list_(pa.int32()), pa.struct({"a": pa.int8()})),
    *(pa.dictionary(pa.int8(), pa.string()), pa.map_(pa.string(), pa.int64())),
    *(pa.null(), pa.large_list(pa.string()), pa.list_(pa.int8(), 2)),
]


def arrow_value(arrow_type, n):
    if pa.types.is_boolean(arrow_type):
        return n % 3 == 0
    if pa.types.is_map(arrow_type):
        return [("k", n)]
    if pa.types.is_large_list(arrow_type):
        return ["x"] * (n % 3)
    if pa.types.is_list(arrow_type):
        return list(range(n % 3))
    if pa.types.is_fixed_size_list(arrow_type):
        return [n, n + 1]
    if pa.types.is_struct(arrow_type):
        return {"a": n}
    if pa.types.is_dictionary(arrow_type):
        return "ab"[n % 2]
    if pa.types.is_decimal(arrow_type):
        return decimal.Decimal(n) / 4
    if pa.types.is_fixed_size_binary(arrow_type):
        return b"%3d" % n
    if pa.types.is_large_binary(arrow_type) or pa.types.is_binary(arrow_type):
        return b"b" * n
    if pa.types.is_date(arrow_type):
        return datetime.date(2000, 1, 1 + n)
    if pa.types.is_null(arrow_type):
        return None
    return n


@pytest.mark.parametrize("arrow_type", ARROW, ids=str)
@pytest.mark.parametrize("missing", [False, True])
def test_arrow(arrow_type, missing):
    values = [arrow_value(arrow_type, n) for n in range(N)]
    if missing:
        values[1::4] = [None] * len(values[1::4])
    array = pa.array(values, arrow_type)
    whole = pd.array(array, dtype=pd.ArrowDtype(arrow_type))
    frame = frame_of(pd.Series(whole))
    check(*halves(frame))
    chunks = pa.chunked_array([array.slice(0, 5), array.slice(5, 0), array.slice(5)])
    pieces = pd.Series(pd.arrays.ArrowExtensionArray(chunks))
    check(frame_of(pieces), frame.iloc[3:9])
    none = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([], arrow_type)))
    check(frame_of(none).astype(frame.dtypes), frame)


CATEGORIES = {
    "strings": pd.Categorical(["b", "a", None, "c"] * 6),
    "ordered": pd.Categorical(
        ["b", "a"] * 12, categories=["c", "b", "a"], ordered=True
    ),
    "integers": pd.Categorical([5, 1, 3] * 8),
    "floats": pd.Categorical([0.5, np.nan, 0.25] * 8),
    "dates": pd.Categorical(pd.date_range("2000", periods=3, tz="UTC").repeat(8)),
    "intervals": pd.cut(np.arange(24), 4),
    "none": pd.Categorical([None] * 24),
    "mixed": pd.Categorical([1, "a", (2, 3), 1] * 6),
    "many": pd.Categorical(np.arange(24), categories=np.arange(70_000)),
    "wide": pd.Categorical(np.arange(24), categories=np.arange(300)),
    "arrow": pd.Categorical(pd.array(["x", "y", "x"] * 8, dtype="string[pyarrow]")),
}


@pytest.mark.parametrize("name", CATEGORIES)
def test_categories(name):
    check(*halves(frame_of(pd.Series(CATEGORIES[name][:N]))))


def test_equal_categories_of_two_objects_are_one_layout():
    one, two = (
        frame_of(pd.Series(pd.Categorical(["a", "b"], categories=list("abc"))))
        for _ in range(2)
    )
    assert take_apart(one).layout == take_apart(two).layout


@pytest.mark.parametrize(
    "other",
    [
        pd.Categorical(["a", "b"], categories=list("acb")),
        pd.Categorical(["a", "b"], categories=list("abc"), ordered=True),
        pd.Categorical(["a", "b"], categories=list("ab")),
        pd.Categorical(["a", "b"], categories=pd.Index(list("abc"), name="n")),
        pd.Categorical(["a", "b"], categories=pd.array(list("abc"), dtype="string")),
    ],
    ids=["order", "ordered", "fewer", "name", "dtype"],
)
def test_unequal_categories_are_two_layouts(other):
    frame = frame_of(pd.Series(pd.Categorical(["a", "b"], categories=list("abc"))))
    assert take_apart(frame).layout != take_apart(frame_of(pd.Series(other))).layout


def dates(periods=N, **more):
    return pd.date_range("2000-01-01", periods=periods, freq="h", **more)


class Meters(float):
    """Of a class of ours, as objects may be."""


Point = namedtuple("Point", "x y")

EXTENSIONS = {
    "utc": pd.Series(dates(tz="UTC")),
    "zone": pd.Series(dates(tz="Europe/Berlin")),
    "zone_s": pd.Series(dates(tz="US/Eastern").as_unit("s")),
    "offset": pd.Series(dates(tz=datetime.timezone(datetime.timedelta(hours=2)))),
    "not_a_time": pd.Series([pd.NaT, pd.Timestamp("2000")] * 10),
    "period": pd.Series(pd.period_range("2000", periods=N, freq="M")),
    "period_nat": pd.Series(pd.PeriodIndex(["2000", None] * 8, freq="Y")),
    "interval": pd.Series(pd.interval_range(0, periods=N)),
    "interval_both": pd.Series(pd.interval_range(0.5, periods=N, closed="both")),
    "interval_none": pd.Series([None, pd.Interval(0, 1)] * 9, dtype="interval"),
    "interval_dates": pd.Series(pd.interval_range(pd.Timestamp("2000"), periods=N)),
    "interval_deltas": pd.Series(pd.interval_range(pd.Timedelta("1D"), periods=N)),
    "sparse": pd.Series(pd.arrays.SparseArray([0, 0, 1, 0, 2] * 4)),
    "sparse_nan": pd.Series(pd.arrays.SparseArray([np.nan, 1.5] * 8)),
    "sparse_bool": pd.Series(
        pd.arrays.SparseArray([True, False] * 8, fill_value=False)
    ),
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extension(name):
    frame = frame_of(EXTENSIONS[name])
    check(frame.iloc[:7], frame.iloc[7:])


def test_intervals_of_a_zone():
    # pandas 3.1 cannot concatenate them.
    zoned = pd.interval_range(pd.Timestamp("2000", tz="Asia/Tokyo"), periods=N)
    frame = frame_of(pd.Series(zoned))
    taken, ids = take_apart(frame), np.arange(N) % 2
    for p, shard in enumerate(split(taken, ids, 2)):
        rows = np.flatnonzero(ids == p)
        got = join(taken.layout, len(rows), [shard])
        assert_same(got, frame.take(rows))


OBJECTS = {
    "none": [None, "a", np.nan, pd.NA, pd.NaT] * 5,
    "mixed": [1, "a", 2.5, b"x", True] * 5,
    "lists": [[1], [[2], [3, [4]]], [], [1, 2], None] * 5,
    "same_length_lists": [[1, 2], [3, 4]] * 10,
    "arrays": [np.arange(3), np.arange(2)] * 10,
    "tuples": [(1, 2), (3, 4), ()] * 7,
    "subclasses": [Meters(2.5), Point(1, 2), datetime.date(2000, 1, 1)] * 7,
    "integers": [2**70, -(2**90), 3] * 7,
    "frames": [pd.Series([1, 2])] * 12,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects(name):
    values = np.empty(len(OBJECTS[name]), object)
    for at, value in enumerate(OBJECTS[name]):
        values[at] = value
    frames = [frame_of(pd.Series(values[:9])), frame_of(pd.Series(values[9:]))]
    if name in ("arrays", "frames"):  # which do not say whether they are equal
        ids = [np.arange(len(frame)) % 2 for frame in frames]
        for got, expected in by_partition(frames, ids, 2):
            for ours, theirs in zip(got["v"], expected["v"], strict=True):
                assert type(ours) is type(theirs) and (ours == theirs).all()
            assert_same(got.drop(columns="v"), expected.drop(columns="v"))
        return
    all_missing = name == "none" and OWN_MISSING
    check(*frames, partitions=1 if all_missing else 4)


def test_objects_of_a_shard_stay_the_same_object():
    value = ["shared"]
    frame = pd.DataFrame({"v": [value, value, value, None]})
    ids = [np.array([0, 1, 0, 1])]
    (first, _), _ = by_partition([frame], ids, 2)
    assert first["v"].iloc[0] is first["v"].iloc[1]


def test_several_object_columns_are_one_block():
    frame = pd.DataFrame(
        {"a": ["x", 1] * 5, "b": [None] * 10, "c": [3] * 10}, dtype=object
    )
    check(frame, frame.iloc[::2])


INDEXES = {
    "range": pd.RangeIndex(N),
    "range_step": pd.RangeIndex(100, 100 - 3 * N, -3, name="r"),
    "integers": pd.Index(np.arange(N) ** 2, name="i"),
    "bytes": pd.Index(np.arange(N, dtype="u1")),
    "floats": pd.Index(np.arange(N) * 0.5),
    "bools": pd.Index([True, False] * 12)[:N],
    "objects": pd.Index([1, "a", None, (1, 2)] * 6, dtype=object, tupleize_cols=False)[
        :N
    ],
    "strings": pd.Index([f"s{n}" for n in range(N)], name=("t", 1)),
    "string_dtype": pd.Index([f"s{n}" for n in range(N)], dtype="string"),
    "arrow": pd.Index(range(N), dtype=pd.ArrowDtype(pa.int16())),
    "masked": pd.Index([1, None] * 12, dtype="Int32")[:N],
    "dates": pd.DatetimeIndex((np.arange(N) ** 2).astype("M8[s]")),
    "dates_freq": dates(),
    "dates_zone": dates(tz="Europe/Berlin", name="when")[::-1],
    "month_ends": pd.date_range("2000", periods=N, freq="MS"),
    "deltas": pd.to_timedelta(np.arange(N) ** 2, unit="s"),
    "deltas_freq": pd.timedelta_range(0, periods=N, freq="2h"),
    "periods": pd.period_range("2000", periods=N, freq="Q"),
    "categories": pd.CategoricalIndex(["b", "a", None] * 8)[:N],
    "intervals": pd.interval_range(0, periods=N, name="between"),
    "multi": pd.MultiIndex.from_product([["a", "b", "c"], range(8)], names=["l", None])[
        :N
    ],
    "multi_dates": pd.MultiIndex.from_arrays(
        [dates(tz="UTC"), pd.Categorical(["x", "y"] * 12)[:N], np.arange(N, dtype="f4")]
    ),
    "multi_missing": pd.MultiIndex.from_tuples([("a", 1.5), (None, np.nan)] * 10),
    "duplicates": pd.Index([1, 1, 2] * 7),
    "named_one": pd.Index(np.arange(N), name=1),
    "named_true": pd.Index(np.arange(N), name=True),
}


@pytest.mark.filterwarnings("ignore:assert_index_equal will check the 'freq'")
@pytest.mark.parametrize("name", INDEXES)
def test_index(name):
    index = INDEXES[name]
    frame = pd.DataFrame({"v": np.arange(len(index)) * 1.5, "w": 1}, index=index)
    check(frame, partitions=2)
    check(*halves(frame), partitions=2)
    check(frame.iloc[:0], frame, frame.iloc[:0])


def test_range_again_where_it_is_one():
    frame = pd.DataFrame({"v": range(12)})
    for ids in ([0] * 4 + [1] * 8, [0, 1] * 6, [0, 1, 1] * 4, [0] * 12):
        for got, expected in by_partition([frame], [np.array(ids)], 3):
            assert_same(got, expected)


COLUMNS = {
    "objects": pd.Index([1, "a", None, (1, 2), 2.5], dtype=object, tupleize_cols=False),
    "duplicates": pd.Index(["a", "b", "a", "a", "b"], name="dup"),
    "range": pd.RangeIndex(5, name="r"),
    "integers": pd.Index([5, 3, 1, 2, 2]),
    "floats": pd.Index([0.5, np.nan, 1, 2, np.nan]),
    "dates": pd.date_range("2000", periods=5, freq="D"),
    "categories": pd.CategoricalIndex(list("abcab")),
    "multi": pd.MultiIndex.from_product([["p", "q"], [1, 2, 3]], names=["u", "v"])[:5],
    "multi_duplicates": pd.MultiIndex.from_tuples([("p", 1)] * 5),
    "string_dtype": pd.Index(list("abcde"), dtype="string"),
    "bools": pd.Index([True, False, True, 1, 0], dtype=object),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_labels(name):
    parts = [np.arange(N), np.arange(N) * 0.5, np.arange(N) * 2, ["s"] * N, [None] * N]
    frame = pd.concat([pd.Series(part) for part in parts], axis=1)
    frame.columns = COLUMNS[name]
    check(*halves(frame))


@pytest.mark.parametrize(
    "one,other",
    [
        ([1, 2], [True, 2]),
        ([1, 2], [1.0, 2.0]),
        ([1, 2], ["1", "2"]),
        ([(1, 2), 3], [(True, 2), 3]),
        (pd.RangeIndex(2), pd.Index([0, 1])),
        (pd.Index([1, 2], name="a"), pd.Index([1, 2], name="b")),
        (pd.Index([1, 2], name=1), pd.Index([1, 2], name=True)),
    ],
)
def test_unlike_labels_are_two_layouts(one, other):
    frames = []
    for labels in (one, other):
        if isinstance(labels, list):
            labels = pd.Index(labels, dtype=object, tupleize_cols=False)
        frames.append(pd.DataFrame(np.zeros((3, 2))).set_axis(labels, axis=1))
    assert take_apart(frames[0]).layout != take_apart(frames[1]).layout


def test_labels_of_a_result_are_its_own():
    frame = frame_of(np.arange(4))
    (got, _), *_ = by_partition([frame], [np.zeros(4, int)], 1)
    got.columns.name = "changed"
    frame.columns.name = "changed too"
    (again, expected), *_ = by_partition(
        [frame_of(np.arange(4))], [np.zeros(4, int)], 1
    )
    assert_same(again, expected)


def test_attrs_and_flags():
    frame = frame_of(np.arange(N))
    frame.attrs = {"unit": ["m"], 1: 2}
    check(*halves(frame))
    strict = frame.set_flags(allows_duplicate_labels=False)
    for got, expected in by_partition([strict], [np.arange(N) % 2], 2):
        assert_same(got, expected)
        assert not got.flags.allows_duplicate_labels
    assert take_apart(strict).layout != take_apart(frame).layout


def test_a_column_is_dropped():
    frame = frame_of(["a"] * N).assign(_partitions=1)
    check(*halves(frame), drop="_partitions")
    check(*halves(frame), drop="x")
    numbers = pd.DataFrame(np.arange(3 * N).reshape(N, 3)).assign(_partitions=1)
    check(*halves(numbers), drop="_partitions")
    several = frame_of(["a"] * N).set_axis(["x", "p", "x"], axis=1)
    check(*halves(several), drop="x")
    multi = frame_of(["a"] * N).set_axis(
        pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)]), axis=1
    )
    check(*halves(multi), drop="x")
    with pytest.raises(KeyError, match="absent"):
        take_apart(frame, "absent")


def test_no_columns_and_no_rows():
    check(pd.DataFrame(index=pd.Index(list("abcd"))))
    check(pd.DataFrame(index=range(5)))
    check(frame_of(["a"] * N).iloc[:0])
    check(pd.DataFrame())
    check(pd.DataFrame({"_partitions": [1, 0, 1]}), drop="_partitions")


def test_many_columns():
    frame = pd.DataFrame(np.arange(2_500 * 6).reshape(6, 2_500))
    frame[7] = frame[7].astype("Int64")
    frame[9] = "text"
    check(frame, frame.iloc[:2], partitions=2)


@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_in_any_order_of_memory(order):
    values = np.asarray(np.arange(5.0 * N).reshape(N, 5), order=order)
    frame = pd.DataFrame(values)
    (column, *_) = take_apart(frame).columns
    assert np.shares_memory(column.values, frame._mgr.blocks[0].values)
    check(*halves(frame))
    check(frame.iloc[::-1], frame.iloc[::2])
    check(frame.iloc[:, ::-2])
    check(pd.DataFrame(np.broadcast_to(values[:1], values.shape)))


def test_how_blocks_are_cut_is_not_part_of_the_layout():
    whole = pd.DataFrame(np.arange(4.0 * N).reshape(N, 4), columns=list("abcd"))
    pieces = pd.DataFrame({label: whole[label].copy() for label in whole})
    assert take_apart(whole).layout == take_apart(pieces).layout
    check(whole, pieces)


def test_taking_apart_copies_nothing():
    frame = pd.DataFrame(
        {
            "f": np.arange(N) * 0.5,
            "d": dates(),
            "z": dates(tz="UTC"),
            "m": pd.array([1] * N, dtype="Int64"),
            "c": pd.Categorical(["a"] * N),
            "p": pd.period_range("2000", periods=N),
        }
    )
    arrays = [frame[label].array for label in frame]
    memory = [
        frame["f"].to_numpy(),
        arrays[1]._ndarray,
        arrays[2]._ndarray,
        arrays[3]._data,
        arrays[3]._mask,
        arrays[4]._codes,
        arrays[5]._ndarray,
    ]
    columns = [c for c in take_apart(frame).columns if c.kind == "fixed"]
    for source in memory:
        assert any(np.shares_memory(source, c.values) for c in columns)


def test_blocks_are_made_of_what_was_allocated():
    frame = pd.DataFrame({"a": [1.5, 2], "b": [3.0, 4], "n": [1, 2], "t": ["x", "y"]})
    given = []

    def allocate(nbytes):
        given.append(np.zeros(nbytes, np.uint8))
        return memoryview(given[-1])

    taken = take_apart(frame)
    ids = np.array([0, 0])
    got = join(taken.layout, 2, [split(taken, ids, 1)[0]], allocate)
    assert_same(got, frame.take([0, 1]))
    sizes = [len(memory) for memory in given]
    assert 2 * 2 * 8 in sizes  # a and b, side by side
    for block in got._mgr.blocks:
        if isinstance(block.values, np.ndarray) and block.values.dtype != object:
            assert any(np.shares_memory(block.values, memory) for memory in given)
    got.iloc[0, 0] = 7.0
    assert got.iloc[0, 0] == 7.0 and got.iloc[0, 1] == 3.0


def test_columns_of_a_block_that_are_apart():
    frame = pd.DataFrame({"a": [1.5, 2], "b": [3.0, 4]}, index=[3, 8])
    taken = take_apart(frame)
    joined = places(taken.layout, 2, [], lambda n: bytearray(n))
    for place, column in zip(joined, taken.columns, strict=True):
        place.values = np.ascontiguousarray(column.values).view(np.uint8)
        place.block = None
    assert_same(put_together(taken.layout, 2, joined), frame)


def test_wrong_numbers_are_errors():
    layout = take_apart(frame_of(["a"])).layout
    with pytest.raises(ValueError):
        places(layout, 1, [], bytearray)
    with pytest.raises(ValueError, match="types"):
        put_together(layout, 1, [])
    objects = pd.DataFrame({"o": [None, 1, ()]}, dtype=object)
    taken = take_apart(objects)
    shard = split(taken, np.zeros(3, int), 1)[0]
    with pytest.raises(ValueError, match="4 are wanted"):
        joined = places(taken.layout, 4, [len(shard[0].values)], bytearray)
        joined[0].data[:] = np.frombuffer(shard[0].values, np.uint8)
        put_together(taken.layout, 4, joined)


class Framed(pd.DataFrame):
    """A class that has more to it than a frame."""

    @property
    def _constructor(self):
        return Framed


def test_a_class_of_its_own_is_pickled():
    frame = Framed({"a": range(N), "b": "x"})
    check(*halves(frame))
    check(*halves(frame), drop="a")
    assert [type.kind for type in take_apart(frame).layout.types] == ["blob"]


def test_an_array_that_cannot_be_taken_apart_is_pickled(monkeypatch):
    frame = frame_of(pd.array([1, None, 3] * 5, dtype="Int64"))
    array_families.families.cache_clear()
    monkeypatch.setattr(
        pandas_forms.MaskedForm, "array", lambda *_: pd.array([7, None], "Int64")
    )
    try:
        families = array_families.families()
        assert pd.arrays.IntegerArray not in families
        assert pd.Categorical in families
    finally:
        monkeypatch.undo()
    try:
        kinds = [type.kind for type in take_apart(frame).layout.types]
        assert kinds.count("blob") == 1
        check(*halves(frame))
    finally:
        array_families.families.cache_clear()


def test_frames_without_blocks_are_pickled(monkeypatch):
    frame = frame_of(["a", "b"] * 8)
    frame_columns.blocks_hold.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(frame_columns, "take_blocks", lambda frame: frame.absent)
        assert not frame_columns.blocks_hold()
    try:
        assert [type.kind for type in take_apart(frame).layout.types] == ["blob"]
        check(*halves(frame))
    finally:
        frame_columns.blocks_hold.cache_clear()


def test_layouts_are_equal_in_another_process():
    code = """if True:
        import pickle, sys
        import pandas as pd
        from spillway.frame_columns import take_apart
        layout = pickle.loads(sys.stdin.buffer.read())
        frame = pd.DataFrame({
            "a": [1], "t": pd.Categorical(["x"]),
            "z": pd.date_range("2000", periods=1, tz="UTC"), "s": ["text"],
        })
        assert take_apart(frame).layout == layout
        sys.stdout.buffer.write(pickle.dumps(take_apart(frame).layout))
    """
    frame = pd.DataFrame(
        {
            "a": [2, 3],
            "t": pd.Categorical(["x", None]),
            "z": pd.date_range("2001", periods=2, tz="UTC"),
            "s": ["more", None],
        }
    )
    layout = take_apart(frame).layout
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(layout),
        capture_output=True,
        check=True,
    )
    assert pickle.loads(done.stdout) == layout


def test_chunks_of_arrow_are_joined_into_what_counts_their_bytes():
    chunks = pa.chunked_array([["ab", None], ["cde"]])
    assert one_chunk(chunks).type == pa.string()
    wide = one_chunk(chunks, most=4)
    assert wide.type == pa.large_string()
    assert wide.to_pylist() == ["ab", None, "cde"]
    again = narrowed(wide, pa.string(), most=4)
    assert [chunk.to_pylist() for chunk in again.chunks] == [["ab", None], ["cde"]]
    assert again.type == pa.string()
    # One value that is too large alone is cast, which says so.
    assert narrowed(wide, pa.string(), most=1).to_pylist() == ["ab", None, "cde"]


def test_strings_that_small_offsets_cannot_count(monkeypatch):
    monkeypatch.setattr(column_memory, "MAX_SMALL_OFFSET", 50)
    monkeypatch.setattr(arrow_forms.narrowed, "__defaults__", (50,))
    monkeypatch.setattr(arrow_forms.one_chunk, "__defaults__", (50,))
    values = pa.array([None if n == 3 else "x" * n for n in range(N)])
    whole = frame_of(pd.Series(pd.arrays.ArrowExtensionArray(values)))
    pieces = pa.chunked_array([values.slice(0, 9), values.slice(9)])
    check(whole, frame_of(pd.Series(pd.arrays.ArrowExtensionArray(pieces))))
    taken = take_apart(whole)
    joined = places(taken.layout, N, [51], bytearray)
    assert [place.item_size for place in joined if place.kind == "binary"] == [8]


def test_what_is_left_of_an_array_does_not_keep_its_memory():
    array = pd.array(["a" * 1000] * 100, dtype="string[pyarrow]")
    layout = take_apart(pd.DataFrame({"s": array})).layout
    assert len(pickle.dumps(layout)) < 5_000


DTYPES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint8": st.integers(0, 255),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "complex128": st.complex_numbers(),
    "bool": st.booleans(),
    "M8[s]": st.integers(-(2**31), 2**31),
    "m8[us]": st.integers(-(2**31), 2**31),
    "Int16": st.one_of(st.none(), st.integers(-(2**15), 2**15 - 1)),
    "Float64": st.one_of(st.none(), st.integers(-(2**15), 2**15 - 1)),
    "boolean": st.one_of(st.none(), st.booleans()),
    "string[pyarrow]": st.one_of(st.none(), st.text(max_size=6)),
    "string[python]": st.one_of(st.none(), st.text(max_size=6)),
    "category": st.one_of(st.none(), st.sampled_from(["u", "v", "w"])),
    "object": st.one_of(st.none(), st.text(max_size=3), st.lists(st.integers())),
    "datetime64[ns, Asia/Tokyo]": st.integers(0, 2**60),
    "period[D]": st.one_of(st.none(), st.dates().map(str)),
    "Sparse[int64]": st.integers(0, 3),
    "int32[pyarrow]": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    "bool[pyarrow]": st.one_of(st.none(), st.booleans()),
    "binary[pyarrow]": st.one_of(st.none(), st.binary(max_size=5)),
}
if OWN_MISSING:
    DTYPES["object"] = st.one_of(st.text(max_size=3), st.lists(st.integers()))
CATEGORICAL = pd.CategoricalDtype(["w", "v", "u"])


def array_of(dtype, values):
    if dtype == "category":
        return pd.Categorical(values, dtype=CATEGORICAL)
    if dtype == "object":
        items = np.empty(len(values), object)
        for at, value in enumerate(values):
            items[at] = value
        return pd.Series(items, dtype=object)  # else pandas 3 makes text of it
    if dtype[:2] in ("M8", "m8"):
        return np.array(values, "i8").view(dtype[:2] + dtype[2:])
    if dtype.startswith("datetime64"):
        return pd.DatetimeIndex(np.array(values, "i8").view("M8[ns]"), tz="Asia/Tokyo")
    return (
        pd.array(values, dtype=dtype) if dtype not in PLAIN else np.array(values, dtype)
    )


PLAIN = ("int64", "uint8", "float32", "float64", "complex128", "bool")


@st.composite
def frames_and_ids(draw):
    """Frames of one schema, cut in any way out of larger ones, and partitions."""
    dtypes = draw(st.lists(st.sampled_from(sorted(DTYPES)), max_size=8))
    labels = draw(st.lists(st.sampled_from(["a", "b", 1, ("t", 2)]), min_size=8))
    index_dtype = draw(st.sampled_from([None, "int64", "string[pyarrow]", "category"]))
    frames, ids = [], []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 12))

        def column(dtype, rows=rows):
            values = st.lists(DTYPES[dtype], min_size=rows, max_size=rows)
            return array_of(dtype, draw(values))

        frame = pd.DataFrame({n: column(dtype) for n, dtype in enumerate(dtypes)})
        if index_dtype is None:
            frame = frame.reindex(range(rows)) if not dtypes else frame
        else:
            frame = (
                frame.set_axis(pd.Index(column(index_dtype), name="i"))
                if dtypes
                else (pd.DataFrame(index=pd.Index(column(index_dtype), name="i")))
            )
        frame.columns = pd.Index(
            labels[: len(dtypes)], dtype=object, tupleize_cols=False
        )
        begin = draw(st.integers(0, rows))
        frames.append(frame.iloc[begin :: draw(st.sampled_from([1, 1, 2, -1]))])
        size = len(frames[-1])
        some = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
        ids.append(np.array(some, int))
    return frames, ids


@settings(max_examples=60, deadline=None)
@given(frames_and_ids())
def test_any_schema(case):
    for got, expected in by_partition(*case, 3):
        assert_same(got, expected)
