"""What serialising a value is expected to cost, without a look into it."""

import math

import numpy
import pandas
import pytest
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Pickled, Serialized, ToPickle

from spillway.dask.encode_cost import expected_bytes, kind_of, learn


class Hostile:
    """Asked for its size, it fails."""

    def __sizeof__(self):
        raise AssertionError("nobody is to ask")

    def __len__(self):
        raise AssertionError("nobody is to ask")

    __getattr__ = __sizeof__


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        2**200,
        1.5,
        True,
        b"x" * 1000,
        bytearray(9),
        memoryview(b"x"),
        numpy.zeros(1000),
        numpy.zeros((30, 30)).T,
        numpy.array("2020-01-01", "M8[s]"),
    ],
)
def test_what_is_sent_as_it_lies_costs_nothing(data):
    assert expected_bytes(kind_of(to_serialize(data))) == 0


def test_what_is_serialised_costs_nothing():
    assert kind_of(Serialized({}, [b"x" * 1000])) is None
    assert kind_of(Pickled({}, [b"x" * 1000])) is None


@pytest.mark.parametrize(
    "data",
    [
        numpy.zeros((1000, 2))[:, 0],
        memoryview(numpy.zeros(1000))[::2],
        numpy.array([1, "x"], object),
        pandas.DataFrame({"x": [1]}),
        Hostile(),
        type("Other", (), {})(),
    ],
    ids=["strided", "strided view", "objects", "table", "hostile", "other"],
)
@pytest.mark.parametrize("mark", [to_serialize, ToPickle])
def test_a_kind_that_was_never_met_may_cost_anything(data, mark):
    kind = kind_of(mark(data))
    costs = expected_bytes(kind)
    assert costs == math.inf or kind[0] is not type(data) or costs >= 0
    learn(kind, 0.0001)
    assert expected_bytes(kind) >= 100_000


class Learned:
    pass


def test_a_slow_one_is_remembered_for_a_while():
    kind = kind_of(ToPickle(Learned()))
    assert expected_bytes(kind) == math.inf
    learn(kind, 0.001)
    assert expected_bytes(kind) == 1e6
    learn(kind, 0.008)
    assert expected_bytes(kind) == 8e6
    for expected in (4e6, 2e6, 1e6, 0.5e6, 0.5e6):
        learn(kind, 0.0005)
        assert expected_bytes(kind) == expected


@pytest.mark.parametrize("make", [list, tuple, set, dict.fromkeys])
def test_long_ones_are_another_kind(make):
    short, long = make(range(3)), make(range(200_000))
    assert kind_of(ToPickle(short)) == (type(short), 2)
    assert kind_of(ToPickle(long)) == (type(long), 18)


def test_text_costs_what_a_copy_of_it_does():
    assert expected_bytes(kind_of(to_serialize(""))) == 1
    assert expected_bytes(kind_of(to_serialize("x" * 1000))) <= 2000
    assert expected_bytes(kind_of(ToPickle("x" * 10_000_000))) >= 5_000_000


def test_long_tables_are_another_kind():
    frame = pandas.DataFrame({"x": range(1000)})
    assert kind_of(to_serialize(frame)) == (pandas.DataFrame, 10)
    assert kind_of(to_serialize(frame.x)) == (pandas.Series, 10)


def test_a_type_is_not_kept():
    import gc
    import weakref

    made = type("Made", (), {})
    learn(kind_of(to_serialize(made())), 1.0)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
