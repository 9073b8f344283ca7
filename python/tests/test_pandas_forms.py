"""pandas' own arrays through columns."""

import datetime

import numpy as np
import pandas as pd
import pytest

from frame_oracle import N, assert_same, check, dates, frame_of, halves
from frame_shards import partitioned
from spillway.frame_columns import take_apart

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
    ids = np.arange(N) % 2
    for p, got in enumerate(partitioned([frame], [ids], 2)):
        assert_same(got, frame.take(np.flatnonzero(ids == p)))
