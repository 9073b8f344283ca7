"""Messages become the frames that Dask's encoder makes, on the loop or in threads."""

import threading

import hypothesis
import numpy
import pytest
from distributed import protocol
from distributed.protocol import to_serialize
from distributed.protocol.serialize import Pickled, Serialized, ToPickle

from message_shapes import MIB, SHAPES, Plain, noise
from spillway.dask import outgoing_message
from spillway.dask.offload_setting import ALWAYS, AUTO_BYTES, NEVER
from spillway.dask.outgoing_message import OutgoingMessage
from test_encode import DEEP, Unpackable, messages

LIMITS = {"never": NEVER, "auto": AUTO_BYTES, "always": ALWAYS}


def options(codec=None, **others):
    return {
        "serializers": None,
        "on_error": "message",
        "context": {"compression": codec},
        "frame_split_size": 9_000,
        **others,
    }


async def encoded(content, limit, given):
    """Its frames, and whether they were made in threads."""
    message = OutgoingMessage(content, limit, lambda: given)
    frames = message.encode_here()
    if frames is not None:
        return frames, False
    return await message.encode_elsewhere(), True


def as_bytes(frames):
    return [bytes(frame) for frame in frames]


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("codec", [None, "lz4", "auto"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_frames_are_those_of_dask(shape, codec, limit):
    given = options(codec)
    for _ in range(2):  # met for the first time, and then known
        frames, is_elsewhere = await encoded(SHAPES[shape](), limit, given)
        expected = protocol.dumps(SHAPES[shape](), **given)
        assert as_bytes(frames) == as_bytes(expected)
        assert not (is_elsewhere and limit == NEVER)


@hypothesis.given(messages)
def test_plain_messages_are_packed_as_dask_packs_them(content):
    def never():
        raise AssertionError("a plain message needs no options")

    message = OutgoingMessage(content, ALWAYS, never)
    assert message.encode_here() == protocol.dumps(content)
    assert message.is_plain


async def test_what_came_serialised_is_sent_as_it_came():
    header, frames = protocol.serialize(numpy.zeros(MIB, "u1"))
    pickled = {"pickled-obj": b"N."}
    content = {"a": Serialized(header, frames), "b": [Pickled(pickled, [])]}
    given = options("lz4")
    before = dict(header)
    made, _ = await encoded(content, ALWAYS, given)
    assert header == before
    assert made[2] is frames[0]  # not compressed, not copied
    assert as_bytes(made) == as_bytes(protocol.dumps(content, **given))


class Counted:
    """Counts how often it was pickled, and where."""

    def __init__(self):
        self.where = []

    def __reduce__(self):
        self.where.append(threading.current_thread())
        return bytes, (5,)


def never_met():
    """An object of a type that was not there before."""
    return type("NeverMet", (Counted,), {})()


@pytest.mark.parametrize("mark", [to_serialize, ToPickle])
async def test_what_was_never_met_is_tried_in_a_thread(mark):
    value = never_met()
    here = threading.current_thread()
    for expected in (True, False, False):
        _, is_elsewhere = await encoded([mark(value)], AUTO_BYTES, options())
        assert is_elsewhere == expected
    assert [thread is here for thread in value.where] == [False, True, True]


async def test_what_took_long_goes_to_a_thread_again(monkeypatch):
    value = never_met()
    clock = iter(range(1000))
    monkeypatch.setattr(outgoing_message.encode_cost, "now_s", lambda: next(clock))
    for _ in range(3):
        _, is_elsewhere = await encoded(to_serialize(value), AUTO_BYTES, options())
        assert is_elsewhere


async def test_many_that_cost_little_cost_much_together(monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(
        outgoing_message.encode_cost, "now_s", lambda: next(clock) * 1e-4
    )
    value = never_met()
    await encoded(to_serialize(value), AUTO_BYTES, options())
    for count, expected in ((10, False), (11, True)):
        values = [to_serialize(value) for _ in range(count)]
        assert (await encoded(values, AUTO_BYTES, options()))[1] == expected


async def test_what_is_serialised_is_not_serialised_again():
    known, unknown = never_met(), never_met()
    await encoded(to_serialize(known), AUTO_BYTES, options())
    known.where.clear()
    content = [to_serialize(known), {"x": ToPickle(unknown)}, to_serialize(known)]
    given = options()
    frames, is_elsewhere = await encoded(content, AUTO_BYTES, given)
    assert is_elsewhere
    here = threading.current_thread()
    assert [thread is here for thread in known.where] == [True, False]
    assert len(unknown.where) == 1
    assert as_bytes(frames) == as_bytes(protocol.dumps(content, **given))


class NobodyAsks:
    def __sizeof__(self):
        raise AssertionError("nobody is to ask")

    def __reduce__(self):
        return NobodyAsks, ()


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "content",
    [
        to_serialize(NobodyAsks()),
        [ToPickle([NobodyAsks()])],
        {"x": to_serialize({"y": NobodyAsks()})},
        {"x": NobodyAsks()},  # which msgpack does not take
    ],
    ids=["serialize", "to pickle", "nested", "bare"],
)
async def test_nobody_asks_a_value_for_its_size(content, limit):
    frames, _ = await encoded(content, limit, options())
    assert NobodyAsks in map(type, leaves(protocol.loads(frames)))


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    "content", [Plain(1), {"x": [Plain(2)], "y": to_serialize(noise(9))}, DEEP[0:0]]
)
async def test_what_msgpack_does_not_take_is_left_to_dask(content, limit):
    frames, is_elsewhere = await encoded(content, limit, options())
    assert as_bytes(frames) == as_bytes(protocol.dumps(content, **options()))
    assert not (is_elsewhere and limit == NEVER)


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("mark", [to_serialize, ToPickle, lambda value: value])
@pytest.mark.parametrize("on_error", ["raise", "message"])
async def test_errors_are_those_of_dask(limit, mark, on_error):
    def outcome(error):
        return type(error), str(error)

    given = options(on_error=on_error)
    content = {"x": mark(Unpackable())}
    try:
        expected = as_bytes(protocol.dumps(content, **given))[:2]
    except Exception as error:
        expected = outcome(error)
    try:
        found = as_bytes((await encoded(content, limit, given))[0])[:2]
    except Exception as error:
        found = outcome(error)
    assert found == expected


async def test_serializers_are_obeyed():
    given = options(serializers=["msgpack"], on_error="raise")
    frames, _ = await encoded(to_serialize({"a": 1}), ALWAYS, given)
    assert protocol.loads(frames) == {"a": 1}
    with pytest.raises(TypeError, match="Could not serialize"):
        await encoded(to_serialize(Plain(1)), ALWAYS, given)


class PacksWhilePickled:
    """Has another message packed in the middle of its own."""

    def __reduce__(self):
        inner = OutgoingMessage([to_serialize(1), "in"], NEVER, options)
        PacksWhilePickled.frames = inner.encode_here()
        return bytes, (1,)


async def test_packing_while_packing():
    content = [to_serialize(noise(5)), to_serialize(PacksWhilePickled()), "out"]
    frames, _ = await encoded(content, NEVER, options())
    assert as_bytes(frames) == as_bytes(protocol.dumps(content, **options()))
    assert protocol.loads(PacksWhilePickled.frames) == (1, "in")


def compressing_threads(monkeypatch):
    """The threads in which frames of 1 MiB and more are compressed."""
    threads = []
    stock = outgoing_message.maybe_compress

    def noted(frame, **keywords):
        if memoryview(frame).nbytes >= MIB // 2:
            threads.append(threading.current_thread())
        return stock(frame, **keywords)

    monkeypatch.setattr(outgoing_message, "maybe_compress", noted)
    return threads


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
async def test_large_frames_are_compressed_by_several_threads(monkeypatch, limit):
    threads = compressing_threads(monkeypatch)
    given = options("lz4", frame_split_size=MIB)
    content = [to_serialize(numpy.zeros(2 * MIB, "u1")), to_serialize(noise(2 * MIB))]
    frames, is_elsewhere = await encoded(content, limit, given)
    here = threading.current_thread()
    assert is_elsewhere == (limit != NEVER)
    assert len(threads) == 4  # each frame once
    assert (here in threads) == (limit == NEVER)
    assert as_bytes(frames) == as_bytes(protocol.dumps(content, **given))


async def test_little_is_compressed_here(monkeypatch):
    threads = compressing_threads(monkeypatch)
    content = to_serialize(numpy.zeros(MIB - 1, "u1"))
    given = options("lz4", frame_split_size=MIB)
    frames, is_elsewhere = await encoded(content, AUTO_BYTES, given)
    assert not is_elsewhere
    assert threads == [threading.current_thread()]
    assert len(frames[2]) < 100_000


async def test_without_a_codec_large_arrays_need_no_thread():
    content = {"x": to_serialize(noise(64 * MIB))}
    _, is_elsewhere = await encoded(content, AUTO_BYTES, options())
    assert not is_elsewhere


async def test_what_cannot_be_encoded_is_said_where_dask_says_it(caplog):
    def encode_value(value, **_):
        raise TypeError("not this one")

    message = OutgoingMessage(
        {"x": to_serialize(1)}, NEVER, lambda: options(on_error="raise"), encode_value
    )
    with pytest.raises(TypeError, match="not this one"):
        message.encode_here()
    assert {record.name for record in caplog.records} == {"distributed.protocol.core"}
    assert "Failed to Serialize" in caplog.text and "not this one" in caplog.text
