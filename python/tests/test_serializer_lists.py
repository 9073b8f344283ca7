"""`serializers=`, `deserializers=` and `on_error=` mean what they mean in Dask."""

import numpy
import pytest
from distributed import protocol
from distributed.protocol import (
    dask_deserialize,
    dask_serialize,
    deserialize,
    to_serialize,
)
from distributed.protocol.serialize import register_serialization_family

from message_shapes import noise
from spillway.dask import decode
from spillway.dask.value_encoder import serialize
from test_value_encoder import Raises, as_received, by_stock, frames_of
from value_samples import Node, check_came_back


@pytest.mark.parametrize("names", [["msgpack"], ["dask"], ["dask", "msgpack"]])
def test_a_list_without_pickle_means_no_pickle(names):
    for value in (Node(a=1), numpy.array([Node(a=1)]), [numpy.array([None])]):
        header, _ = serialize(value, serializers=names)
        assert header["serializer"] == "error"
        with pytest.raises(TypeError):
            serialize(value, serializers=names, on_error="raise")


def test_other_lists_are_honoured():
    assert serialize(700, serializers=["msgpack"])[1] == [b"\xcd\x02\xbc"]
    header, _ = serialize(noise(9), serializers=["dask", "msgpack"])
    assert header["serializer"] == "dask"
    header, frames = serialize(noise(9000), serializers=["pickle"])
    assert header["serializer"] == "pickle" and len(frames) == 2
    header, _ = serialize([1, Node()], serializers=["msgpack", "pickle"])
    assert header["is-collection"]


def test_the_order_of_a_list_is_honoured():
    for value in (noise(90), b"x", bytearray(9)):
        header, frames = serialize(value, serializers=["pickle", "dask"])
        assert header["serializer"] == "pickle"
        check_came_back(deserialize(header, frames, deserializers=["pickle"]), value)
        assert serialize(value, serializers=["dask", "pickle"])[0]["type"]
    header, _ = serialize(Declines(), serializers=["pickle", "dask"])
    assert header["serializer"] == "error"  # as in Dask: nobody else takes it


class Declines:
    def __reduce__(self):
        raise NotImplementedError


def test_what_pickle_declines_the_next_one_is_asked_for():
    dask_serialize.register(Declines)(lambda _: ({}, [b"declined"]))
    dask_deserialize.register(Declines)(lambda _, frames: bytes(frames[0]))
    try:
        for names in (["pickle", "dask"], ["dask", "pickle"]):
            assert deserialize(*serialize(Declines(), names)) == b"declined"
    finally:
        del dask_serialize._lookup[Declines], dask_deserialize._lookup[Declines]


def test_what_to_do_about_errors_is_one_of_two():
    with pytest.raises(ValueError, match="nonsense"):
        serialize(Raises(), on_error="nonsense")


def test_a_family_of_a_user_before_pickle():
    families = protocol.serialize.__globals__["families"]
    register_serialization_family("mine", lambda x: ({}, [b"mine"]), lambda *_: "mine")
    try:
        header, frames = serialize(Node(), serializers=["mine", "pickle"])
        assert (header["serializer"], frames) == ("mine", [b"mine"])
        assert by_stock(Node(), serializers=["mine", "pickle"]) == "mine"
    finally:
        del families["mine"]


def test_deserialisers_are_honoured():
    frames = as_received(frames_of(Node(a=1)))
    objects = as_received(
        protocol.dumps(to_serialize(numpy.array([None])), serializers=["dask"])
    )
    for message in (frames, objects):
        with pytest.raises(TypeError):
            decode.loads(message, deserializers=["dask", "msgpack"])
    plain = as_received(frames_of(noise(9)))
    assert len(decode.loads(plain, deserializers=["dask"])) == 9
