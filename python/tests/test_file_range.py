"""What a store has of a value, as frames: in memory, or on disk and not read."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy
import pytest
from distributed.protocol import Serialized
from distributed.utils import nbytes

from comm_pairs import OURS, STOCK, comms, exchanged, with_raw_peer
from host_peer import LARGE, array, ask, exchange_large, peer
from spillway import _native, stats
from spillway.dask.queue_limit import is_small
from spillway.dask.value_encoder import serialize
from stored_values import LIVE, LOST, ON_DISK, PACKED, refuse, segments, spoil, store

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def body(size=300_000):
    return bytes(bytearray(range(251)) * (size // 251 + 1))[:size]


def frames_of(size=300_000):
    """A header, a small pickle, what can be written to and what cannot."""
    fixed = memoryview(bytearray(body(99))).toreadonly()
    return [b"header", b"pickle", bytearray(body(size)), fixed]


def plain(frames):
    return [bytes(frame) for frame in frames]


def on_disk(made, frames=None):
    entry = made.put("key", frames or frames_of(), 300_000)
    entry.spill()
    assert entry.forms == ON_DISK
    return entry


def test_a_live_value_has_no_frames():
    with store() as made:
        entry = made.put("key", frames_of(), 1)
        assert entry.forms == LIVE
        assert entry.frames() is None


def test_a_packed_value_has_those_that_it_came_in():
    with store() as made:
        entry = made.put_packed("key", frames_of(), 1)
        assert entry.forms == PACKED
        frames = entry.frames()
        assert plain(frames) == plain(frames_of())
        assert [type(frame) for frame in frames[:2]] == [bytes, bytes]
        assert [frame.readonly for frame in frames[2:]] == [False, True]


def test_of_a_value_on_disk_nothing_is_read():
    with store() as made:
        entry = on_disk(made)
        held = stats()["budget"]["held"]
        frames = entry.frames()
        assert all(type(frame) is _native.FileRange for frame in frames)
        assert [frame.nbytes for frame in frames] == [6, 6, 300_000, 99]
        assert [frame.writeable for frame in frames] == [False, False, True, False]
        assert not any(frame.codec for frame in frames)
        assert all(frame.checksum is not None for frame in frames)
        assert nbytes(frames[2]) == 300_000
        assert not is_small(frames)
        assert stats()["budget"]["held"] == held
        assert made.figures()["reads"] == 0


def test_as_a_buffer_it_is_read_once_and_kept():
    with store() as made:
        frames = on_disk(made).frames()
        assert plain(frames) == plain(frames_of())
        one, other = memoryview(frames[2]), memoryview(frames[2])
        assert [memoryview(frame).readonly for frame in frames[2:]] == [False, True]
        one[0] = 77
        assert other[0] == 77
        with pytest.raises(TypeError, match="read-only"):
            memoryview(frames[3])[0] = 77


def test_a_frame_without_bytes_is_memory():
    with store() as made:
        frames = on_disk(made, [b"header", b"", b"x"]).frames()
        assert plain(frames) == [b"header", b"", b"x"]
        assert type(frames[1]) is not _native.FileRange


def test_it_lasts_when_the_value_goes():
    with store() as made:
        entry = on_disk(made)
        frames = entry.frames()
        entry.remove()
        assert plain(frames) == plain(frames_of())
        with pytest.raises(_native.SpillwayError) as error:
            entry.frames()
        assert error.value.status == "CLOSED"
    assert plain(frames) == plain(frames_of())


def test_a_value_with_a_copy_on_disk_has_that():
    with store(unpack=list) as made:
        entry = on_disk(made)
        value = entry.acquire()
        assert entry.forms == LIVE | ON_DISK
        assert type(entry.frames()[2]) is _native.FileRange
        entry.unpin()
        del value


def test_several_threads_read_it_at_once():
    with store() as made:
        frames = on_disk(made, [b"header", body(4_000_000)]).frames()
        with ThreadPoolExecutor(8) as pool:
            views = list(pool.map(memoryview, [frames[1]] * 8))
        assert all(view == body(4_000_000) for view in views)
        assert len({_address(view) for view in views}) == 1


def _address(view):
    return numpy.frombuffer(view, "u1").ctypes.data


def test_it_is_pickled_as_its_bytes():
    with store() as made:
        frames = on_disk(made).frames()
        copies = pickle.loads(pickle.dumps(frames))
        assert [type(copy) for copy in copies] == [bytes, bytes, bytearray, bytes]
        assert plain(copies) == plain(frames_of())


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_what_is_compressed_on_disk_is_not_to_who_reads_it(codec):
    with store(codec=codec) as made:
        frames = on_disk(made).frames()
        assert [frame.codec for frame in frames] == [None, None, codec, None]
        assert frames[2].checksum is None
        assert frames[2].nbytes == 300_000
        frames[2].verify()
        assert frames[0].as_stored() is frames[0]
        stored = frames[2].as_stored()
        assert stored.codec is None and not stored.writeable
        assert stored.checksum == _native.checksum(stored)
        assert stored.nbytes < 300_000
        assert _native.decompress(codec, [stored]) == body()
        assert plain(frames) == plain(frames_of())


@pytest.mark.parametrize("codec", ["", "lz4"])
def test_other_bytes_than_were_written_are_an_error_and_no_data(codec):
    with store(codec=codec) as made:
        entry = on_disk(made)
        frames = entry.frames()
        spoil(body()[:8] if not codec else b"header")
        spoilt = frames[2 if not codec else 0]
        for use in (memoryview, bytes, pickle.dumps, _native.FileRange.verify):
            with pytest.raises(_native.SpillwayError) as error:
                use(spoilt)
            assert error.value.status == "CORRUPT"
        frames[1].verify()
        with pytest.raises(_native.SpillwayError):
            entry.get()
        assert entry.forms == LOST
        with pytest.raises(_native.SpillwayError, match="made again"):
            entry.frames()


def test_nobody_else_makes_one():
    with pytest.raises(TypeError):
        _native.FileRange()


# ---- over connections ----


def message(frames):
    header, _ = serialize(bytearray(0))
    return {"data": Serialized(header, frames[1:])}


def stored_bytearray(size=LARGE):
    return [b"header", bytearray(body(size))]


@pytest.mark.parametrize("far", [OURS, STOCK])
async def test_a_connection_sends_it_from_its_file(far):
    with store() as made:
        frames = on_disk(made, stored_bytearray()).frames()
        async with comms(OURS, far) as (near, other):
            got = await exchanged(near, other, message(frames))
            assert got["data"] == body(LARGE)
            frames = await sent_unread(near, other, frames)
        assert made.figures()["reads"] == 0


async def sent_unread(near, other, frames):
    """What is spoilt is sent as it is, from its file: it was not read before."""
    spoil(body()[:8])
    got = await exchanged(near, other, message(frames))
    assert got["data"][0] == body()[0] ^ 1
    return frames


async def test_to_another_process_of_the_host():
    with store() as made:
        sent = array()
        entry = on_disk(made, [b"header", *serialize(sent)[1]])
        async with peer() as (_, comm):
            await exchange_large(comm, times=2)
            before = stats()["same_host"]["bytes_sent"]
            for _ in range(3):
                stored = Serialized(serialize(sent)[0], entry.frames()[1:])
                got = await ask(comm, op="echo", data=stored)
                assert numpy.array_equal(got, sent)
            # Not by reference, for it never was in our memory.
            assert stats()["same_host"]["bytes_sent"] == before


async def test_a_connection_without_threads_reads_it():
    with store() as made, dask.config.set({"spillway.comm.threads": 0}):
        frames = on_disk(made, stored_bytearray()).frames()
        async with comms(OURS, OURS) as (near, other):
            got = await exchanged(near, other, message(frames))
            assert got["data"] == body(LARGE)
            spoil(body()[:8])
            got = await exchanged(near, other, message(frames))
            assert got["data"] == body(LARGE)  # it was kept


async def test_one_that_is_cut_ends_the_connection():
    with store() as made:
        frames = on_disk(made, stored_bytearray()).frames()
        async with with_raw_peer() as (comm, raw):
            for path in segments():
                with open(path, "r+b") as file:
                    file.truncate(1000)
            await comm.write(message(frames))
            wire = await raw.receive_rest()
            assert len(wire) < LARGE
            with pytest.raises(OSError):
                await comm.read()


def test_a_store_takes_what_another_has_on_disk():
    with store() as one, store(unpack=refuse) as other:
        entry = other.put_packed("key", on_disk(one).frames(), 1)
        assert plain(entry.frames()) == plain(frames_of())
