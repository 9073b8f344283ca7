"""Values that a store has on disk, given to others of the host as files."""

import errno
import os
import threading
import types
from pathlib import Path

import numpy
import pytest
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, wait
from distributed.comm.core import CommClosedError, connect
from distributed.protocol import Serialized

from comm_pairs import OURS, comms, exchanged, listening, soon
from spillway import _native, stats
from spillway.dask import (
    checksums,
    decode,
    enable,
    encode,
    handshake,
    packed,
    shared_files,
)
from spillway.dask.same_host import MeetingPlace
from spillway.dask.stored_frames import Preparation, Recipient
from stored_values import mini_store, pack, spilled

ARRAY = numpy.arange(1 << 18)
OPEN = Path("/proc/self/fd")

TAKES = Recipient(takes_files=True, compares=True, codec=None, shares_disk=True)


@pytest.fixture(autouse=True)
def not_refused(monkeypatch):
    monkeypatch.setattr(shared_files, "_refused", None)
    monkeypatch.setattr(shared_files, "_refused_by", {})


@pytest.fixture
def on_disk():
    with spilled() as frames_of:
        yield frames_of


def taken(given):
    header = dict(given.header)
    return header, shared_files.take(header)


def test_what_is_on_disk_goes_as_a_file(on_disk):
    preparation = Preparation(on_disk(ARRAY), TAKES)
    given = preparation.run()
    assert type(given) is Serialized
    assert given.frames == []
    assert preparation.read_bytes < 1000  # the header
    before = len(list(OPEN.iterdir()))
    header, frames = taken(given)
    assert len(list(OPEN.iterdir())) == before + 1
    assert [type(frame) for frame in frames] == [_native.FileRange]
    assert shared_files.KEY not in header
    assert checksums.KEY in header
    checksums.verify(header, frames)
    assert bytes(frames[0]) == ARRAY.tobytes()
    del frames
    assert len(list(OPEN.iterdir())) == before


def test_its_small_frames_are_not_read_either(on_disk):
    value = [ARRAY, numpy.arange(3), numpy.empty(0), b"x" * 9]
    preparation = Preparation(on_disk(value), TAKES)
    given = preparation.run()
    assert given.frames == []
    header, frames = taken(given)
    assert preparation.read_bytes < 2000
    header["num-sub-frames"] = len(frames)
    found = decode.value_of([encode.pack_header(header), *map(memoryview, frames)])
    assert [type(one) for one in found] == [type(one) for one in value]
    assert all(bytes(a) == bytes(b) for a, b in zip(found, value, strict=True))


def test_what_came_compressed_goes_on_as_it_came():
    value = numpy.arange(1 << 20)
    with mini_store(codec="lz4") as first, mini_store() as second:
        first["x"] = value
        first.entry("x").spill()
        kept = Preparation(first.entry("x").frames(), TAKES)
        header, frames = taken(kept.run())
        assert header["compression"] == ("lz4",)
        whole = [encode.pack_header(header), *frames]
        entry = second.native.put_packed("x", whole, value.nbytes)
        preparation = Preparation(entry.frames(), TAKES)
        header, frames = taken(preparation.run())
        assert preparation.read_bytes == 0
        found = decode.value_of([encode.pack_header(header), *frames])
        assert (found == value).all()
        entry.remove()


def test_what_is_small_or_in_memory_is_sent(on_disk):
    assert Preparation(on_disk(numpy.arange(1000)), TAKES).run().frames
    assert Preparation(pack(ARRAY), TAKES).run().frames
    frames = on_disk(ARRAY)
    memoryview(frames[1])  # read, and so in memory
    assert Preparation([frames[0], b"y" * 9, *frames[1:]], TAKES).run().frames


def test_who_does_not_compare_gets_bytes(on_disk):
    to = Recipient(takes_files=True, compares=False, codec=None, shares_disk=True)
    assert Preparation(on_disk(ARRAY), to).run().frames


def said(**changes):
    right = {
        "process": os.getpid(),
        "descriptor": 0,
        "device": 1,
        "inode": 1,
        "places": ((0, 8),),
    }
    return {shared_files.KEY: {**right, **changes}}


@pytest.mark.parametrize(
    "header",
    [
        said(),
        said(process=1 << 40),
        said(process=-1),
        said(process="1"),
        said(descriptor=1 << 40),
        said(device=-1),
        said(places=7),
        said(places=(7,)),
        said(places=((1, 2, 3),)),
        {shared_files.KEY: None},
        {shared_files.KEY: {"process": 1}},
    ],
    ids=lambda header: repr(header).replace(str(os.getpid()), "own"),
)
def test_what_no_process_has_is_not_taken(header):
    with pytest.raises(shared_files.CannotTake, match="file of another process"):
        shared_files.take(header)


