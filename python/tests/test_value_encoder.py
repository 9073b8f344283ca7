"""Values are pickled whole, in one pass, and Dask's own decoder reads what is sent."""

import array
import collections
import pickle
import sys
import types
import weakref

import cloudpickle
import hypothesis
import numpy
import pandas
import pytest
from distributed import protocol
from distributed.protocol import dask_deserialize, dask_serialize, to_serialize
from distributed.protocol.serialize import (
    Serialize,
    Serialized,
    register_generic,
)

import spillway.dask
from message_shapes import check_same_array, noise
from spillway import value_counts
from spillway.dask import decode, encode_cost, outgoing_message, value_encoder
from spillway.dask.value_encoder import serialize
from test_foreign_errors import HOSTILE, Unhashed, Unnamed
from value_samples import (
    Blob,
    Colour,
    Names,
    Node,
    Pair,
    check_came_back,
    filled,
    in_a_ring,
    read_only,
    tagged,
    values,
)

OPTIONS = {
    "serializers": None,
    "on_error": "message",
    "context": {"compression": None},
    "frame_split_size": 10_000,
}


def as_received(frames):
    """Frames in memory of the receiver's, which may be written to."""
    return [bytes(frames[0]), *(memoryview(bytearray(frame)) for frame in frames[1:])]


def frames_of(value, **options):
    message = to_serialize(value)
    return outgoing_message.dumps(
        message, value_encoder.encode, **{**OPTIONS, **options}
    )


def by_stock(value, **options):
    """What a stock peer receives."""
    return protocol.loads(as_received(frames_of(value, **options)))


def by_us(value, **options):
    return decode.loads(as_received(frames_of(value, **options)))


def size(value):
    return sum(memoryview(frame).nbytes for frame in serialize(value)[1])


every_peer = pytest.mark.parametrize("peer", [by_us, by_stock])


@every_peer
@hypothesis.given(values)
@hypothesis.settings(max_examples=150, deadline=None)
def test_nested_values(peer, sent):
    check_came_back(peer(sent), sent)


@hypothesis.given(values)
@hypothesis.settings(max_examples=100, deadline=None)
def test_what_stock_sends_we_read_as_stock_does(sent):
    options = {**OPTIONS, "on_error": "raise"}
    try:
        frames = as_received(protocol.dumps(to_serialize(sent), **options))
    except (TypeError, RecursionError):
        return  # more than stock can send
    try:
        expected = protocol.loads(frames)
    except Exception as error:
        with pytest.raises(type(error)):
            decode.loads(frames)
    else:
        check_came_back(decode.loads(frames), expected)


KINDS = {
    "array": lambda: filled((300, 40), "f8"),
    "array, read-only": lambda: read_only(filled((300, 40), "f8")),
    "array, strided": lambda: filled((300, 40), "f8")[::2, ::-3],
    "array, repeated, read-only": lambda: numpy.broadcast_to(
        filled((9,), "i4"), (7, 9)
    ),
    "array of objects": lambda: numpy.array([Node(a=1), None, "x"], dtype=object),
    "array of a user's": lambda: tagged([1.0, 2.0], "km"),
    "bytes": lambda: b"abc" * 9000,
    "bytes of a user's": lambda: Blob(b"payload"),
    "bytearray": lambda: bytearray(b"abc" * 9000),
    "memoryview": lambda: memoryview(filled((40, 300), "f4"))[::2],
    "memoryview, read-only": lambda: memoryview(b"abc" * 9000),
    "number": lambda: 2**80,
    "enum": lambda: {Colour.RED: Colour.BLUE},
    "order": lambda: collections.OrderedDict([(3, 1), (1, 2)]),
    "default": lambda: Names({"a": Pair([1], {2})}),
    "ring": lambda: in_a_ring([1, (2,)]),
    "sets": lambda: [{1, "x"}, frozenset([2])],
}


@every_peer
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind, peer):
    sent = KINDS[kind]()
    received = peer(sent)
    if kind == "array of objects":
        assert type(received[0]) is Node and received[1:].tolist() == [None, "x"]
    elif kind == "array of a user's":
        check_same_array(received, sent)
        assert received.unit == "km"
    else:
        check_came_back(received, sent)


@every_peer
def test_what_is_one_object_is_sent_once_and_stays_one(peer):
    shared = noise(20_000, "f8")
    received = peer({"a": shared, "b": [shared, (shared,)], "c": Node(d=shared)})
    assert received["a"] is received["b"][0] is received["b"][1][0]
    assert received["a"] is received["c"].d
    assert size([shared] * 5) < shared.nbytes + 1000


