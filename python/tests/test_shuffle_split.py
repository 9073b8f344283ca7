"""Splitting inputs and putting partitions together, without a cluster."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from spillway import _native, frame_columns
from spillway.dask.shuffle_split import Splitter

pytestmark = pytest.mark.timeout(60)

COLUMN = "_partitions"


class Own(pd.DataFrame):
    @property
    def _constructor(self):
        return Own


def frame(rows, partitions, seed=0, ids="i8"):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "number": rng.integers(0, 100, rows),
            COLUMN: pd.Series(rng.integers(0, partitions, rows)).astype(ids).array,
            "text": pd.array([f"{i}" * (i % 7) for i in range(rows)], dtype="str"),
            "any": [None if i % 5 else {i} for i in range(rows)],
        },
        index=pd.RangeIndex(5, 5 + rows * 3, 3),
    )


def splitter(meta, partitions, worker_for=None, drops=True):
    spec = SimpleNamespace(
        column=COLUMN, meta=meta, drop_column=drops, npartitions=partitions
    )
    return Splitter(
        spec, worker_for or {i: f"w{i * 2 // partitions}" for i in range(partitions)}
    )


def joined(pieces_of, count):
    """What each of a worker's partitions is, from (layout, piece) of all inputs."""
    held, numbers = _native.Partitions(count, [], memory=None), {}
    for layout, piece in pieces_of:
        if layout not in numbers:
            numbers[layout] = held.add_types([type.native for type in layout.types])
        answer = held.put(
            numbers[layout], piece.input, piece.shards, piece.rows_of, piece.counts_of
        )
        assert answer == (True, False)
    held.finish()
    layouts = {number: layout for layout, number in numbers.items()}
    frames = []
    for partition in range(count):
        groups = frame_columns.read(held, partition, layouts, _native.allocate)
        parts = [frame_columns.put_together(*group) for group in groups]
        frames.append(frame_columns.concat(parts) if parts else None)
    return frames


IDS = [
    *("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f8"),
    *("Int64", "UInt8", "int32[pyarrow]"),
]


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("drops", [True, False])
def test_every_partition_is_its_rows_in_the_order_of_inputs(ids, drops):
    partitions, inputs = 7, [frame(rows, 7, rows, ids) for rows in (100, 1, 0, 250)]
    split = splitter(inputs[0].iloc[:0], partitions, drops=drops)
    pieces = {}
    for number, data in enumerate(inputs):
        layout, by_worker, _ = split.split(data, number)
        for worker, piece in by_worker.items():
            pieces.setdefault(worker, []).append((layout, piece))
    for worker, own in split.partitions_of.items():
        for partition, found in zip(own, joined(pieces[worker], len(own)), strict=True):
            wanted = pd.concat(data[data[COLUMN] == partition] for data in inputs)
            if drops:
                wanted = wanted.drop(columns=COLUMN)
            pd.testing.assert_frame_equal(split.as_meta_orders(found), wanted)


def test_rows_that_nobody_wants_are_left_out():
    data = frame(300, 6)
    split = splitter(data.iloc[:0], 6, {1: "a", 4: "a"})
    layout, pieces, _ = split.split(data, 0)
    assert list(pieces) == ["a"]
    found = joined([(layout, pieces["a"])], 2)
    for partition, part in zip((1, 4), found, strict=True):
        wanted = data[data[COLUMN] == partition].drop(columns=COLUMN)
        pd.testing.assert_frame_equal(part, wanted)


@pytest.mark.parametrize(
    ("ids", "row"), [([0, 6, 1], 1), ([0, 1, -1], 2), ([2**40, 0, 0], 0)]
)
def test_a_partition_that_there_is_not_is_refused_by_its_row(ids, row):
    data = frame(3, 6)
    data[COLUMN] = ids
    with pytest.raises(ValueError, match=f"row {row} is of partition {ids[row]}"):
        splitter(data.iloc[:0], 6).split(data, 0)


@pytest.mark.parametrize("value", [1.5, np.nan, np.inf])
def test_a_partition_that_is_no_number_is_refused_by_its_row(value):
    data = frame(3, 6, ids="f8")
    data.iloc[1, data.columns.get_loc(COLUMN)] = value
    with pytest.raises(ValueError, match="Row 1 has"):
        splitter(data.iloc[:0], 6).split(data, 0)


def test_an_input_of_another_kind_is_refused():
    split = splitter(frame(3, 6).iloc[:0], 6)
    with pytest.raises(TypeError, match="to be a DataFrame"):
        split.check([1, 2])
    with pytest.raises(ValueError, match="to have the columns"):
        split.check(frame(3, 6).drop(columns="text"))


def test_a_label_that_misses_is_one_of_the_columns():
    labels = [COLUMN, np.nan, "text"]
    data = pd.DataFrame([[0, 1, 2]], columns=pd.Index(labels, dtype=object))
    meta = data.iloc[:0].set_axis(pd.Index(labels, dtype="str"), axis=1)
    split = splitter(meta, 6)
    split.check(data)
    split.check(meta)
    with pytest.raises(ValueError, match="to have the columns"):
        split.check(data.iloc[:, :2])


def test_a_frame_of_a_class_of_its_own_is_split_by_its_column():
    data = frame(30, 6)
    split = splitter(data.iloc[:0], 6)
    split.check(Own(data))
    _, pieces, _ = split.split(Own(data), 0)
    for worker, own in split.partitions_of.items():
        assert pieces[worker].rows == data[COLUMN].isin(own).sum()


def test_a_frame_of_many_types_takes_few_calls():
    """Each is work under the GIL, for every input. There are 191 with pandas 3.0, and
    were 507 when the column of numbers was looked for as users do."""
    rows = 10
    data = frame(rows, 6).drop(columns="any")
    when = pd.date_range("2026", periods=rows)
    data = data.assign(
        floats=0.5,
        times=when,
        zoned=when.tz_localize("Europe/Berlin"),
        bools=True,
        masked=pd.array(range(rows), dtype="Int64"),
        masked_bools=pd.array([True, None] * 5, dtype="boolean"),
        category=pd.Categorical(list("ab") * 5),
        stamps=when.astype(pd.ArrowDtype(pa.timestamp("us"))),
        decimals=pd.array([1] * rows, dtype=pd.ArrowDtype(pa.decimal128(9, 2))),
        other_text=pd.array(["t"] * rows, dtype="str"),
    )
    assert data.shape[1] == 13
    split = splitter(data.iloc[:0], 6)
    split.split(data, 0)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        split.check(data)
        split.split(data, 1)
    finally:
        sys.setprofile(before)
    assert 0 < calls < 260


def test_columns_come_in_the_order_of_the_graph():
    meta = frame(0, 6)
    split = splitter(meta, 6)
    other = frame(3, 6)[["any", "text", COLUMN, "number"]]
    split.check(other)
    ordered = split.as_meta_orders(other.drop(columns=COLUMN))
    assert list(ordered) == ["number", "text", "any"]
