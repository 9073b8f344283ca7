"""Arrow's arrays between Python and the library: what is refused before anything is
read or written. What comes out right: test_arrow_forms.py, test_any_array.py."""

import gc

import numpy as np
import pyarrow as pa
import pytest

from spillway import _native

NUMBERS, ENDS = np.zeros(1, np.uint32), np.ones(1, np.uint32)
LISTS = pa.array([["a", None], None, []])
FIXED, BLOB, BITS = 1, 4, 2


def schema(arrow_type):
    return arrow_type.__arrow_c_schema__()


def column(array):
    return schema(array.type), array


def split(columns, rows):
    return _native.split(columns, rows, bytes(rows), NUMBERS, ENDS)


def kept(*arrays):
    """One partition, with three rows."""
    held = _native.Partitions(1, [])
    number = held.add_types([schema(array.type) for array in arrays])
    rows, counts, (shards,) = split([column(array) for array in arrays], 3)
    held.put(number, 0, shards, rows, counts)
    held.finish()
    return held


def array_of(arrow_type, rows, counts, dictionaries=()):
    return _native.ArrowArray(schema(arrow_type), rows, counts, dictionaries)


def imported(made, arrow_type=LISTS.type):
    return pa.Array._import_from_c(made.address, arrow_type)


def counts_of(arrow_type):
    return _native.arrow_counts(schema(arrow_type))


def test_counts_are_those_of_the_columns_that_have_one():
    assert counts_of(pa.int8()) == counts_of(pa.null()) == 0
    assert counts_of(LISTS.type) == 2
    assert counts_of(pa.map_(pa.string(), pa.list_(pa.int8(), 2))) == 2


@pytest.mark.parametrize("type", [pa.string_view(), pa.list_(pa.list_view(pa.int8()))])
def test_types_that_there_are_not(type):
    for call in (
        lambda: counts_of(type),
        lambda: _native.Partitions(1, []).add_types([schema(type)]),
        lambda: array_of(type, 1, []),
        lambda: split([column(pa.array([None], type))], 1),
    ):
        with pytest.raises(_native.SpillwayError, match="columns of the Arrow type"):
            call()


def test_what_is_no_schema_and_no_array():
    for wrong in (7, LISTS.__arrow_c_array__()[1]):
        for call in (
            lambda: _native.arrow_counts(wrong),  # noqa: B023
            lambda: _native.ArrowArray(wrong, 1, (), ()),  # noqa: B023
            lambda: split([(wrong, LISTS)], 3),  # noqa: B023
        ):
            with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
                call()
    with pytest.raises(AttributeError, match="__arrow_c_array__"):
        split([(schema(LISTS.type), 7)], 1)
    with pytest.raises(TypeError, match="columns are tuples"):
        split([LISTS], 3)
    with pytest.raises(ValueError, match="has another number of buffers"):
        split([(schema(pa.int8()), pa.array(["a"]))], 1)

    class Wrong:
        def __arrow_c_array__(self):
            return LISTS.__arrow_c_array__()[::-1]

    with pytest.raises(ValueError, match="incorrect name"):
        split([(schema(LISTS.type), Wrong())], 3)


def test_what_somebody_has_taken_is_refused():
    used = schema(LISTS.type)
    pa.DataType._import_from_c_capsule(used)
    for call in (lambda: _native.arrow_counts(used), lambda: split([(used, LISTS)], 3)):
        with pytest.raises(ValueError, match="a schema that was released"):
            call()


def test_an_array_with_other_rows_than_its_table_is_refused():
    with pytest.raises(ValueError, match="column 1 has another number of rows"):
        split([(FIXED, 8, range(2), None), column(LISTS)], 2)


@pytest.mark.parametrize(
    ("memory", "match"),
    [
        ((FIXED, 8, np.zeros(1), None), "has fewer values than rows"),
        ((FIXED, 0, np.zeros(2), None), "has items of no bytes"),
        ((FIXED, 4, range(2), None), "is a range, and no column of its integers"),
        ((BITS, 0, bytes(1), None), "is of a kind that is in an array of Arrow's"),
        ((BLOB, 0, np.zeros(1, "u8"), b""), "has fewer values than rows"),
    ],
)
def test_memory_that_is_no_column_is_refused(memory, match):
    with pytest.raises(ValueError, match=f"column 0 {match}"):
        split([memory], 2)