def test_buffers_are_sent_from_where_they_are():
    parts = [noise(9_000), filled((50, 60), "f4").T, memoryview(bytearray(9_000))]
    _, frames = serialize(parts)
    for part, frame in zip(parts, frames[1:], strict=True):
        memory = numpy.asarray(part).ravel("K").view("u1")
        assert numpy.shares_memory(numpy.frombuffer(frame, "u1"), memory)


def test_every_buffer_has_its_own_flag():
    sent = [noise(5000), read_only(noise(6000)), memoryview(bytes(7000))]
    header, frames = serialize(sent)
    assert header == {
        "serializer": "pickle",
        "type": "list",
        "writeable": (True, False, False),
    }
    assert len(frames) == 4


def test_small_buffers_go_inside_the_pickle():
    sent = [numpy.full(i % 4, i) for i in range(6000)]
    _, frames = serialize(sent)
    assert len(frames) == 1
    check_came_back(by_stock(sent), sent)
    assert by_stock([read_only(noise(9))])[0].flags.writeable is False


def test_the_alignment_of_small_buffers():
    for one in by_us([noise(50, "f8") for _ in range(20)]):
        assert one.ctypes.data % 8 == 0


LONG = value_encoder.LEAST_PART_BYTES


@every_peer
@pytest.mark.parametrize("make", [bytes, bytearray])
def test_long_bytes_inside_a_value_are_sent_from_where_they_are(peer, make):
    long = [make(noise(size)) for size in (LONG, 3 * LONG)]
    sent = {"a": long[0], "b": [long[1], "x" * 9], "c": long[0], "d": make(noise(99))}
    _, (packed,) = value_encoder.encode(sent)
    kept = [part for part in packed if any(part is one for one in long)]
    assert len(kept) == (2 if make is bytes else 0)
    assert sum(type(part) is memoryview for part in packed) == 2 - len(kept)
    assert len(packed) == 5
    assert b"".join(packed) == serialize(sent)[1][0]
    received = peer(sent)
    check_came_back(received, sent)
    if make is bytes:
        assert received["a"] is received["c"]


@every_peer
def test_long_pickles_of_small_things_stay_whole(peer):
    sent = [f"text number {i}" for i in range(100_000)]
    _, (packed,) = value_encoder.encode(sent)
    assert type(packed) is bytes
    assert peer(sent) == sent
    text = "é" * LONG
    assert peer([text, text + "x"]) == [text, text + "x"]


def test_the_name_of_the_script_in_long_data_means_nothing():
    _, (packed,) = value_encoder.encode(["x" * LONG * 3 + "__main__", b"y" * LONG])
    assert len(packed) >= 4


def test_tables_keep_their_blocks_apart():
    frame = pandas.DataFrame({"a": noise(5000, "f8"), "b": noise(5000, "f8")})
    _, frames = serialize({"frame": frame})
    assert len(frames[0]) < 3000
    pandas.testing.assert_frame_equal(by_stock({"frame": frame})["frame"], frame)


