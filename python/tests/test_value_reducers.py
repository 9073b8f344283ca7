"""Each exact type that is pickled in a way of ours comes back as it was."""

import ctypes
import io
import pickle
from array import array

import hypothesis
import numpy
import pytest
from hypothesis import strategies

from spillway.dask import value_reducers
from spillway.dask.value_reducers import LEAST_APART_BYTES, OF_PYTHON, of_numpy
from value_samples import (
    arrays,
    check_array,
    check_came_back,
    filled,
    masked_arrays,
    same_signs,
)


def pickled(value):
    """The pickle, and the buffers beside it."""
    file, buffers = io.BytesIO(), []
    pickler = pickle.Pickler(file, 5, buffer_callback=buffers.append)
    pickler.dispatch_table = {**OF_PYTHON, **of_numpy()}
    pickler.dump(value)
    return file.getvalue(), [buffer.raw() for buffer in buffers]


def carried(packed, buffers):
    """As a peer unpickles it: from memory of its own, with the flags of the pickle."""
    return pickle.loads(packed, buffers=[bytearray(buffer) for buffer in buffers])


def there_and_back(value):
    return carried(*pickled(value))


@hypothesis.given(arrays())
@hypothesis.settings(max_examples=300)
def test_arrays_of_every_layout(sent):
    received = there_and_back(sent)
    check_array(received, sent)
    assert same_signs(received, sent)


@hypothesis.given(arrays())
@hypothesis.settings(max_examples=300)
def test_an_array_is_sent_no_larger_than_its_items(sent):
    packed, buffers = pickled(sent)
    once = sent[(..., *(slice(None if step else 1) for step in sent.strides))].nbytes
    assert sum(buffer.nbytes for buffer in buffers) <= once
    assert len(packed) < 1000


def test_memory_without_holes_is_not_copied():
    base = filled((6, 7, 8), "i4")
    whole = memoryview(base).cast("B")
    for view in (base, base.T, base[::-1], base.transpose(1, 2, 0), base[:, ::-1]):
        _, (buffer,) = pickled(view)
        assert buffer.nbytes == base.nbytes
        kept = numpy.frombuffer(buffer, "u1")
        assert numpy.shares_memory(kept, numpy.frombuffer(whole, "u1"))


def test_what_is_repeated_is_sent_once():
    row = numpy.arange(1000.0)
    sent = numpy.broadcast_to(row, (1000, 1000))
    packed, (buffer,) = pickled(sent)
    assert buffer.nbytes == row.nbytes
    received = carried(packed, [buffer])
    assert received.strides == sent.strides
    check_array(received, sent)


@pytest.mark.parametrize("dtype", ["S0", "U0", "V0"])
def test_items_without_bytes(dtype):
    for writeable in (True, False):
        sent = numpy.empty((2, 3), dtype)
        sent.flags.writeable = writeable
        received = there_and_back(sent)
        assert received.shape == (2, 3) and received.dtype == sent.dtype
        assert received.flags.writeable == writeable


def test_the_metadata_of_a_dtype_is_lost_no_more_than_by_numpy():
    sent = numpy.zeros(3, numpy.dtype("f8", metadata={"unit": "m"}))
    assert there_and_back(sent).dtype == sent.dtype


@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "sent",
    [
        numpy.array([[1, "a"], [None, [2]]], dtype=object),
        numpy.array([["a", "long enough not to be inlined " * 3]], "T"),
    ],
    ids=["objects", "strings"],
)
def test_arrays_of_objects(sent, order, writeable):
    sent = numpy.array(sent, order=order)
    sent.flags.writeable = writeable
    received = there_and_back(sent)
    assert received.tolist() == sent.tolist()
    assert received.dtype == sent.dtype
    assert received.flags.writeable == writeable
    assert received.flags.f_contiguous == sent.flags.f_contiguous


def in_itself(make, writeable=True):
    array = make()
    numpy.ma.getdata(array)[0] = array
    array.flags.writeable = writeable
    return array


