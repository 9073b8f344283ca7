"""Values of every kind, made at random, and how to tell that one came back the same."""

import collections
import enum
import functools

import numpy
from hypothesis import strategies


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Tagged(numpy.ndarray):
    """An array that knows something more."""

    def __array_finalize__(self, other):
        self.unit = getattr(other, "unit", None)

    def __reduce__(self):
        return tagged, (numpy.asarray(self), self.unit)


class Blob(bytes):
    """Bytes with attributes."""


class Names(dict):
    """A dict with attributes."""


class Node:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


Pair = collections.namedtuple("Pair", "left right")


def tagged(data, unit):
    array = numpy.asarray(data).view(Tagged)
    array.unit = unit
    return array


PADDED = numpy.dtype(
    {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 8], "itemsize": 16}
)
ALIGNED = numpy.dtype([("a", "i1"), ("b", "f8"), ("c", "S3")], align=True)
DTYPES = [
    *("?", "i1", "u2", "<i4", ">i4", "i8", "f2", "f8", "longdouble", "c16"),
    *("S3", "U4", ">U2", "M8[ns]", ">M8[D]", "m8[us]", "V7"),
    numpy.dtype([("m", "i4", (2, 2)), ("s", "S5")]),
    PADDED,
    ALIGNED,
]


def filled(shape, dtype):
    """An array whose items differ as far as the dtype can tell them apart."""
    size = int(numpy.prod(shape))
    dtype = numpy.dtype(dtype)
    array = numpy.zeros(size, dtype)
    names = dtype.names or (None,)
    for name in names:
        part = array if name is None else array[name]
        if part.dtype.kind == "V":
            part[...] = numpy.array([i.to_bytes(7, "big") for i in range(size)], "V7")
        else:
            whole = numpy.arange(part.size).reshape(part.shape) % 100
            part[...] = whole.astype(part.dtype)
    return array.reshape(shape)


def read_only(array):
    array.flags.writeable = False
    return array


def stepped(array, steps):
    return array[(..., *(slice(None, None, step) for step in steps[: array.ndim]))]


def broadcast(array, count):
    return numpy.broadcast_to(array[..., None], (*array.shape, count))


shapes = strategies.lists(strategies.integers(0, 5), max_size=3).map(tuple)


any_dtype = strategies.sampled_from(DTYPES)


@strategies.composite
def arrays(draw, dtypes=any_dtype):
    """Arrays without objects of every layout."""
    array = filled(draw(shapes), draw(dtypes))
    if draw(strategies.booleans()):
        array = numpy.asfortranarray(array)
    if draw(strategies.booleans()):
        array = array.transpose(draw(strategies.permutations(range(array.ndim))))
    if draw(strategies.booleans()):
        steps = strategies.lists(
            strategies.sampled_from([1, 2, -1, -2]), min_size=3, max_size=3
        )
        array = stepped(array, draw(steps))
    if draw(strategies.booleans()):
        array = broadcast(array, draw(strategies.integers(0, 4)))
        if draw(strategies.booleans()):
            array = array[..., ::-1]
    if draw(strategies.booleans()):
        array = read_only(array[...])
    return array


large_arrays = strategies.sampled_from([(2000,), (40, 50), (0, 9000)]).map(
    functools.partial(filled, dtype="f8")
)

masked_arrays = strategies.builds(
    lambda values, has_mask, hard, fill: numpy.ma.MaskedArray(
        values,
        mask=values % 2 == 0 if has_mask else numpy.ma.nomask,
        hard_mask=hard,
        fill_value=fill,
    ),
    arrays(strategies.sampled_from(["i4", ">i8"])),
    strategies.booleans(),
    strategies.booleans(),
    strategies.sampled_from([None, 77]),
)

plain = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats(allow_nan=False)
    | strategies.text(max_size=9)
    | strategies.binary(max_size=9)
    | strategies.sampled_from([Colour.RED, Colour.BLUE])
    | strategies.binary(max_size=9).map(bytearray)
)

