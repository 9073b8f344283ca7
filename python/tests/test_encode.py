"""Plain messages are packed here, as Dask would; the others go to Dask's encoder."""

import asyncio
import sys
import threading

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest
from distributed import protocol
from distributed.core import Status
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Serialized, ToPickle

from message_shapes import MIB, SHAPES, Plain, noise
from spillway.dask import encode
from spillway.dask.encode import PACKER_KEEPS_BYTES, encode_plain

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=40)
    | st.binary(max_size=40)
    | st.sampled_from(list(Status))
    | st.sets(st.integers(0, 99), max_size=4)
)
keys = st.text(max_size=9) | st.integers(-9, 9) | st.binary(max_size=9)
messages = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


@hypothesis.given(messages)
def test_plain_messages_are_packed_as_dask_packs_them(message):
    packed, size = encode_plain(message)
    assert [packed] == protocol.dumps(message)
    assert size == len(packed)


OPAQUE = ["array", "to pickle", "many tiny frames", "collections", "table"]


@pytest.mark.parametrize("shape", OPAQUE)
def test_what_is_opaque_is_left_to_dask(shape):
    packed, size = encode_plain(SHAPES[shape]())
    assert packed is None
    assert size > 0


def test_the_estimate_counts_what_is_opaque():
    small = to_serialize(noise(100))
    large = ToPickle(noise(3 * MIB))
    held = Serialized({"serializer": "dask"}, [bytes(2 * MIB)])
    _, size = encode_plain({"a": small, "b": [large, {"c": held}], "d": b"x" * MIB})
    assert 6 * MIB < size < 6.1 * MIB


class UnknownSize:
    def __sizeof__(self):
        raise ValueError("does not say")


def test_an_unknown_size_counts_as_large():
    packed, size = encode_plain([to_serialize(UnknownSize()), to_serialize(1)])
    assert packed is None
    assert size >= sys.maxsize


class Unpackable:
    def __reduce__(self):
        raise TypeError("no")


DEEP = []
for _ in range(2_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "message",
    [Plain(1), {"x": [Unpackable()]}, numpy.float64, 2**70, {1: {2: object}}, DEEP],
    ids=["object", "unpackable", "type", "integer", "nested", "deep"],
)
def test_what_msgpack_cannot_take_is_left_to_dask_whole(message):
    assert encode_plain(message) == (None, -1)
    assert encode_plain({"after": 1})[0] == protocol.dumps({"after": 1})[0]


def test_a_large_message_does_not_keep_its_buffer():
    for size in (PACKER_KEEPS_BYTES * 3, 10, PACKER_KEEPS_BYTES // 2, 10):
        message = {"x": bytes(size)}
        assert [encode_plain(message)[0]] == protocol.dumps(message)
    encode_plain(bytes(PACKER_KEEPS_BYTES * 3))
    assert encode._plain_packer._packer is None


class PacksWhileMeasured:
    def __init__(self):
        self.packed = None

    def __sizeof__(self):
        self.packed, _ = encode_plain({"inner": 1})
        return 1000


def test_packing_while_packing():
    """What is measured may run any code."""
    value = PacksWhileMeasured()
    message = {"x": to_serialize(value), "y": "z"}
    packed, size = encode_plain(message)
    assert packed is None
    assert size > 1000
    assert [value.packed] == protocol.dumps({"inner": 1})


def test_each_thread_has_a_packer_of_its_own():
    wrong = []

    def pack(number):
        message = {"number": number, "data": [number] * 500}
        (expected,) = protocol.dumps(message)
        for _ in range(300):
            if encode_plain(message)[0] != expected:
                wrong.append(number)

    threads = [threading.Thread(target=pack, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


class ThreadOfPickling:
    """Says in which thread it was pickled."""

    where = None

    def __init__(self, size):
        self.data = bytes(size)

    def __sizeof__(self):
        return len(self.data)

    def __reduce__(self):
        ThreadOfPickling.where = threading.current_thread()
        return (bytes, (1,))


@pytest.mark.parametrize("size", [1000, 20 * MIB])
@pytest.mark.parametrize("allow_offload", [False, True])
async def test_large_messages_leave_the_loop_if_they_may(size, allow_offload):
    message = {"x": ToPickle(ThreadOfPickling(size))}
    packed, estimate = encode_plain(message)
    assert packed is None
    await encode.encode(message, estimate, allow_offload)
    is_offloaded = ThreadOfPickling.where is not threading.current_thread()
    assert is_offloaded == (allow_offload and size > MIB)


@pytest.mark.parametrize("shape", SHAPES)
async def test_frames_are_those_of_dask(shape):
    options = {"context": {"compression": None}, "frame_split_size": 9_000}
    message = SHAPES[shape]()
    packed, size = encode_plain(message)
    frames = [packed] if packed else await encode.encode(message, size, True, **options)
    expected = protocol.dumps(message, **options)
    assert [bytes(frame) for frame in frames] == [bytes(frame) for frame in expected]


async def test_packing_from_several_tasks():
    async def pack(number):
        message = [to_serialize({"n": number})]
        _, size = encode_plain(message)
        return await encode.encode(message, size, True)

    several = await asyncio.gather(*map(pack, range(20)))
    for number, frames in enumerate(several):
        assert protocol.loads(frames) == ({"n": number},)
