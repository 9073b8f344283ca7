"""Frames become what Dask's own decoder makes of them, with fewer copies."""

import threading
import zlib

import msgpack
import numpy
import pytest
from distributed import protocol
from distributed.metrics import context_meter
from distributed.protocol import compression, to_serialize
from distributed.protocol.serialize import Serialized, ToPickle

import spillway
from message_shapes import MIB, SHAPES, bare, check_same, noise
from spillway import _native
from spillway.dask.decode import decode, loads

CODECS = [None, "lz4", "zstd", "snappy", "zlib"]


def dumps(message, codec=None, shard=12_000):
    return protocol.dumps(
        message, context={"compression": codec}, frame_split_size=shard
    )


def as_received(frames):
    """Frames of the kinds in which a connection hands them out."""
    head, *rest = frames
    return [bytes(head), *(memoryview(bytearray(frame)) for frame in rest)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape, codec):
    message = SHAPES[shape]()
    check_same(loads(as_received(dumps(message, codec))), bare(SHAPES[shape]()))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_head_that_is_not_bytes(shape):
    """Above 64 KiB it comes as a view."""
    head, *rest = as_received(dumps(SHAPES[shape]()))
    check_same(loads([memoryview(head), *rest]), bare(SHAPES[shape]()))


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("shape", ["array", "compressible", "collections", "table"])
def test_left_serialized(shape, codec):
    frames = as_received(dumps({"x": SHAPES[shape]()}, codec))
    ours = loads(frames, deserialize=False)["x"]
    stock = protocol.loads(frames, deserialize=False)["x"]
    if shape in ("compressible", "collections"):
        ours, stock = flat(ours), flat(stock)
    else:
        ours, stock = [ours], [stock]
    for one, other in zip(ours, stock, strict=True):
        assert type(one) is Serialized
        assert one.header == other.header
        assert one.frames == other.frames


def flat(value):
    return value.values() if isinstance(value, dict) else value


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_decompressing_is_metered_as_in_dask(codec):
    def metered(decoder):
        found = []
        frames = as_received(dumps([to_serialize(SHAPES["compressible"]())], codec))
        with context_meter.add_callback(lambda *args: found.append(args[0])):
            decoder(frames)
        return found

    assert metered(loads) == metered(protocol.loads)
    assert "decompress" in metered(loads)


def test_what_cannot_be_decoded_is_said_where_dask_says_it(caplog):
    frames = as_received(dumps(to_serialize(noise(10))))
    with pytest.raises(TypeError):
        loads(frames, deserializers=["pickle"])
    (record,) = caplog.records
    assert record.name == "distributed.protocol.core"
    assert "serialized with dask" in caplog.text


def test_deserializers_are_obeyed():
    frames = as_received(dumps(to_serialize(noise(10))))
    assert loads(frames, deserializers=["dask"]).nbytes == 10
    with pytest.raises(TypeError, match="serialized with dask"):
        loads(frames, deserializers=["pickle"])


@pytest.mark.parametrize("codec", CODECS[1:])
def test_decompressed_once_into_one_aligned_buffer(codec):
    array = numpy.zeros(5 * MIB, "u1")
    frames = as_received(dumps(to_serialize(array), codec, shard=MIB))
    before = spillway.stats()["copies"]["decompressed"]
    received = loads(frames)
    after = spillway.stats()["copies"]["decompressed"]
    assert (received == array).all()
    assert received.flags.writeable
    assert received.ctypes.data % 64 == 0
    assert type(received.base) is _native.Buffer
    # zlib does not say how large its output is, so its shards are joined by a copy.
    times = 2 if codec == "zlib" else 1
    assert after["bytes"] - before["bytes"] == times * array.nbytes


