"""Arrow's arrays through columns."""

import datetime
import decimal
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from arrow_samples import Tagged
from frame_oracle import N, check, frame_of, halves
from frame_shards import Kept, partitioned
from spillway import _native, arrow_forms, column_memory
from spillway.arrow_forms import ArrowType, narrowed, one_chunk
from spillway.column_memory import BLOB
from spillway.frame_columns import take_apart

ONE = np.ones(1, np.uint32)

STRINGS = [
    "string[python]",
    "string[pyarrow]",
    pd.ArrowDtype(pa.string()),
    pd.ArrowDtype(pa.large_string()),
]
if pd.__version__ >= "3":
    STRINGS += ["str", pd.StringDtype("python", na_value=np.nan)]
else:
    STRINGS.append("string[pyarrow_numpy]")


@pytest.mark.parametrize("dtype", STRINGS, ids=repr)
def test_strings(dtype):
    values = [None if n % 5 == 2 else "é" * n for n in range(N)]
    check(*halves(frame_of(pd.Series(values, dtype=object).astype(dtype))))


ARROW = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns")),
    *(pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.duration("s")),
    *(pa.decimal128(9, 2), pa.decimal256(50, 3), pa.binary(), pa.large_binary()),
    *(pa.binary(3), pa.list_(pa.int32()), pa.struct({"a": pa.int8()})),
    *(pa.dictionary(pa.int8(), pa.string()), pa.map_(pa.string(), pa.int64())),
    *(pa.null(), pa.large_list(pa.string()), pa.list_(pa.int8(), 2)),
]


def arrow_value(arrow_type, n):
    if pa.types.is_boolean(arrow_type):
        return n % 3 == 0
    if pa.types.is_map(arrow_type):
        return [("k", n)]
    if pa.types.is_large_list(arrow_type):
        return ["x"] * (n % 3)
    if pa.types.is_list(arrow_type):
        return list(range(n % 3))
    if pa.types.is_fixed_size_list(arrow_type):
        return [n, n + 1]
    if pa.types.is_struct(arrow_type):
        return {"a": n}
    if pa.types.is_dictionary(arrow_type):
        return "ab"[n % 2]
    if pa.types.is_decimal(arrow_type):
        return decimal.Decimal(n) / 4
    if pa.types.is_fixed_size_binary(arrow_type):
        return b"%3d" % n
    if pa.types.is_large_binary(arrow_type) or pa.types.is_binary(arrow_type):
        return b"b" * n
    if pa.types.is_date(arrow_type):
        return datetime.date(2000, 1, 1 + n)
    if pa.types.is_null(arrow_type):
        return None
    return n


@pytest.mark.parametrize("arrow_type", ARROW, ids=str)
@pytest.mark.parametrize("missing", [False, True])
def test_arrow(arrow_type, missing):
    values = [arrow_value(arrow_type, n) for n in range(N)]
    if missing:
        values[1::4] = [None] * len(values[1::4])
    array = pa.array(values, arrow_type)
    whole = pd.array(array, dtype=pd.ArrowDtype(arrow_type))
    frame = frame_of(pd.Series(whole))
    assert BLOB not in take_apart(frame).layout.types
    check(*halves(frame))
    chunks = pa.chunked_array([array.slice(0, 5), array.slice(5, 0), array.slice(5)])
    pieces = pd.Series(pd.arrays.ArrowExtensionArray(chunks))
    check(frame_of(pieces), frame.iloc[3:9])
    none = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([], arrow_type)))
    is_dictionary = pa.types.is_dictionary(arrow_type)  # and without rows it is another
    check(frame_of(none).astype(frame.dtypes), frame, one_layout=not is_dictionary)


def arrow(array):
    """A frame with an array of Arrow's in it."""
    return frame_of(pd.Series(pd.arrays.ArrowExtensionArray(array)))


