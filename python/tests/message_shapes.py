"""A message of every shape that Dask sends, and how to tell that one has arrived."""

import numpy
import pandas
from distributed.core import Status
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Serialize, ToPickle

KIB, MIB = 1 << 10, 1 << 20


class Plain:
    """Nothing that msgpack knows; it goes by pickle."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return type(other) is Plain and other.value == self.value

    __hash__ = None


def noise(count, dtype="u1"):
    """An array that does not compress."""
    size = numpy.dtype(dtype).itemsize * count
    return numpy.frombuffer(
        bytearray(numpy.random.default_rng(count).bytes(size)), dtype
    )


def read_only(array):
    array.flags.writeable = False
    return array


def table(rows):
    return pandas.DataFrame(
        {
            "whole": numpy.arange(rows),
            "real": noise(rows, "f4"),
            "text": [f"row {i}" for i in range(rows)],
            "when": pandas.date_range("2013-01-01", periods=rows, freq="h"),
            "kind": pandas.Categorical(["a", "b"] * (rows // 2)),
        }
    )


SHAPES = {
    "empty dict": lambda: {},
    "small dict": lambda: {"op": "heartbeat", "n": 3, "x": None, "f": 0.5, "b": True},
    "nested": lambda: {"a": [{"b": ({"c": [1, [2, [3]]]},)}], 7: ("x", "y")},
    "marks by name": lambda: {"k": "__Pickled__", "__d__": "a__b", "__": {"__Set": 1}},
    "enum": lambda: {"colour": Status.running},
    "set": lambda: {"s": {1, 2, 3}, "empty": set()},
    "bytes": lambda: {"b": b"\0\xff" * 100, "empty": b"", "key": {b"k": 1}},
    "large bytes": lambda: {"b": noise(3 * MIB).tobytes()},
    "unicode": lambda: ["", "é漢字🙂" * 50],
    "integers": lambda: [0, -1, 2**63, -(2**63), 2**64 - 1],
    "string": lambda: "just a string",
    "many tiny frames": lambda: [to_serialize(i) for i in range(2_500)],
    "to pickle": lambda: {"f": ToPickle(Plain([1, "two"])), "a": ToPickle(noise(99))},
    "to pickle, large": lambda: ToPickle({"a": noise(MIB), "b": noise(9_000, "f8")}),
    "not for msgpack": lambda: {"x": Plain(1), "y": [Plain("z"), 3]},
    "large integer": lambda: {"x": Serialize(2**80)},
    "array": lambda: to_serialize(noise(300_000, "f8")),
    "arrays": lambda: [to_serialize(noise(n)) for n in (1, 4095, 4096, 70_000, MIB)],
    "array, one byte": lambda: to_serialize(noise(1)),
    "array, no bytes": lambda: {"x": to_serialize(noise(0)), "y": to_serialize(b"")},
    "array, no dimension": lambda: to_serialize(numpy.array(3.5)),
    "array, read-only": lambda: [
        to_serialize(read_only(noise(50_000))),
        to_serialize(noise(50_000)),
    ],
    "array, Fortran": lambda: to_serialize(
        numpy.asfortranarray(noise(60_000, "f8").reshape(200, 300))
    ),
    "array, strided": lambda: to_serialize(
        noise(60_000, "i4").reshape(300, 200)[::3, ::2]
    ),
    "array, broadcast": lambda: to_serialize(
        numpy.broadcast_to(noise(900, "f8"), (50, 900))
    ),
    "array of records": lambda: to_serialize(noise(9_000, "i4,f8")),
    "array of objects": lambda: to_serialize(numpy.array([Plain(1), "a", None])),
    "array of dates": lambda: to_serialize(numpy.arange(9_999).astype("M8[s]")),
    "compressible": lambda: [
        to_serialize(numpy.zeros(MIB, "u1")),
        to_serialize(noise(MIB)),
        to_serialize(numpy.arange(MIB // 8)),
    ],
    "collections": lambda: {
        "list": to_serialize([noise(9_000), noise(10, "f8")]),
        "dict": to_serialize({"a": noise(9_000), 3: [noise(5), "text"]}),
        "tuple": to_serialize((noise(5), (noise(6), noise(7)))),
    },
    "table": lambda: to_serialize(table(5_000)),
    "tables": lambda: {"x": [to_serialize(table(n)) for n in (2, 40, 20_000)]},
    "empty table": lambda: to_serialize(table(0)),
}


def bare(value):
    """A message as its receiver should see it: lists are tuples to msgpack."""
    if isinstance(value, Serialize):
        return value.data
    if isinstance(value, ToPickle):
        return value.data
    if type(value) in (list, tuple):
        return tuple(map(bare, value))
    if type(value) is dict:
        return {key: bare(item) for key, item in value.items()}
    return value


def check_same(received, sent):
    """Equal in type, content, order in memory and writeable flag."""
    if isinstance(sent, numpy.ndarray):
        check_same_array(received, sent)
    elif isinstance(sent, pandas.DataFrame):
        pandas.testing.assert_frame_equal(received, sent)
    elif type(sent) in (list, tuple):
        assert type(received) is type(sent)
        assert len(received) == len(sent)
        for one, other in zip(received, sent, strict=True):
            check_same(one, other)
    elif type(sent) is dict:
        assert type(received) is dict
        assert list(received) == list(sent)
        for key, value in sent.items():
            check_same(received[key], value)
    else:
        if not isinstance(received, memoryview):
            assert type(received) is type(sent)
        assert received == sent


def check_same_array(received, sent):
    assert type(received) is type(sent)
    assert received.dtype == sent.dtype
    assert received.shape == sent.shape
    assert (received == sent).all() or sent.dtype.kind in "fV"
    if not sent.dtype.hasobject:
        assert received.tobytes() == sent.tobytes()
    assert received.flags.writeable == sent.flags.writeable
    if sent.flags.forc:
        assert received.flags.c_contiguous == sent.flags.c_contiguous
        assert received.flags.f_contiguous == sent.flags.f_contiguous


def arrays_of(value):
    """The arrays in a message."""
    if isinstance(value, numpy.ndarray):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_of(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from arrays_of(item)
