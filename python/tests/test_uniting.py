"""Frames of unequal layouts, joined as Dask joins them."""

import numpy as np
import pandas as pd
import pytest
from dask.dataframe import methods
from pandas.testing import assert_frame_equal

from spillway.uniting import concat


def categorical(values, categories=None, ordered=False):
    return pd.Categorical(values, categories=categories, ordered=ordered)


ONE = pd.DataFrame({"c": categorical(["b", "a"]), "n": [1, 2]})
TWO = pd.DataFrame({"c": categorical(["d", "b", None]), "n": [1.5, 2, 3]})
NONE = pd.DataFrame({"c": categorical([None]), "n": [4]})


def as_dask(frames):
    expected = methods.concat([frame.copy() for frame in frames])
    got = concat(frames)
    assert_frame_equal(got, expected)
    return got


@pytest.mark.parametrize("frames", [[ONE, TWO], [TWO, ONE, TWO], [ONE, ONE.iloc[:0]]])
def test_categories_are_united(frames):
    before = [frame.copy() for frame in frames]
    got = as_dask(frames)
    assert isinstance(got["c"].dtype, pd.CategoricalDtype)
    for frame, copy in zip(frames, before, strict=True):
        assert_frame_equal(frame, copy)


def test_no_categories_change_nothing():
    got = concat([ONE, NONE, TWO])
    assert list(got["c"].cat.categories) == ["a", "b", "d"]
    assert got["c"].isna().tolist() == [False, False, True, False, False, True]


def test_other_columns_are_pandas_own():
    frames = [
        pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        pd.DataFrame({"b": [1.5], "d": pd.array([3], dtype="Int8")}),
    ]
    as_dask(frames)
    as_dask(frames[:1])


def test_a_column_that_is_not_everywhere():
    frames = [ONE, TWO.assign(more=categorical(["x", "y", "x"]))]
    got = concat(frames)
    assert list(got["c"].cat.categories) == ["a", "b", "d"]
    assert got["more"].isna().tolist() == [True, True, False, False, False]


def test_labels_that_are_twice_there():
    frames = [frame[["c", "n", "c"]] for frame in (ONE, TWO)]
    got = concat(frames)
    for at in (0, 2):
        assert list(got.iloc[:, at].cat.categories) == ["a", "b", "d"]
        assert got.iloc[:, at].astype(object).fillna("-").tolist() == list("badb-")


@pytest.mark.parametrize(
    "values",
    [
        categorical([1, 2]),
        categorical(["b", "a"], ["b", "a"], ordered=True),
        ["b", "a"],
    ],
    ids=["dtype", "ordered", "plain"],
)
def test_what_cannot_be_united_is_as_pandas_has_it(values):
    frames = [ONE, pd.DataFrame({"c": values, "n": [1, 2]})]
    assert_frame_equal(concat(frames), pd.concat(frames))


def test_ordered_categories_stay_ordered_if_they_are_equal():
    frames = [
        pd.DataFrame({"c": categorical(values, ["b", "a"], ordered=True), "n": more})
        for values, more in ((["a"], [1]), (["b"], [0.5]))
    ]
    got = as_dask(frames)
    assert got["c"].dtype == frames[0]["c"].dtype


def test_categories_of_an_index():
    frames = [
        pd.DataFrame({"v": [1, 2]}, index=pd.CategoricalIndex(["b", "a"], name="i")),
        pd.DataFrame({"v": [3.5]}, index=pd.CategoricalIndex(["c"], name="i")),
    ]
    got = as_dask(frames)
    assert list(got.index.categories) == ["a", "b", "c"]


def test_categories_of_levels():
    frames = []
    for values in (["b", "a"], ["c", "a"]):
        levels = [categorical(values), np.arange(2)]
        index = pd.MultiIndex.from_arrays(levels, names=["x", "y"])
        frames.append(pd.DataFrame({"v": [1, 2]}, index=index))
    got = concat(frames)
    assert got.index.names == ["x", "y"]
    level = got.index.get_level_values(0)
    assert list(level.categories) == ["a", "b", "c"]
    assert list(level) == ["b", "a", "c", "a"]


def test_no_frames():
    with pytest.raises(ValueError):
        concat([])
