"""The index of frames through columns."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from frame_oracle import N, assert_same, by_partition, check, dates, halves

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