@pytest.mark.parametrize(
    "place",
    [(0, 0), (-1, 8), (0, 1 << 62), (1 << 62, 8), 7, "ab", (1,), (1, 2, 3), ("1", 8)],
    ids=repr,
)
def test_a_place_that_is_not_in_the_file_is_not_taken(on_disk, place):
    frames = on_disk(ARRAY)
    given = Preparation(frames, TAKES).run()
    claim = {**given.header[shared_files.KEY], "places": (place,)}
    before = len(list(OPEN.iterdir()))
    with pytest.raises(shared_files.CannotTake):
        shared_files.take({shared_files.KEY: claim})
    assert len(list(OPEN.iterdir())) == before


@pytest.mark.parametrize(
    ("scope", "is_taken"), [("0", True), ("1", False), ("2", False), (None, True)]
)
def test_where_yama_refuses_none_is_asked_for(tmp_path, monkeypatch, scope, is_taken):
    path = tmp_path / "ptrace_scope"
    if scope is not None:
        path.write_text(f"{scope}\n")
    monkeypatch.setattr(shared_files, "_YAMA", str(path))
    assert (shared_files.why_not() is None) is is_taken


def test_where_the_system_refuses_none_is_asked_for(monkeypatch, tmp_path):
    def refuse(*args):
        raise PermissionError(errno.EPERM, "not in this container")

    monkeypatch.setattr(shared_files, "_YAMA", str(tmp_path / "none"))
    monkeypatch.setattr(shared_files._native, "take_ranges", refuse)
    shared_files._refused_even_ours.cache_clear()
    try:
        assert "not in this container" in shared_files.why_not()
    finally:
        shared_files._refused_even_ours.cache_clear()


@pytest.fixture
def takers(monkeypatch, tmp_path):
    """This process has workers that take values."""
    monkeypatch.setattr(packed, "is_anybody", lambda: True)
    monkeypatch.setattr(shared_files, "_YAMA", str(tmp_path / "none"))


@pytest.mark.usefixtures("takers")
async def test_who_makes_a_connection_says_so():
    async with comms(OURS, OURS) as (near, far):
        assert handshake.takes_files(far.remote_info)
        await exchanged(near, far, 1)
        await exchanged(far, near, 1)
        assert far.gives_files
        assert not near.gives_files


async def test_who_has_no_workers_does_not():
    async with comms(OURS, OURS) as (near, far):
        await exchanged(near, far, 1)
        assert not far.gives_files


@pytest.mark.usefixtures("takers")
async def test_who_could_not_take_one_asks_again_for_bytes(on_disk):
    given = Preparation(on_disk(ARRAY), TAKES).run()
    given.header[shared_files.KEY] = said()[shared_files.KEY]
    async with listening(OURS) as (listener, accepted):
        address = listener.contact_address
        near, far = await connect(address), await soon(accepted.get())
        await far.write({"status": "OK", "data": {"x": given}})
        with pytest.raises(CommClosedError, match="file of another process"):
            await near.read()
        assert near.closed()
        assert "file of another process" in shared_files.why_not(address)
        near, far = await connect(address), await soon(accepted.get())
        await exchanged(near, far, 1)
        assert not far.gives_files
        near.abort()
    async with comms(OURS, OURS) as (near, far):  # of others it takes them
        await exchanged(near, far, 1)
        assert far.gives_files


@pytest.mark.usefixtures("takers")
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
async def test_where_the_system_refuses_nobody_is_asked_again(
    number, on_disk, monkeypatch
):
    def refuse(*_):
        raise OSError(number, "refused")

    given = Preparation(on_disk(ARRAY), TAKES).run()
    monkeypatch.setattr(_native, "take_ranges", refuse)
    async with comms(OURS, OURS) as (near, far):
        await far.write({"status": "OK", "data": {"x": given}})
        with pytest.raises(CommClosedError, match="file of another process"):
            await near.read()
    assert shared_files.why_not() is not None


@pytest.mark.usefixtures("takers")
async def test_who_names_other_processes_is_given_bytes(monkeypatch):
    offer = MeetingPlace.offer

    def offer_of_a_container(self, secret):
        return {**offer(self, secret), "processes": 1}

    monkeypatch.setattr(MeetingPlace, "offer", offer_of_a_container)
    async with comms(OURS, OURS) as (near, far):
        await exchanged(near, far, 1)
        assert not far.gives_files


