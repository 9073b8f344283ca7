"""Frames taken apart to columns of memory, and put together from them."""

import numpy as np
import pandas as pd
import pytest

from frame_oracle import N, assert_same, check, dates, frame_of, halves
from frame_shards import joined
from spillway import array_families, frame_columns, pandas_forms
from spillway.column_memory import BLOB, ItemsType, JoinedColumn
from spillway.frame_columns import places, put_together, take_apart


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
    columns = [c for c in take_apart(frame).columns if isinstance(c.type, ItemsType)]
    for source in memory:
        assert any(np.shares_memory(source, c.values) for c in columns)


def test_blocks_are_made_of_what_was_allocated():
    frame = pd.DataFrame({"a": [1.5, 2], "b": [3.0, 4], "n": [1, 2], "t": ["x", "y"]})
    given = []

    def allocate(nbytes):
        given.append(np.zeros(nbytes, np.uint8))
        return memoryview(given[-1])

    got = joined(frame, allocate)
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
    apart = [
        JoinedColumn(np.ascontiguousarray(column.values).view(np.uint8))
        for column in taken.columns
    ]
    assert_same(put_together(taken.layout, 2, apart), frame)


def test_wrong_numbers_are_errors():
    layout = take_apart(frame_of(["a"])).layout
    with pytest.raises(ValueError, match="0 counts for columns that have 1"):
        places(layout, 1, [], bytearray)
    with pytest.raises(ValueError, match="types"):
        put_together(layout, 1, [])
    objects = pd.DataFrame({"o": [None, 1, ()]}, dtype=object)
    taken = take_apart(objects)
    data, _ = taken.columns[0].values.pickle(np.arange(3), np.array([0, 3]))
    filled = places(taken.layout, 4, [len(data)], bytearray)
    filled[0].memory[:] = data
    with pytest.raises(ValueError, match="4 are wanted"):
        put_together(taken.layout, 4, filled)


class Framed(pd.DataFrame):
    """A class that has more to it than a frame."""

    @property
    def _constructor(self):
        return Framed


def test_a_class_of_its_own_is_pickled():
    frame = Framed({"a": range(N), "b": "x"})
    check(*halves(frame))
    check(*halves(frame), drop="a")
    assert take_apart(frame).layout.types == (BLOB,)


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
        assert take_apart(frame).layout.types.count(BLOB) == 1
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
        assert take_apart(frame).layout.types == (BLOB,)
        check(*halves(frame))
    finally:
        frame_columns.blocks_hold.cache_clear()
