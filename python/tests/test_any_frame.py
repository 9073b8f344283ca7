"""Frames of random schemas through columns."""

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from frame_oracle import OWN_MISSING, assert_same, by_partition, partition_ids

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
        ids.append(draw(partition_ids(len(frames[-1]))))
    return frames, ids


@settings(max_examples=60, deadline=None)
@given(frames_and_ids())
def test_any_schema(case):
    for got, expected in by_partition(*case, 3):
        assert_same(got, expected)