@pytest.mark.usefixtures("takers")
async def test_who_decodes_at_once_reads_it_in_a_thread(on_disk, monkeypatch):
    readers = []

    def in_memory(frames, read=decode._in_memory):
        readers.append(threading.get_ident())
        return read(frames)

    monkeypatch.setattr(decode, "_in_memory", in_memory)
    preparation = Preparation(on_disk(ARRAY), TAKES)
    async with comms(OURS, OURS) as (near, far):
        message = await exchanged(far, near, {"data": {"x": preparation.run()}})
        assert (message["data"]["x"] == ARRAY).all()
    assert len(readers) == 1
    assert threading.get_ident() not in readers


@pytest.mark.parametrize("deserialize", [True, False])
async def test_nobody_opens_what_he_did_not_ask_for(deserialize, on_disk, monkeypatch):
    monkeypatch.setattr(_native, "take_ranges", None)
    preparation = Preparation(on_disk(ARRAY), TAKES)
    message = {"op": "scatter", "data": {"x": preparation.run()}}
    async with comms(OURS, OURS, deserialize=deserialize) as (near, far):
        await near.write(message)
        if deserialize:
            with pytest.raises(checksums.Damaged):
                await far.read()
        else:
            assert (await far.read())["data"]["x"].frames == []


@pytest.mark.usefixtures("takers")
async def test_however_many_values_a_file_has_one_descriptor_is_taken():
    with mini_store() as store:
        data, kept = {}, []
        for key in map(str, range(10)):
            store[key] = ARRAY + int(key)
            store.entry(key).spill()
            kept.append(Preparation(store.entry(key).frames(), TAKES))
            data[key] = kept[-1].run()
        async with comms(OURS, OURS) as (near, far):
            await exchanged(far, near, 1)
            before = len(list(OPEN.iterdir()))
            with packed.wanted_by(store):
                message = {"status": "OK", "data": data}
                found = (await exchanged(far, near, message))["data"]
            assert len(list(OPEN.iterdir())) == before + 1
        for key, value in found.items():
            assert sizeof(value) >= sizeof(ARRAY)
            assert (decode.value_of(value.frames) == ARRAY + int(key)).all()


@pytest.mark.usefixtures("takers")
async def test_what_is_not_kept_is_let_go_of_whoever_still_has_it(on_disk):
    given = Preparation(on_disk(ARRAY), TAKES).run()
    async with comms(OURS, OURS) as (near, far):
        await exchanged(far, near, 1)
        before = len(list(OPEN.iterdir()))
        with packed.wanted_by(types.SimpleNamespace(native=None)) as came:
            message = {"status": "OK", "data": {"x": given}}
            found = (await exchanged(far, near, message))["data"]
        packed.let_go(came, found.values())
        assert len(list(OPEN.iterdir())) == before + 1
        packed.let_go(came)
        assert len(list(OPEN.iterdir())) == before
        assert found


async def test_what_was_refused_is_asked_for_again():
    answers = []

    async def receive(who_has):
        if len(answers) < 2:
            shared_files.refuse(OSError("no descriptor is left"), "spillway://one")
        answers.append(len(answers))
        return answers[-1]

    assert await packed.around(receive, None)({}) == 2
    assert await packed.around(receive, None)({}) == 3


def worker_store(dask_worker=None):
    return stats()["store"]


def bytes_sent():
    return stats()["bytes"]["sent"]


def noise(seed):
    """8 MiB that do not shrink."""
    return numpy.random.default_rng(seed).integers(0, 255, 1 << 23, dtype="u1")


def total(array):
    return int(array.sum(dtype="u8"))


async def test_between_workers_nothing_is_sent_nor_written():
    if shared_files.why_not() is not None:
        pytest.skip(shared_files.why_not())
    enable()
    async with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            asynchronous=True,
            dashboard_address=":0",
            memory_limit="1 GiB",
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        giver, taker = sorted(cluster.scheduler.workers)
        values = client.map(noise, range(8), workers=[giver], pure=False)
        await wait(values)
        await client.run(
            lambda dask_worker: [
                dask_worker.data.entry(key).spill() for key in list(dask_worker.data)
            ],
            workers=[giver],
        )
        sent = (await client.run(bytes_sent, workers=[giver]))[giver]
        await client.replicate(values, workers=[taker])
        taken = (await client.run(worker_store, workers=[taker]))[taker]
        assert taken["on_disk"]["count"] == 8
        assert taken["on_disk"]["weight"] >= 8 << 23
        assert taken["written_bytes"] == 0
        assert taken["adopted"] == 8
        assert (await client.run(bytes_sent, workers=[giver]))[giver] - sent < 1 << 20
        # The giver ends, and what it gave is there.
        await client.retire_workers([giver])
        sums = await client.gather(client.map(total, values, pure=False))
        assert sums == [total(noise(seed)) for seed in range(8)]
