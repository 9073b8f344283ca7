"""What a frame has beside its rows: labels, attributes, and the layout of all."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from frame_oracle import N, assert_same, by_partition, check, frame_of, halves
from spillway.frame_columns import take_apart

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


def test_how_blocks_are_cut_is_not_part_of_the_layout():
    whole = pd.DataFrame(np.arange(4.0 * N).reshape(N, 4), columns=list("abcd"))
    pieces = pd.DataFrame({label: whole[label].copy() for label in whole})
    assert take_apart(whole).layout == take_apart(pieces).layout
    check(whole, pieces)


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
