"""NumPy arrays through columns, and objects, which are pickled."""

import datetime
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest

from frame_oracle import (
    OWN_MISSING,
    N,
    assert_same,
    by_partition,
    check,
    frame_of,
    halves,
)
from frame_shards import partitioned

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
    (got,) = partitioned(frames, [np.zeros(len(frame), int) for frame in frames], 1)
    got = got["v"].to_numpy()
    assert got.dtype == np.dtype(dtype).newbyteorder("=")  # as concatenating makes it
    assert got.tobytes() == values.astype(got.dtype).tobytes()


def test_nan_keeps_its_bits_and_zero_its_sign():
    values = np.arange(N) * -0.0
    values[3] = np.nan
    values.view(np.uint64)[5] = 0x7FF8000000001234
    check(*halves(frame_of(values)))


class Meters(float):
    """Of a class of ours, as objects may be."""


Point = namedtuple("Point", "x y")


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
