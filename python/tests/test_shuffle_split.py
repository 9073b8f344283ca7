"""Splitting inputs and putting partitions together, without a cluster."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from spillway import _native, frame_columns
from spillway.dask.shuffle_split import Splitter

pytestmark = pytest.mark.timeout(60)

COLUMN = "_partitions"


def frame(rows, partitions, seed=0, ids="i8"):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "number": rng.integers(0, 100, rows),
            COLUMN: rng.integers(0, partitions, rows).astype(ids),
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


@pytest.mark.parametrize("ids", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f8"])
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


def test_columns_come_in_the_order_of_the_graph():
    meta = frame(0, 6)
    split = splitter(meta, 6)
    other = frame(3, 6)[["any", "text", COLUMN, "number"]]
    split.check(other)
    ordered = split.as_meta_orders(other.drop(columns=COLUMN))
    assert list(ordered) == ["number", "text", "any"]