CHILDREN = pa.array([f"{n}" for n in range(40)])
CODES = pa.DictionaryArray.from_arrays(pa.array([1, 0] * 20), CHILDREN[3:7])
APART = {
    "struct": pa.StructArray.from_arrays(
        [CHILDREN[9:20], CODES[5:16]],
        ["a", "b"],
        mask=pa.array([True, False] * 5 + [True]),
    ),
    "list": pa.ListArray.from_arrays([0, 2, 2, 9], CHILDREN[5:]),
    "later_list": pa.ListArray.from_arrays([4, 7, 8, 9, 20], CHILDREN[5:30]),
    "large_list": pa.LargeListArray.from_arrays([3, None, 6, 9], CODES[1:]),
    "fixed_list": pa.FixedSizeListArray.from_arrays(CHILDREN[4:19], 3),
    "map": pa.MapArray.from_arrays([0, 1, 1, 7], CHILDREN[2:20], CODES[3:21]),
    "dictionary": CODES[9:17],
    "extension": pa.ExtensionArray.from_storage(Tagged(pa.string()), CHILDREN[7:]),
}


@pytest.mark.parametrize("name", APART)
def test_parts_that_begin_anywhere(name):
    array = APART[name]
    frame = arrow(array)
    assert BLOB not in take_apart(frame).layout.types
    check(frame, arrow(array[1:]), arrow(array[2:2]))


def test_nulls_where_there_are_to_be_none():
    # Arrow makes such arrays, and pandas concatenates them.
    items = pa.field("item", pa.int8(), nullable=False)
    inner = pa.struct([pa.field("n", pa.int8(), nullable=False)])
    parts = [None, pa.array([0, 2, 3], "i4").buffers()[1]]
    values = pa.array([1, None, 2], "i1")
    lists = pa.Array.from_buffers(pa.list_(items), 2, parts, children=[values])
    check(arrow(lists))
    check(
        arrow(pa.StructArray.from_arrays([pa.array([1, None, 3], "i1")], fields=inner))
    )


OPAQUE = {
    "view": pa.array(["a", None, "b"], pa.string_view()),
    "list of views": pa.array([[b"a"], None], pa.list_(pa.binary_view())),
    "list view": pa.array([[1], None, []], pa.list_view(pa.int8())),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1], "i1"), [pa.array([1, 2]), pa.array(["a", "b"])]
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"]),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_the_library_has_not_is_pickled(name):
    assert take_apart(arrow(OPAQUE[name])).layout.types.count(BLOB) == 1


def test_types_that_are_nested_too_deeply_are_pickled():
    arrays = [pa.array([1, None])]
    while len(arrays) <= 64:
        arrays.append(pa.StructArray.from_arrays([arrays[-1]], ["x"]))
    for array, is_opaque in ((arrays[63], False), (arrays[64], True)):
        frame = arrow(array)
        assert (BLOB in take_apart(frame).layout.types) == is_opaque
        check(frame, frame.iloc[1:])


def words(*some):
    return pa.array(some).dictionary_encode()


def test_equal_dictionaries_of_two_arrays_are_one_layout():
    one, two = (words("a", "b", "a"), words("a", "b", "b", None))
    check(arrow(one), arrow(two))
    nested = (pa.ListArray.from_arrays([0, 1, 3], each) for each in (one, two))
    check(*map(arrow, nested))


def test_unequal_dictionaries_are_two_layouts_and_stay():
    one, two, three = words("a", "b"), words("b", "a"), words("a", None, "b")
    frames = [arrow(each) for each in (one, two, three)]
    layouts = [take_apart(frame).layout for frame in frames]
    assert layouts[0] == layouts[2] != layouts[1]
    check(*frames, one_layout=False)
    kept = Kept(1)
    for frame, layout in zip(frames, layouts, strict=True):
        kept.put(take_apart(frame), np.zeros(len(frame), int), layout)
    (got,) = kept.frames()
    chunks = got["v"].array._pa_array.chunks
    assert [each.dictionary.to_pylist() for each in chunks] == [
        list("ab"),
        list("ba"),
        list("ab"),
    ]


def test_dictionaries_of_values_with_unequal_dictionaries_are_two_layouts():
    values = [
        pa.ListArray.from_arrays([0, 1, 2], words(*some)) for some in ("ab", "ba", "ab")
    ]
    codes = pa.array([0, None, 1])
    frames = [arrow(pa.DictionaryArray.from_arrays(codes, each)) for each in values]
    layouts = [take_apart(frame).layout for frame in frames]
    assert layouts[0] == layouts[2] != layouts[1]
    check(*frames, one_layout=False)


