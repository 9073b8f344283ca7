"""Arrow's arrays of random types through columns."""

import pandas as pd
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import arrow_samples
from frame_oracle import assert_same, by_partition, partition_ids
from spillway.column_memory import BLOB
from spillway.frame_columns import take_apart


def tagged(chunks: pa.ChunkedArray) -> pa.ChunkedArray:
    arrow_type = arrow_samples.Tagged(chunks.type)
    parts = [pa.ExtensionArray.from_storage(arrow_type, part) for part in chunks.chunks]
    return pa.chunked_array(parts, arrow_type)


@st.composite
def frames_and_ids(draw):
    """Frames of one or two columns, cut out of larger ones, and partitions."""
    columns = draw(st.lists(arrow_samples.types(), min_size=1, max_size=2))
    is_extension = draw(st.booleans())
    frames, ids = [], []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.integers(0, 12))
        arrays = [draw(arrow_samples.arrays(*each, rows)) for each in columns]
        if is_extension:
            arrays[0] = tagged(arrays[0])
        frame = pd.DataFrame(
            {n: pd.arrays.ArrowExtensionArray(each) for n, each in enumerate(arrays)}
        )
        begin = draw(st.integers(0, rows))
        frames.append(frame.iloc[begin:])
        ids.append(draw(partition_ids(len(frames[-1]))))
    return frames, ids


@settings(max_examples=60, deadline=None)
@given(frames_and_ids())
def test_any_type(case):
    frames, ids = case
    for frame in frames:
        assert BLOB not in take_apart(frame).layout.types
    for got, expected in by_partition(frames, ids, 3, one_layout=False):
        assert_same(got, expected)
