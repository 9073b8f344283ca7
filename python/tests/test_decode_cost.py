"""What decoding a message is expected to cost: its pickles, and what is compressed."""

import numpy
import pandas
import pytest
from distributed import protocol
from distributed.protocol import to_serialize
from distributed.protocol.serialize import ToPickle

from message_shapes import MIB, SHAPES, noise
from spillway.dask.decode_cost import MANY_FRAMES, decode_bytes

LITTLE = 4096


def cost(message, codec=None, shard=None):
    frames = protocol.dumps(
        message, context={"compression": codec}, frame_split_size=shard
    )
    frames = [memoryview(bytes(frame)) for frame in frames]
    return decode_bytes(frames, sum(map(len, frames)))


class Held:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("shard", [None, 64 << 10])
@pytest.mark.parametrize(
    "value",
    [
        noise(4 * MIB),
        [noise(2 * MIB), noise(2 * MIB)],
        {"a": noise(4 * MIB), "b": {"c": noise(10)}},
        pandas.DataFrame({"x": numpy.arange(500_000), "y": numpy.arange(500_000)}),
        Held(noise(4 * MIB)),
    ],
    ids=["array", "list", "dict", "table", "object"],
)
def test_buffers_cost_nothing(value, shard):
    assert cost({"x": to_serialize(value), "y": 1}, shard=shard) < LITTLE


def test_pickles_cost_their_bytes():
    held = Held(["text"] * 3)
    held.more = b"x" * MIB
    assert (
        MIB < cost({"x": to_serialize(held), "y": to_serialize(noise(MIB))}) < 1.1 * MIB
    )
    assert MIB < cost([ToPickle(held)]) < 1.1 * MIB
    assert MIB < cost(to_serialize(numpy.array([held], object))) < 1.1 * MIB


def test_what_other_deserialisers_take_costs_its_bytes():
    """Of bytes Dask's own makes a copy."""
    assert MIB <= cost(to_serialize(bytes(MIB))) < 1.1 * MIB
    assert MIB <= cost(to_serialize([bytes(MIB), noise(MIB)])) < 1.1 * MIB


@pytest.mark.parametrize("mark", [to_serialize, ToPickle])
def test_compressed_frames_cost_their_bytes(mark):
    frames = protocol.dumps(
        [mark(numpy.zeros(4 * MIB, "u1")), to_serialize(noise(MIB))],
        context={"compression": "lz4"},
        frame_split_size=MIB,
    )
    compressed = sum(len(frame) for frame in frames[2:] if len(frame) < 100_000)
    frames = [memoryview(bytes(frame)) for frame in frames]
    found = decode_bytes(frames, 10 * MIB)
    assert compressed / 2 < found < compressed + LITTLE


def test_of_many_frames_all_count():
    values = [to_serialize(noise(100)) for _ in range(MANY_FRAMES)]
    assert cost(values) > 100 * MANY_FRAMES
    numbers = dict.fromkeys(range(20_000), 7)
    assert cost(to_serialize(numbers)) > 20_000


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_a_cost(shape, codec):
    frames = protocol.dumps(
        SHAPES[shape](), context={"compression": codec}, frame_split_size=12_000
    )
    frames = [memoryview(bytes(frame)) for frame in frames]
    total = sum(map(len, frames))
    assert 0 < decode_bytes(frames, total) <= 2 * total