def test_chunks_of_unequal_dictionaries():
    chunks = pa.chunked_array([words("a", "b", None), words("c", "b"), words("b")])
    lists = [
        pa.ListArray.from_arrays([0, 1, len(each)], each) for each in chunks.chunks
    ]
    for array in (chunks, pa.chunked_array(lists)):
        frame = arrow(array)
        assert BLOB not in take_apart(frame).layout.types
        check(frame, frame.iloc[1:], one_layout=False)


def test_a_large_dictionary_is_sent_once_and_not_kept():
    codes = pa.array(np.arange(50_000) % 7, "i4")
    array = pa.DictionaryArray.from_arrays(
        codes, pa.array([f"{n}" * 9 for n in range(9_000)])
    )
    taken = take_apart(arrow(array))
    assert len(pickle.dumps(taken.layout)) < 2 * array.dictionary.nbytes
    kept = Kept(500)
    kept.put(taken, np.arange(50_000) % 500, taken.layout)
    got = list(kept.frames())
    assert [part["v"].tolist() for part in got[:2]] == [
        [array[row].as_py() for row in range(part, 50_000, 500)] for part in (0, 1)
    ]


@pytest.fixture
def small_offsets(monkeypatch):
    """Offsets of 4 bytes count no more than 50."""
    monkeypatch.setattr(column_memory, "MAX_SMALL_OFFSET", 50)


WIDE = {
    "string": pa.array([None if n == 3 else "x" * n for n in range(N)]),
    "binary": pa.array([b"y" * n for n in range(N)]),
    "list": pa.array([["ab"] * n if n % 4 else None for n in range(N)]),
    "struct": pa.array([{"a": "z" * n, "b": [n]} for n in range(N)]),
    "map": pa.array(
        [[("k", n)] * n for n in range(N)], pa.map_(pa.string(), pa.int8())
    ),
    "fixed": pa.array([["q" * n, None] for n in range(N)], pa.list_(pa.string(), 2)),
    "dictionary": pa.ListArray.from_arrays([0, 30, 60, 90, 110], words(*("ab" * 55))),
}
WIDE["extension"] = pa.ExtensionArray.from_storage(
    Tagged(WIDE["map"].type), WIDE["map"]
)


@pytest.mark.parametrize("name", WIDE)
def test_what_small_offsets_cannot_count(small_offsets, name):
    array = WIDE[name]
    frame = arrow(array)
    check(frame, arrow(pa.chunked_array([array[:9], array[9:]])))
    (got,) = partitioned([frame], [np.zeros(len(frame), int)], 1)
    chunks = got["v"].array._pa_array
    assert chunks.num_chunks > 1
    for chunk in chunks.chunks:
        ids = bytes(len(chunk))
        column = ArrowType(chunk.type).column(chunk).native
        _, counts, _ = _native.split([column], len(chunk), ids, ONE - 1, ONE)
        assert max(np.frombuffer(counts, "u8")) <= 50


def test_what_large_offsets_count_is_one_chunk(small_offsets, monkeypatch):
    monkeypatch.setattr(arrow_forms, "rejoined", None)  # in which all is copied twice
    array = pa.array([["x" * 99]] * 3, pa.large_list(pa.large_string()))
    assert one_chunk(pa.chunked_array([array, array])).to_pylist() == [["x" * 99]] * 6
    for made in (array, pa.ExtensionArray.from_storage(Tagged(array.type), array)):
        (got,) = partitioned([arrow(made)], [np.zeros(3, int)], 1)
        assert got["v"].array._pa_array.num_chunks == 1


def test_chunks_are_joined_into_what_counts_their_bytes(small_offsets):
    chunks = pa.chunked_array([["ab" * 13, None], ["cde" * 8, "f"]])
    wide = one_chunk(chunks)
    assert wide.type == pa.large_string() and wide.to_pylist() == chunks.to_pylist()
    again = narrowed(wide, ArrowType(pa.string()))
    assert [chunk.to_pylist() for chunk in again] == [
        ["ab" * 13, None],
        ["cde" * 8, "f"],
    ]
    assert one_chunk(chunks[1:]).type == pa.string()


def test_what_is_left_of_an_array_does_not_keep_its_memory():
    array = pd.array(["a" * 1000] * 100, dtype="string[pyarrow]")
    layout = take_apart(pd.DataFrame({"s": array})).layout
    assert len(pickle.dumps(layout)) < 5_000