def test_an_array_is_made_of_as_many_counts_and_dictionaries_as_it_has():
    for counts in ([], [1, 2, 3]):
        with pytest.raises(ValueError, match=f"{len(counts)} counts for columns that"):
            array_of(LISTS.type, 3, counts)
    with pytest.raises(ValueError, match="not -1"):
        array_of(LISTS.type, 3, [1, -1])
    words = LISTS.values.dictionary_encode()
    with pytest.raises(ValueError, match="fewer dictionaries than columns"):
        array_of(pa.struct({"a": words.type}), 3, [])
    made = array_of(words.type, 0, [], (words.dictionary,))
    assert imported(made, words.type).dictionary.to_pylist() == ["a"]


def test_more_than_offsets_can_count_is_an_error():
    with pytest.raises(_native.SpillwayError, match="more than offsets of 4 bytes"):
        array_of(pa.list_(pa.null()), 1, [2**31])
    array_of(pa.large_list(pa.null()), 1, [2**31])


@pytest.mark.parametrize(
    "other",
    [
        pa.list_(pa.binary(1)),
        pa.list_(pa.string(), 1),
        pa.struct({"a": pa.string()}),
        pa.list_(pa.list_(pa.string())),
    ],
    ids=str,
)
def test_places_of_another_type_are_refused(other):
    held = kept(LISTS)
    made = array_of(other, 3, [9] * counts_of(other))
    with pytest.raises(ValueError, match="goes into another array"):
        held.read(0, [(0, 3, (made,))])


def test_places_that_are_not_for_these_rows_are_refused():
    held = kept(LISTS)
    ((_, _, counts),) = held.measure(0)
    short = array_of(LISTS.type, 2, counts)
    made = array_of(LISTS.type, 3, counts)
    for group, match in [
        ((0, 3, (short,)), "goes into another array"),
        ((0, 3, ()), "column 0 of group 0 has no memory"),
        ((0, 3, (made, made)), "goes into another array"),
        ((0, 3, (made, bytearray(9))), "is none of its types'"),
        ((0, 3, (bytearray(99),)), "goes into an array of Arrow's"),
        ((1, 3, (made,)), "types 1"),
    ]:
        with pytest.raises(ValueError, match=match):
            held.read(0, [group])
    with pytest.raises(TypeError, match="groups are tuples"):
        held.read(0, [[0, 3, (made,)]])
    held.read(0, [(0, 3, (made,))])
    assert imported(made).equals(LISTS)


def test_an_array_that_somebody_has_is_not_written():
    held = kept(LISTS)
    ((_, _, counts),) = held.measure(0)
    made = array_of(LISTS.type, 3, counts)
    taken = imported(made)
    with pytest.raises((TypeError, ValueError)):
        held.read(0, [(0, 3, (made,))])
    with pytest.raises(pa.ArrowInvalid):
        imported(made)
    del taken


def test_an_array_has_its_memory_until_the_last_part_goes():
    held = kept(LISTS, pa.array([1, 2, 3]))
    ((_, rows, counts),) = held.measure(0)
    made = [
        array_of(LISTS.type, rows, counts),
        array_of(pa.int64(), rows, ()),
    ]
    held.read(0, [(0, rows, tuple(made))])
    values = imported(made[0]).values
    del made, held
    gc.collect()
    assert values.to_pylist() == ["a", None]
    assert _native.figures()["budget"]["held"] > 0


def test_large_offsets_are_read_into_small_ones_and_back():
    large = pa.large_list(pa.large_string())
    for given, made_of in ((LISTS, large), (LISTS.cast(large), LISTS.type)):
        held = kept(given)
        ((_, rows, counts),) = held.measure(0)
        made = array_of(made_of, rows, counts)
        held.read(0, [(0, rows, (made,))])
        assert imported(made, made_of).equals(LISTS.cast(made_of))