OF_OBJECTS = {
    "array": lambda: numpy.empty(2, object),
    "masked": lambda: numpy.ma.array(numpy.empty(2, object), mask=[False, True]),
    "masked, hard": lambda: numpy.ma.array(
        numpy.empty(2, object), hard_mask=True, fill_value="x"
    ),
}


@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("kind", OF_OBJECTS)
def test_arrays_that_contain_themselves(kind, writeable):
    sent = in_itself(OF_OBJECTS[kind], writeable)
    received = there_and_back(sent)
    assert type(received) is type(sent)
    assert numpy.ma.getdata(received)[0] is received
    assert received.flags.writeable == writeable
    if kind != "array":
        assert numpy.array_equal(received._mask, sent._mask)
        assert (received._mask is numpy.ma.nomask) == (sent._mask is numpy.ma.nomask)
        assert received.hardmask == sent.hardmask
        assert received._fill_value == sent._fill_value


@pytest.mark.parametrize("kind", OF_OBJECTS)
def test_arrays_inside_what_they_contain(kind):
    for holder in ([], {}):
        sent = OF_OBJECTS[kind]()
        numpy.ma.getdata(sent)[0] = holder
        holder.append(sent) if type(holder) is list else holder.update({0: sent})
        sent.flags.writeable = False
        received = there_and_back(holder)
        assert numpy.ma.getdata(received[0])[0] is received
        assert not received[0].flags.writeable
    pair = (numpy.empty(1, object),)
    pair[0][0] = pair
    pair[0].flags.writeable = False
    received = there_and_back(pair)
    assert received[0][0] is received


def test_a_memmap_is_sent_as_an_array(tmp_path):
    mapped = numpy.memmap(tmp_path / "file", "f8", "w+", shape=(300,))
    mapped[:] = numpy.arange(300)
    packed, (buffer,) = pickled(mapped)
    check_array(carried(packed, [buffer]), numpy.arange(300.0))
    assert len(packed) < 500


@hypothesis.given(masked_arrays)
def test_masked_arrays(sent):
    check_came_back(there_and_back(sent), sent)


def test_a_hard_mask_stays_hard():
    received = there_and_back(numpy.ma.MaskedArray([1, 2], [True, False], hard_mask=1))
    received[0] = 5
    assert received.mask.tolist() == [True, False]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("writeable", [True, False])
@pytest.mark.parametrize("mask", [numpy.ma.nomask, [[True, False]]])
@pytest.mark.parametrize("base", ["matrix", "optinfo", "attribute"])
def test_masked_arrays_that_are_more(base, mask, writeable):
    data = numpy.asmatrix([[1, 2]]) if base == "matrix" else numpy.array([[1, 2]])
    sent = numpy.ma.MaskedArray(data, mask=mask, hard_mask=True, fill_value=7)
    if base == "optinfo":
        sent._optinfo["x"] = [1]
    if base == "attribute":
        sent.unit = "m"
    sent.flags.writeable = writeable
    received = there_and_back(sent)
    assert type(received) is numpy.ma.MaskedArray
    assert type(received.data) is type(data)
    assert numpy.array_equal(received.data, sent.data)
    assert numpy.array_equal(received._mask, sent._mask)
    assert (received._mask is numpy.ma.nomask) == (mask is numpy.ma.nomask)
    assert received.hardmask and received.fill_value == 7
    assert received._optinfo == sent._optinfo
    assert vars(received).keys() == vars(sent).keys()
    assert received.flags.writeable == writeable


def test_structured_and_dated_masked_arrays():
    records = numpy.ma.MaskedArray(
        [(1, 2.0), (3, 4.0)], [(0, 1), (1, 0)], dtype=[("a", "i4"), ("b", "f8")]
    )
    dates = numpy.ma.MaskedArray(
        ["2020", "NaT"], [0, 1], "M8[D]", fill_value=numpy.datetime64("1999")
    )
    for sent in (records, dates, numpy.ma.MaskedArray(3, True)):
        received = there_and_back(sent)
        assert received.dtype == sent.dtype
        assert received.fill_value == sent.fill_value
        assert numpy.array_equal(numpy.ma.getmask(received), numpy.ma.getmask(sent))
    assert there_and_back(numpy.ma.masked) is numpy.ma.masked