@pytest.mark.parametrize("codec", CODECS[1:])
def test_shards_of_which_some_are_compressed(codec):
    array = numpy.concatenate(
        [noise(20_000), numpy.zeros(20_000, "u1"), noise(20_000), noise(50)]
    )
    frames = as_received(dumps(to_serialize(array), codec, shard=20_000))
    codecs = msgpack.unpackb(frames[1])["compression"]
    assert codecs == [None, codec, None, None]
    check_same(loads(frames), array)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_was_compressed_before_it_was_split(codec):
    """A value of which one part brings its own compression."""
    inner = protocol.serialize(numpy.zeros(30_000, "u1"))
    header, frames = inner
    data = memoryview(frames[0]).cast("B")
    header["compression"] = (codec,)
    packed = compression.compressions[codec].compress(data)
    header["split-num-sub-frames"], header["split-offsets"] = (1,), (0,)
    held = Serialized(header, [packed])
    check_same(loads(as_received(dumps(held))), numpy.zeros(30_000, "u1"))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_pickles(codec):
    value = {"a": numpy.zeros(99_000, "u1"), "b": "text" * 9_000, "c": noise(20_000)}
    received = loads(as_received(dumps({"x": ToPickle(value)}, codec)))["x"]
    check_same(received, value)


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_frames_raise(codec, damage):
    """An error, whatever the bytes are, and no memory that a header asks for."""
    frames = as_received(dumps(to_serialize(numpy.zeros(MIB, "u1")), codec, MIB))
    data = bytes(frames[2])
    frames[2] = {
        "cut": memoryview(data[: len(data) // 2]),
        "flipped": memoryview(bytes(byte ^ 0xFF for byte in data)),
        "empty": memoryview(b""),
    }[damage]
    with pytest.raises(OSError, match=codec):
        loads(frames)


@pytest.fixture
def own_codec(monkeypatch):
    """A codec that somebody has registered with Dask."""
    own = compression.Compression("own", zlib.compress, zlib.decompress)
    monkeypatch.setitem(compression.compressions, "own", own)
    return "own"


@pytest.mark.parametrize("shard", [20_000, MIB])
def test_a_codec_that_only_dask_knows(own_codec, shard):
    array = numpy.zeros(200_000, "u1")
    before = spillway.stats()["copies"]["merged"]["bytes"]
    check_same(loads(as_received(dumps(to_serialize(array), own_codec, shard))), array)
    after = spillway.stats()["copies"]["merged"]["bytes"]
    assert after - before == (array.nbytes if shard < array.nbytes else 0)


def test_a_codec_that_nobody_knows(own_codec, monkeypatch):
    frames = as_received(dumps(to_serialize(numpy.zeros(MIB, "u1")), own_codec))
    monkeypatch.delitem(compression.compressions, "own")
    with pytest.raises(KeyError, match="own"):
        loads(frames)


def test_headers_that_lie_about_their_frames_raise():
    """What the peer claims is not what there is."""
    frames = as_received(dumps(to_serialize(numpy.zeros(MIB, "u1")), "lz4", MIB))
    header = msgpack.unpackb(frames[1])
    for lie in (
        {"split-num-sub-frames": [1, 1]},
        {"split-num-sub-frames": [5]},
        {"split-offsets": [0, 1]},
        {"split-offsets": [7]},
        {"compression": ["lz4", "lz4"]},
    ):
        frames[1] = memoryview(msgpack.packb({**header, **lie}))
        try:
            received = loads(frames)
        except (ValueError, IndexError, TypeError, OSError):
            continue
        assert received.nbytes == MIB, lie


@pytest.mark.parametrize("frames", [[b""], [b"\xc1"], [b"\x92\x01"]])
def test_what_is_not_msgpack_raises_what_stock_raises(frames):
    with pytest.raises(Exception) as ours:
        loads(frames)
    with pytest.raises(Exception) as stock:
        protocol.loads(frames)
    assert type(ours.value) is type(stock.value)


class ThreadOfUnpickling:
    where = None

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return note_thread, (self.data,)


def note_thread(_):
    ThreadOfUnpickling.where = threading.current_thread()


@pytest.mark.parametrize("size", [1000, 20 * MIB])
@pytest.mark.parametrize("allow_offload", [False, True])
@pytest.mark.parametrize("deserialize", [False, True])
async def test_large_messages_leave_the_loop_if_they_may(
    size, allow_offload, deserialize
):
    frames = as_received(dumps({"x": ToPickle(ThreadOfUnpickling(noise(size)))}))
    await decode(frames, deserialize=deserialize, allow_offload=allow_offload)
    is_offloaded = ThreadOfUnpickling.where is not threading.current_thread()
    assert is_offloaded == (size > MIB and allow_offload and deserialize)


def test_a_message_without_marks_is_read_without_a_hook(monkeypatch):
    def never(obj):
        raise AssertionError(obj)

    monkeypatch.setattr("spillway.dask.decode.msgpack_decode_default", never)
    message = {"op": "x", "nested": [{"a": 1}] * 3, "_under_": "_"}
    assert loads(dumps(message)) == bare(message)
    with pytest.raises(AssertionError):
        loads(dumps({"s": {1}}))
