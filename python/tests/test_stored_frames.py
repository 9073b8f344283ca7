"""A stored value on its way to a peer: what has to be read, checked or decompressed for
it, and what has not."""

import lz4.block
import msgpack
import numpy
import pytest
from distributed.protocol import Serialized
from distributed.protocol.serialize import merge_and_deserialize

from comm_pairs import OURS, STOCK, comms
from spillway import _native
from spillway.dask import checksums
from spillway.dask.checksums import Damaged
from spillway.dask.stored_frames import SMALL_BYTES, Preparation, Recipient
from spillway.dask.value_encoder import serialize
from stored_values import mini_store, pack, spilled, spoil

ARRAY = numpy.arange(100_000)

OURS_TO_OURS = Recipient(takes_files=True, compares=True, codec=None)
OURS_TO_STOCK = Recipient(takes_files=True, compares=False, codec=None)
BY_STOCK = Recipient(takes_files=False, compares=False, codec=None)
EVERY = [OURS_TO_OURS, OURS_TO_STOCK, BY_STOCK]


@pytest.fixture
def on_disk():
    with spilled() as frames_of:
        yield frames_of


def value_of(sent):
    assert type(sent) is Serialized
    assert type(sent.frames) is list  # Dask's encoder needs that
    return merge_and_deserialize(sent.header, list(map(memoryview, sent.frames)))


def received(value, *, codec=None, sums=None):
    """What was received of a value, as it is kept: compressed for the peer from which
    it came, or with checksums of it."""
    header, frames = serialize(value)
    if codec == "lz4":
        frames = [lz4.block.compress(frame) for frame in frames]
        header["compression"] = ("lz4",) * len(frames)
    if sums is not None:
        header[checksums.KEY] = sums(frames)
    return [msgpack.packb(header, use_bin_type=True), *frames]


def right(frames):
    return tuple(map(_native.checksum, frames))


def wrong(frames):
    return tuple(_native.checksum(frame) ^ 1 for frame in frames)


@pytest.mark.parametrize("to", EVERY)
def test_in_memory_it_is_what_it_is(to):
    frames = pack(ARRAY)
    preparation = Preparation(frames, to)
    assert preparation.is_quick
    assert not to.costs_memory(frames)
    sent = preparation.run()
    assert sent.frames[0] is frames[1]
    assert checksums.KEY not in sent.header
    assert (value_of(sent) == ARRAY).all()
    assert preparation.read_bytes == 0


@pytest.mark.parametrize("to", EVERY)
def test_a_header_is_made_for_each_use(to):
    frames = pack({"a": 1})
    one, other = (Preparation(frames, to).run() for _ in range(2))
    one.header.clear()
    assert value_of(other) == {"a": 1}


@pytest.mark.parametrize("to", EVERY)
def test_from_a_disk(on_disk, to):
    frames = on_disk(ARRAY)
    preparation = Preparation(frames, to)
    assert not preparation.is_quick
    assert to.costs_memory(frames) == (to is BY_STOCK)
    sent = preparation.run()
    assert (type(sent.frames[0]) is _native.FileRange) == to.takes_files
    if to.compares:
        assert sent.header[checksums.KEY] == (frames[1].checksum,)
        assert preparation.read_bytes < 1000  # the header
    else:
        assert checksums.KEY not in sent.header
        assert preparation.read_bytes > ARRAY.nbytes
    assert preparation.seconds > 0
    assert (value_of(sent) == ARRAY).all()