array_values = arrays() | large_arrays | masked_arrays
buffers = array_values.filter(lambda array: array.dtype.kind in "iufc?S").map(
    lambda array: memoryview(numpy.ma.getdata(array))
)

leaves = plain | array_values | buffers


def _containers(items):
    keys = strategies.text(max_size=4) | strategies.integers() | plain_keys
    return (
        strategies.lists(items, max_size=4)
        | strategies.lists(items, max_size=3).map(tuple)
        | strategies.dictionaries(keys, items, max_size=4)
        | strategies.builds(Pair, items, items)
        | strategies.builds(Node, a=items, b=items)
        | strategies.dictionaries(keys, items, max_size=2).map(Names)
        | strategies.tuples(items).map(lambda one: [one[0], one[0]])
        | strategies.lists(items, max_size=2).map(in_a_ring)
    )


plain_keys = strategies.sampled_from([Colour.RED, (1, "x"), None, b"k", 2.5])


def in_a_ring(items):
    """A list that contains itself."""
    items.append(items)
    return items


values = strategies.recursive(leaves, _containers, max_leaves=12)


values_for_stock = strategies.recursive(
    plain | array_values, _containers, max_leaves=12
)
"""Without memoryviews, of which some end the connection of a stock sender."""


def check_came_back(received, sent):
    """In type, content and layout, and with the same aliases and cycles."""
    _check(received, sent, {})


def _check(received, sent, met):
    assert type(received) is type(sent)
    if isinstance(sent, numpy.ma.MaskedArray):
        _check_masked(received, sent)
    elif isinstance(sent, numpy.ndarray):
        check_array(received, sent)
    elif isinstance(sent, memoryview):
        check_memoryview(received, sent)
    elif isinstance(sent, list | tuple | dict | Node):
        if id(sent) in met:
            assert met[id(sent)] is received
            return
        met[id(sent)] = received
        _check_items(received, sent, met)
    else:
        assert received == sent


def _check_items(received, sent, met):
    if isinstance(sent, dict):
        assert list(received) == list(sent)
        pairs = [(received[key], value) for key, value in sent.items()]
    else:
        if isinstance(sent, Node):
            pairs = [(vars(received)[name], vars(sent)[name]) for name in vars(sent)]
        else:
            assert len(received) == len(sent)
            pairs = list(zip(received, sent, strict=True))
    for one, other in pairs:
        _check(one, other, met)
    for index, (one, other) in enumerate(pairs):
        for again, other_again in pairs[:index]:
            if other is other_again and isinstance(other, numpy.ndarray):
                assert one is again


def check_array(received, sent):
    assert type(received) is type(sent)
    assert received.dtype == sent.dtype
    assert received.dtype.isalignedstruct == sent.dtype.isalignedstruct
    assert received.shape == sent.shape
    for name in sent.dtype.names or ():  # what is between the fields is nobody's
        assert received[name].tobytes() == sent[name].tobytes()
    if not sent.dtype.names:
        assert received.tobytes() == sent.tobytes()
    assert received.flags.writeable == sent.flags.writeable
    if sent.flags.forc:
        assert received.flags.c_contiguous == sent.flags.c_contiguous
        assert received.flags.f_contiguous == sent.flags.f_contiguous


def same_signs(received, sent):
    """Whether two arrays go through their memory in the same directions."""
    if not sent.size:
        return True
    return all(
        numpy.sign(one) == numpy.sign(other)
        for one, other, length in zip(
            received.strides, sent.strides, sent.shape, strict=True
        )
        if length > 1
    )


def _check_masked(received, sent):
    assert type(received) is type(sent)
    check_array(numpy.ma.getdata(received), numpy.ma.getdata(sent))
    assert (received.mask is numpy.ma.nomask) == (sent.mask is numpy.ma.nomask)
    assert numpy.array_equal(received.mask, sent.mask)
    assert received.hardmask == sent.hardmask
    assert received.fill_value == sent.fill_value


def check_memoryview(received, sent):
    assert (received.format, received.shape) == (sent.format, sent.shape)
    assert received.readonly == sent.readonly
    assert received.tobytes() == sent.tobytes()