class Registered:
    """What only Dask's registry can serialise."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        raise TypeError("not by pickle")


class Derived(Registered):
    pass


class Generic:
    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        raise TypeError("not by pickle")


@pytest.fixture
def registry():
    lookups = dask_serialize._lookup, dask_deserialize._lookup
    before = [dict(lookup) for lookup in lookups]
    dask_serialize.register(Registered, lambda one: ({"n": 1}, [one.data]))
    dask_deserialize.register(Registered, lambda _, frames: Registered(frames[0]))
    register_generic(Generic)
    yield
    for lookup, kept in zip(lookups, before, strict=True):
        lookup.clear()
        lookup.update(kept)


@every_peer
def test_what_only_the_registry_takes(registry, peer):
    data = bytes(5000)
    for sent in (Registered(data), [Registered(data)], Node(a={"b": Registered(data)})):
        received = peer(sent)
        while not isinstance(received, Registered):
            received = getattr(received, "a", received)
            received = received[0 if isinstance(received, list) else "b"]
        assert bytes(received.data) == data
    assert peer(Generic("y")).data == "y"
    assert [one.data for one in peer((Generic("x"), Generic(3)))] == ["x", 3]


def test_it_is_one_object_there_too(registry):
    shared = Registered(noise(9000).data)
    received = by_stock([shared, shared])
    assert received[0] is received[1]
    assert size([shared, shared]) < 10_000


def test_what_is_registered_counts_from_then_on():
    class Late(Registered):
        pass

    assert serialize(Late(b"x"))[0] == {"serializer": "error"}
    dask_serialize.register(Late, lambda one: ({}, [one.data]))
    assert serialize(Late(b"x"))[0]["serializer"] == "dask"
    assert serialize([Late(b"x")])[0]["serializer"] == "pickle"


def test_a_registered_serialiser_that_declines(registry):
    def decline(_):
        raise NotImplementedError

    dask_serialize.register(Node, decline)
    check_came_back(by_stock(Node(a=1)), Node(a=1))
    check_came_back(by_stock([Node(a=1)]), [Node(a=1)])


def test_frames_that_nobody_can_send_are_refused(registry):
    dask_serialize.register(Registered, lambda one: ({}, [("no", "buffer")]))
    before = value_counts.read()["failed"]
    header, frames = serialize(Registered(1))
    assert header == {"serializer": "error"}
    assert b"bytes-like" in frames[1]
    assert value_counts.read()["failed"] == before + 1


@pytest.mark.parametrize(
    "frame",
    [
        memoryview(bytearray(range(200)))[::2],
        memoryview(filled((4, 5), "i4")),
        memoryview(filled((4, 5), "i4").T),
        filled((4, 5), "i4"),
        array.array("d", [1, 2]),
    ],
    ids=["strided", "two dimensions", "Fortran", "array", "typed"],
)
def test_frames_of_the_registry_become_ones_that_can_be_split(registry, frame):
    dask_serialize.register(Registered, lambda _: ({}, [frame]))
    _, (sent,) = serialize(Registered(1))
    assert memoryview(sent).nbytes == memoryview(frame).nbytes
    assert memoryview(sent).ndim == 1 and memoryview(sent).c_contiguous
    assert bytes(by_stock(Registered(1), frame_split_size=16).data) == bytes(sent)


def test_cloudpickle_where_pickle_cannot(monkeypatch):
    def local(number):
        return number + len(kept)

    kept = noise(9000)
    _, frames = serialize([local, kept])
    assert len(frames) == 2  # beside the pickle here too, and once
    function, data = by_stock([local, kept])
    assert function(1) == 9001
    assert numpy.array_equal(data, kept)
    view = memoryview(filled((3, 4), "f8"))
    check_came_back(by_stock([lambda: 1, view])[1], view)


def test_cloudpickle_for_what_only_the_script_has(monkeypatch):
    main = sys.modules["__main__"]
    made = type("OfTheScript", (), {"__module__": "__main__"})
    monkeypatch.setattr(main, "OfTheScript", made, raising=False)
    _, frames = serialize(made())
    monkeypatch.delattr(main, "OfTheScript")
    assert type(pickle.loads(frames[0])).__name__ == "OfTheScript"
    # Text is only text.
    _, frames = serialize("__main__" * 200)
    assert b"cloudpickle" not in frames[0]


def test_cloudpickle_for_modules_that_are_registered_by_value(monkeypatch):
    module = types.ModuleType("only_here")
    exec("class Made:\n    pass\ndef double(x):\n    return 2 * x", vars(module))
    monkeypatch.setitem(sys.modules, "only_here", module)
    cloudpickle.register_pickle_by_value(module)
    try:
        packed = [serialize(one)[1][0] for one in (module.Made(), module.double)]
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    monkeypatch.delitem(sys.modules, "only_here")
    assert type(pickle.loads(packed[0])).__name__ == "Made"
    assert pickle.loads(packed[1])(4) == 8


class Raises:
    def __reduce__(self):
        raise ValueError("will not be pickled")

    def __str__(self):
        raise RuntimeError("nor shown")


class Hostile:
    def __init__(self, value):
        self.value = value

    def _raise(self, *_):
        raise RuntimeError("hostile")

    __sizeof__ = __len__ = __bool__ = __eq__ = __str__ = __repr__ = _raise
    __hash__ = None
    nbytes = property(_raise)


class Liar(Hostile):
    nbytes = -5
    __class__ = dict

    def __sizeof__(self):
        return -3


@every_peer
def test_hostile_objects(peer):
    received = peer([Hostile("a"), {"b": Hostile(noise(9000))}])
    assert type(received[0]) is Hostile and received[0].value == "a"
    assert len(received[1]["b"].value) == 9000
    assert type(peer(Hostile(1))) is Hostile


class Exits:
    def __reduce__(self):
        raise SystemExit(3)


class HidesItsClass:
    __module__ = 5

    @property
    def __class__(self):
        raise RuntimeError("no class")


def test_values_that_would_end_the_process_or_hide(monkeypatch):
    monkeypatch.setattr(encode_cost, "_learned", weakref.WeakKeyDictionary())
    for value in (Exits(), [Exits()], HidesItsClass(), Unnamed(), Unhashed()):
        header, _ = serialize(value)
        assert header == {"serializer": "error"}
        message = outgoing_message.OutgoingMessage(
            [to_serialize(value), to_serialize(noise(9))],
            1 << 20,
            lambda: OPTIONS,
            value_encoder.encode,
        )
        assert message.encode_here() is None  # what it costs is not known


def test_a_bytearray_keeps_its_size_until_it_is_sent():
    sent = {"a": bytearray(LONG), "b": bytearray(9)}
    _, (packed,) = value_encoder.encode(sent)
    with pytest.raises(BufferError):
        sent["a"].append(1)
    sent["b"].append(1)
    assert len(pickle.loads(b"".join(packed))["b"]) == 9


def test_a_liar_about_its_class_is_like_any_other():
    assert serialize(Liar(1))[0]["serializer"] in ("pickle", "error")


@pytest.mark.parametrize("value", [Raises(), [1, Raises()]], ids=["alone", "inside"])
def test_what_cannot_be_serialised(value):
    header, frames = serialize(value)
    assert header == {"serializer": "error"}
    assert type(value).__name__.encode() in frames[0]
    assert b"will not be pickled" in frames[1]
    with pytest.raises(TypeError, match="will not be pickled"):
        by_stock(value)
    with pytest.raises(TypeError, match="Could not serialize") as raised:
        serialize(value, on_error="raise")
    assert isinstance(raised.value.__cause__, ValueError)


class RaisesOneOf:
    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        raise HOSTILE[self.kind]()


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_errors(kind):
    header, frames = serialize({"x": RaisesOneOf(kind)})
    assert header == {"serializer": "error"}
    assert frames[0] == b"Could not serialize object of type dict"
    assert frames[1].decode()
    with pytest.raises(TypeError, match="Could not serialize"):
        by_us(RaisesOneOf(kind))
    with pytest.raises(TypeError, match="Could not serialize"):
        serialize(RaisesOneOf(kind), on_error="raise")


def test_a_value_of_a_class_without_a_name():
    header, frames = serialize(Unnamed())
    assert header == {"serializer": "error"} and b"type Unnamed" in frames[0]


async def test_a_value_that_interrupts_where_an_event_loop_has_the_signal():
    class Interrupts:
        def __reduce__(self):
            raise KeyboardInterrupt

    assert serialize(Interrupts())[0] == {"serializer": "error"}


@pytest.mark.parametrize("depth", [10_000, 100_000])
def test_what_is_nested_too_deeply_is_refused_clearly(depth):
    value = []
    for _ in range(depth):
        value = [value]
    header, frames = serialize(value)
    assert header == {"serializer": "error"}
    assert b"nested too deeply" in frames[0]
    with pytest.raises(TypeError, match="nested too deeply"):
        serialize(value, on_error="raise")


def test_what_is_serialised_or_marked():
    header, frames = {"serializer": "pickle", "writeable": ()}, [b"N."]
    assert serialize(Serialized(header, frames)) == (header, frames)
    assert serialize(Serialize(Serialized(header, frames))) == (header, frames)
    assert serialize(Serialize(Serialize(b"x")))[1] == [b"x"]
    # In a container Dask takes the marks off, so does it here.
    assert by_stock({"a": Serialize(1), "b": 2}) == {"a": 1, "b": 2}


def test_a_peer_that_cannot_read_our_pickles_gets_dasks():
    for python, serializer in (((3, 7, 9), None), ((3, 8, 0), "pickle")):
        context = {"recipient": {"python": python}, "pickle-protocol": 4}
        header, _ = serialize([noise(9000)], context=context)
        assert header.get("serializer") == serializer


def test_serialize_says_what_is_sent(monkeypatch):
    value = [noise(9), noise(9)]
    assert spillway.dask.serialize(value)[0] == serialize(value)[0]
    monkeypatch.setenv("SPILLWAY_DISABLE", "values")
    assert spillway.dask.serialize(value)[0]["is-collection"]
    with pytest.raises(TypeError):
        spillway.dask.serialize(Raises(), on_error="raise")


def test_which_way_values_went_is_counted(registry):
    ways = {
        "in_place": noise(9),
        "pickled": Node(),
        "registered": Registered(b"x"),
        "failed": Raises(),
        "by_dask": [Serialize(1)],
    }
    for way, value in ways.items():
        before = value_counts.read()
        value_encoder.serialize(value)
        after = value_counts.read()
        assert after == {**before, way: before[way] + 1}