class Masked(numpy.ma.MaskedArray):
    pass


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_subclasses_go_their_own_way():
    assert type(there_and_back(Masked([1, 2], [0, 1]))) is Masked
    record = there_and_back(numpy.rec.array([(1, 2.0)], dtype="i4,f8"))
    assert type(record) is numpy.recarray
    assert type(there_and_back(numpy.asmatrix(numpy.eye(2)))) is numpy.matrix


VIEWS = {
    "bytes": lambda: memoryview(b"abc"),
    "nothing": lambda: memoryview(b""),
    "step": lambda: memoryview(bytearray(b"abcdefghij"))[::3],
    "back": lambda: memoryview(numpy.arange(5, dtype="i4"))[::-1],
    "Fortran": lambda: memoryview(numpy.asfortranarray(filled((2, 3), "f8"))),
    "no items": lambda: memoryview(numpy.ones((2, 0))),
    "native": lambda: memoryview(bytearray(range(24))).cast("@c")[::5],
    "native, empty": lambda: memoryview(bytearray(8)).cast("@c")[:0],
    "long, empty": lambda: memoryview(array("q")),
    "long, back": lambda: memoryview(array("q", [1, 2, 3]))[::-1],
    "text": lambda: memoryview(numpy.array(["a", "b"])),
    "half": lambda: memoryview(numpy.array([1.5, 2], "f2")),
    "long double": lambda: memoryview(numpy.array([1, 2], "longdouble"))[::-1],
    "cast": lambda: memoryview(bytearray(24)).cast("q", (3, 1)),
    "array": lambda: memoryview(array("H", [1, 2, 3])),
    "pointers": lambda: memoryview(bytearray(range(64))).cast("P")[::2],
    "pointers, read-only": lambda: memoryview(bytes(64)).cast("P")[::-3],
    "no dimension": lambda: memoryview(numpy.array(3.0)),
    "records": lambda: memoryview(filled((3,), "i4,f8")),
    "large": lambda: memoryview(bytearray(range(250)) * 40).toreadonly(),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_memoryviews(kind):
    sent = VIEWS[kind]()
    check_came_back(there_and_back(sent), sent)


def test_a_large_memoryview_is_not_copied():
    _, (buffer,) = pickled(memoryview(bytearray(10_000)).cast("d", (125, 10)))
    assert buffer.nbytes == 10_000


class Structure(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_double))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "view, why",
    [
        (memoryview(numpy.array([None, 1], dtype=object)), "objects"),
        (memoryview(numpy.zeros((2, 0), "q")), "format 'q'"),
        (memoryview(array("u", "text")), "format 'w'"),
        (memoryview((Structure * 2)()), "format 'T"),
    ],
)
def test_a_memoryview_that_cannot_be_made_again_is_refused(view, why):
    with pytest.raises(TypeError, match=why):
        pickled(view)


@hypothesis.given(
    strategies.sampled_from("bBhHiIlLqQfd"),
    strategies.integers(0, 2000),
)
def test_arrays_of_the_array_module(typecode, length):
    sent = array(typecode, [index % 100 for index in range(length)])
    packed, buffers = pickled(sent)
    assert carried(packed, buffers) == sent
    is_large = length * sent.itemsize >= LEAST_APART_BYTES
    assert [buffer.nbytes for buffer in buffers] == [sent.itemsize * length] * is_large


def test_which_arrays_are_sent_from_where_they_are():
    is_in_place = value_reducers.is_in_place
    array = filled((4, 5), "f8")
    for one in (array, array.T, filled((), "i4"), filled((3,), "i4,f8"), array[:0]):
        assert is_in_place(one)
    for one in (array[::2, ::2], numpy.broadcast_to(array, (3, 4, 5)), array[::-1]):
        assert not is_in_place(one)
    assert not is_in_place(numpy.array([None]))
    assert not is_in_place(numpy.array(["a"], "T"))
