"""Dask merges by our functions wherever it merges: what comes by any comm, and what is
read back."""

import importlib

import numpy
import pytest
from distributed import Client, LocalCluster
from distributed.protocol import deserialize_bytes, serialize_bytelist, to_serialize
from distributed.protocol import utils as dask

import spillway
from comm_pairs import OURS, STOCK, comms, exchanged
from message_shapes import MIB, noise
from spillway.dask import disable, enable, hook_merge, merge_parts

serialize = importlib.import_module("distributed.protocol.serialize")
NAMES = ("merge_memoryviews", "host_array_from_buffers")


def in_use():
    return [getattr(serialize, name) for name in NAMES]


STOCK_FUNCTIONS = [getattr(dask, name) for name in NAMES]
OUR_FUNCTIONS = [getattr(merge_parts, name) for name in NAMES]


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr("distributed.comm.tcp.TCP.max_shard_size", MIB)


@pytest.fixture
def installed():
    hook_merge.install()
    yield
    hook_merge.remove()


def merged():
    """How often, and how many bytes, parts have been merged by a copy."""
    figures = spillway.stats()["copies"]["merged"]
    return figures["count"], figures["bytes"]


def test_check_finds_the_installed_dask_to_match():
    assert hook_merge.check() is None


def test_install_and_remove():
    assert in_use() == STOCK_FUNCTIONS
    hook_merge.install()
    assert in_use() == OUR_FUNCTIONS
    assert [getattr(dask, name) for name in NAMES] == STOCK_FUNCTIONS
    hook_merge.remove()
    assert in_use() == STOCK_FUNCTIONS


def test_remove_leaves_what_somebody_else_has_put_there(monkeypatch):
    monkeypatch.setattr(serialize, NAMES[0], serialize.merge_memoryviews)
    hook_merge.install()
    theirs = serialize.merge_memoryviews = object()
    hook_merge.remove()
    assert in_use() == [theirs, STOCK_FUNCTIONS[1]]


def test_enable_and_disable():
    enable()
    assert in_use() == OUR_FUNCTIONS
    assert spillway.stats()["parts"]["merge"] == {"on": True, "why_off": None}
    assert spillway.stats()["hooks"]["merge"] == "on"
    disable()
    assert in_use() == STOCK_FUNCTIONS


@pytest.mark.parametrize("name", ["all", "merge", "merge,malloc"])
def test_switched_off(monkeypatch, name):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    enable()
    assert in_use() == STOCK_FUNCTIONS
    part = spillway.stats()["parts"]["merge"]
    assert not part["on"]
    assert part["why_off"].startswith("SPILLWAY_DISABLE=")


def test_it_is_on_without_the_transport(monkeypatch, caplog):
    monkeypatch.setenv("SPILLWAY_DISABLE", "transport")
    enable()
    assert in_use() == OUR_FUNCTIONS
    assert caplog.records == []


async def test_what_comes_by_dasks_own_comm_is_copied_to_aligned_memory(
    installed, small_shards
):
    """Dask receives all but the first buffer of a message in pieces."""
    sent = [noise(3 * MIB + 1), noise(5 * MIB)]
    async with comms(STOCK, STOCK) as (near, far):
        count, size = merged()
        first, second = await exchanged(near, far, [to_serialize(x) for x in sent])
    assert (first == sent[0]).all()
    assert (second == sent[1]).all()
    assert second.ctypes.data % 64 == 0
    assert second.flags.writeable
    assert merged() == (count + 1, size + 5 * MIB)


@pytest.mark.parametrize("kind", [OURS, STOCK])
async def test_what_comes_by_our_comm_is_not_copied(installed, small_shards, kind):
    sent = [noise(3 * MIB + 1), noise(5 * MIB)]
    async with comms(kind, OURS) as (near, far):
        before = merged()
        with spillway.debug.no_copies():
            received = await exchanged(near, far, [to_serialize(x) for x in sent])
    for array, original in zip(received, sent, strict=True):
        assert (array == original).all()
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0
    assert merged() == before


async def test_an_unexpected_copy_is_an_error_of_the_read(installed, small_shards):
    sent = [to_serialize(noise(2 * MIB)), to_serialize(noise(4 * MIB))]
    async with comms(STOCK, STOCK) as (near, far):
        with spillway.debug.no_copies():
            with pytest.raises(spillway.debug.UnexpectedCopyError, match=str(4 * MIB)):
                await exchanged(near, far, sent)
        await exchanged(near, far, sent)  # nothing is wrong with the comm


@pytest.mark.parametrize("array", [noise(3 * MIB), numpy.zeros((9, 7), "i4,f8")])
def test_what_is_read_back_is_not_copied(installed, array):
    # As a spilled value is; with a suffix, as it would have in a file of several.
    spilled = b"".join([*serialize_bytelist(array, compression=None, size=MIB), b"..."])
    before = merged()
    with spillway.debug.no_copies():
        again = deserialize_bytes(spilled)
    assert (again == array).all()
    assert merged() == before


def test_what_was_never_sent_keeps_its_format(installed):
    array = numpy.arange(1000.0)
    header, frames = serialize.serialize_and_split(memoryview(array), size=800)
    assert len(frames) == 10
    again = serialize.merge_and_deserialize(header, frames)
    assert again.format == "d"
    again[3] = 77
    assert array[3] == 77


def test_parts_from_several_places_are_merged_by_a_copy(installed):
    header, frames = serialize.serialize_and_split(noise(1000), size=100)
    frames[3] = bytearray(frames[3])
    count, size = merged()
    again = serialize.merge_and_deserialize(header, frames)
    assert (again == noise(1000)).all()
    assert merged() == (count + 1, size + 1000)


@pytest.mark.timeout(60)
async def test_in_a_cluster_nothing_is_merged_by_a_copy():
    enable()
    array = noise(5 * MIB)
    async with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", asynchronous=True
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        one, other = await client.run(lambda: None)
        there = await client.scatter(array, workers=[one])
        sums = client.submit(lambda x: int(x.sum()), there, workers=[other])
        assert await sums == int(array.sum())
        assert (await there == array).all()
        for figures in (await client.run(spillway.stats)).values():
            assert figures["parts"]["merge"]["on"]
            assert figures["copies"]["merged"] == {"count": 0, "bytes": 0}