def test_what_is_small_is_read(on_disk):
    small = numpy.arange(SMALL_BYTES // 8 - 1)
    frames = on_disk(small)
    assert not BY_STOCK.costs_memory(frames)
    sent = Preparation(frames, OURS_TO_OURS).run()
    assert type(sent.frames[0]) is memoryview
    assert checksums.KEY not in sent.header


@pytest.mark.parametrize("to", [OURS_TO_STOCK, BY_STOCK])
def test_who_cannot_compare_gets_nothing_that_is_damaged(on_disk, to):
    frames = on_disk(ARRAY)
    spoil(ARRAY[:9].tobytes())
    with pytest.raises(_native.SpillwayError) as error:
        Preparation(frames, to).run()
    assert error.value.status == "CORRUPT"


def test_a_header_that_is_damaged_is_sent_to_nobody(on_disk):
    frames = on_disk(ARRAY)
    spoil(bytes(pack(ARRAY)[0])[:9])
    with pytest.raises(_native.SpillwayError):
        Preparation(frames, OURS_TO_OURS).run()


# ---- what is compressed on disk ----

ZEROS = numpy.zeros(100_000)


def decompressed(sent):
    names = sent.header.get("compression") or (None,) * len(sent.frames)
    frames = [
        _native.decompress(codec, [frame]) if codec else frame
        for codec, frame in zip(names, sent.frames, strict=True)
    ]
    return merge_and_deserialize(sent.header, frames)


@pytest.mark.parametrize("codec", ["lz4", "zstd", "zlib"])
@pytest.mark.parametrize(
    "to, is_plain",
    [
        (OURS_TO_OURS, False),
        (Recipient(takes_files=True, compares=False, codec="lz4"), {"zstd", "zlib"}),
        (OURS_TO_STOCK, True),
        (BY_STOCK, True),
        (Recipient(takes_files=False, compares=False, codec="lz4"), True),
    ],
)
def test_it_is_sent_so_to_who_reads_it(codec, to, is_plain):
    is_plain = is_plain is True or (is_plain and codec in is_plain)
    with mini_store(codec=codec) as store:
        store["x"] = ZEROS
        store.entry("x").spill()
        frames = store.entry("x").frames()
        assert frames[1].codec == codec
        assert to.costs_memory(frames) == is_plain
        sent = Preparation(frames, to).run()
        if is_plain:
            assert "compression" not in sent.header
            assert type(sent.frames[0]) is memoryview
        else:
            assert sent.header["compression"] == (codec,)
            assert type(sent.frames[0]) is _native.FileRange
            assert sent.frames[0].nbytes < ZEROS.nbytes // 10
        assert (decompressed(sent) == ZEROS).all()
        if checksums.KEY in sent.header:
            checksums.verify(sent.header, sent.frames)
        assert (checksums.KEY in sent.header) == (to.compares and not is_plain)


@pytest.mark.parametrize("to", EVERY)
def test_what_came_with_a_checksum_is_sent_with_that(to):
    with mini_store(codec="lz4") as store:
        entry = store.native.put_packed("x", received(ZEROS, sums=right), 1)
        entry.spill()
        assert entry.frames()[1].codec == "lz4"
        sent = Preparation(entry.frames(), to).run()
        assert "compression" not in sent.header
        checksums.verify(sent.header, sent.frames)
        assert (checksums.KEY in sent.header) == to.compares


# ---- what came from elsewhere ----


def test_compressed_for_one_peer_and_sent_to_another():
    frames = received(ARRAY, codec="lz4")
    reads_it = Recipient(takes_files=True, compares=True, codec="lz4")
    sent = Preparation(frames, reads_it).run()
    assert Preparation(frames, reads_it).is_quick
    assert sent.frames[0] is frames[1]
    assert sent.header["compression"] == ("lz4",)
    for codec in (None, "zstd"):
        other = Recipient(takes_files=True, compares=True, codec=codec)
        assert not Preparation(frames, other).is_quick
        sent = Preparation(frames, other).run()
        assert sent.header["compression"] == (None,)
        assert (value_of(sent) == ARRAY).all()


@pytest.mark.parametrize("codec", [None, "lz4"])
def test_checksums_of_elsewhere_go_along_as_long_as_the_frames_do(codec):
    to = Recipient(takes_files=True, compares=True, codec=codec)
    frames = received(ARRAY, codec=codec, sums=wrong)
    assert Preparation(frames, to).is_quick
    sent = Preparation(frames, to).run()
    with pytest.raises(Damaged):
        checksums.verify(sent.header, sent.frames)


@pytest.mark.parametrize("form", ["memory", "disk"])
@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("to", [OURS_TO_STOCK, BY_STOCK])
def test_and_are_compared_here_where_nobody_else_would(to, codec, form):
    def run(sums):
        frames = received(ARRAY, codec=codec, sums=sums)
        with mini_store() as store:
            entry = store.native.put_packed("x", frames, 1)
            if form == "disk":
                entry.spill()
            preparation = Preparation(entry.frames(), to)
            assert not preparation.is_quick
            return preparation.run()

    sent = run(right)
    assert checksums.KEY not in sent.header
    assert (value_of(sent) == ARRAY).all()
    with pytest.raises(Damaged):
        run(wrong)


def test_before_they_are_decompressed():
    with pytest.raises(Damaged):
        Preparation(received(ARRAY, codec="lz4", sums=wrong), OURS_TO_OURS).run()
    sent = Preparation(received(ARRAY, codec="lz4", sums=right), OURS_TO_OURS).run()
    assert checksums.KEY not in sent.header


# ---- serialisers ----


class Own:
    def __eq__(self, other):
        return type(other) is Own


@pytest.mark.parametrize(
    "value, allowed, is_sent",
    [
        (ARRAY, None, True),
        (ARRAY, ["dask"], True),
        (ARRAY, ("pickle", "dask"), True),
        (ARRAY, ["pickle"], False),
        (Own(), ["pickle"], True),
        (Own(), ["dask"], False),
        (Own(), [], False),
    ],
)
def test_only_serialisers_that_are_allowed(on_disk, value, allowed, is_sent):
    for frames in (pack(value), on_disk(value)):
        sent = Preparation(frames, OURS_TO_OURS, allowed).run()
        assert (sent is not None) == is_sent


# ---- peers ----


@pytest.mark.parametrize("pair", [(OURS, OURS), (OURS, STOCK), (STOCK, OURS)])
async def test_what_a_comm_says_of_its_peer(pair):
    async with comms(*pair) as ends:
        for end, kind in zip(ends, pair, strict=True):
            to = Recipient.of(end)
            assert to.takes_files == (kind == OURS)
            assert to.compares == (pair == (OURS, OURS))
            assert to.codec is None  # one host
            end.handshake_options["compression"] = "lz4"
            assert Recipient.of(end).codec == "lz4"
