"""Values that Dask's registry serialises, of the libraries themselves: open files of
h5py and netCDF4, sparse arrays. (Stand-ins for them are in test_value_encoder.py.)"""

import contextlib

import dask.array
import numpy
import pytest
from distributed import Client, LocalCluster
from distributed.comm.tcp import TCP
from distributed.protocol import to_serialize

import spillway
from comm_pairs import EVERY_PAIR, OURS, STOCK, comms, exchanged
from library_values import (
    BY_REGISTRY,
    KINDS,
    NOT_BY_STOCK,
    ROWS,
    check_came_back,
    file_of_h5py,
    file_of_netcdf4,
    library,
    mostly_zero,
)
from spillway import value_counts
from spillway.dask import enable
from spillway.dask.comm import SpillwayComm
from spillway.dask.value_encoder import serialize
from test_value_encoder import by_stock, by_us

pytestmark = pytest.mark.usefixtures("nothing_is_left")

every_kind = pytest.mark.parametrize("kind", KINDS)
every_peer = pytest.mark.parametrize("peer", [by_us, by_stock])
every_pair = pytest.mark.parametrize("pair", EVERY_PAIR, ids="-".join)

PLACES = {
    "list": lambda value: [1, value, "x"],
    "tuple": lambda value: (1, value, "x"),
    "dict": lambda value: {0: "x", 1: value},
    "in each other": lambda value: (0, {"a": [value, 2.5]}),
}


def found(place, received):
    """The value that a place has in it."""
    return received[1]["a"][0] if place == "in each other" else received[1]


@every_kind
@every_peer
def test_alone(kind, peer, tmp_path):
    with KINDS[kind][0](tmp_path) as sent:
        check_came_back(kind, peer(sent), sent)


@every_kind
@every_peer
def test_inside(kind, peer, tmp_path):
    with KINDS[kind][0](tmp_path) as sent:
        for place, made in PLACES.items():
            received = peer(made(sent))
            assert type(received) is type(made(sent))
            check_came_back(kind, found(place, received), sent)


@every_kind
def test_who_serialises_it(kind, tmp_path):
    before = value_counts.read()
    with KINDS[kind][0](tmp_path) as sent:
        header, _ = serialize(sent)
        inside, _ = serialize([sent])
    after = value_counts.read()
    is_registered = kind in BY_REGISTRY
    assert header["serializer"] == ("dask" if is_registered else "pickle")
    assert inside["serializer"] == "pickle"
    assert after["registered"] - before["registered"] == is_registered
    assert after["by_dask"] == before["by_dask"]


@every_kind
def test_it_is_one_object_there_too(kind, tmp_path):
    with KINDS[kind][0](tmp_path) as sent:
        received = by_stock({"a": sent, "b": [sent]})
        assert received["a"] is received["b"][0]


def test_the_parts_of_a_sparse_array_are_not_copied(tmp_path):
    with KINDS["sparse COO"][0](tmp_path) as sent:
        for value in (sent, [sent]):
            frames = serialize(value)[1]
            sizes = sorted(memoryview(frame).nbytes for frame in frames)[-2:]
            assert sizes == sorted([sent.data.nbytes, sent.coords.nbytes])
            owners = [getattr(frame, "obj", None) for frame in map(memoryview, frames)]
            assert sum(owner is not None for owner in owners) >= 2


@every_pair
@pytest.mark.parametrize("shard_bytes", [1 << 26, 10_000], ids=["whole", "in shards"])
@every_kind
async def test_between_peers(kind, pair, shard_bytes, tmp_path, monkeypatch):
    if pair[0] == STOCK and kind in NOT_BY_STOCK:
        pytest.skip("stock sends zeros for what is not stored")
    for comm_type in (TCP, SpillwayComm):
        monkeypatch.setattr(comm_type, "max_shard_size", shard_bytes)
    with KINDS[kind][0](tmp_path) as sent:
        message = {place: to_serialize(make(sent)) for place, make in PLACES.items()}
        message["alone"] = to_serialize(sent)
        async with comms(*pair) as (near, far):
            received = await exchanged(near, far, message)
        check_came_back(kind, received["alone"], sent)
        for place in PLACES:
            check_came_back(kind, found(place, received[place]), sent)


@every_kind
async def test_in_threads(kind, tmp_path):
    with KINDS[kind][0](tmp_path) as sent:
        async with comms(OURS, OURS) as (near, far):
            near.offload = far.offload = "always"
            received = await exchanged(near, far, to_serialize([sent, sent]))
            assert received[0] is received[1]
            check_came_back(kind, received[0], sent)


async def test_a_file_that_may_be_written_fails_alone(tmp_path):
    """Dask does not take it, and it is what fails, not what is sent with it."""
    h5py = library("h5py")
    with h5py.File(tmp_path / "file.data", "w") as sent:
        async with comms(OURS, OURS) as (near, far):
            message = {"bad": to_serialize([sent]), "good": to_serialize([ROWS])}
            with pytest.raises(TypeError, match="Could not serialize"):
                await near.write(message, on_error="raise")
            assert (await exchanged(near, far, {"good": 1})) == {"good": 1}
        header, frames = serialize([sent])
    assert header == {"serializer": "error"}
    assert b"read-only" in frames[1]


@contextlib.asynccontextmanager
async def two_workers():
    enable()
    async with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", asynchronous=True
        ) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        await client.wait_for_workers(2)
        yield client, sorted(await client.nthreads())


def rows_of(found):
    """What a task finds in what another worker has opened."""
    return numpy.asarray(found[1]["inner/rows"][...])


@pytest.mark.parametrize(
    "name, open_file, make",
    [("h5py", "File", file_of_h5py), ("netCDF4", "Dataset", file_of_netcdf4)],
)
async def test_workers_send_each_other_files(name, open_file, make, tmp_path):
    path = str(tmp_path / "file.data")
    with make(path):
        pass
    async with two_workers() as (client, (one, other)):
        opened = client.submit(getattr(library(name), open_file), path, workers=[one])
        pair = client.submit(lambda file: (1, file), opened, workers=[one])
        rows = client.submit(rows_of, pair, workers=[other])
        assert (await rows).tobytes() == ROWS.tobytes()
        assert rows_of([1, await opened]).tobytes() == ROWS.tobytes()
        await check_is_ours(client)


async def check_is_ours(client):
    values = [one["values"] for one in (await client.run(spillway.stats)).values()]
    assert sum(one["registered"] + one["pickled"] for one in values) > 0
    assert sum(one["by_dask"] + one["failed"] for one in values) == 0


async def test_workers_compute_on_sparse_arrays():
    sparse = library("sparse")
    dense = mostly_zero().astype("i8") % 1000
    expected = (dense @ dense.T).sum()
    async with two_workers() as (client, (one, other)):
        half = client.submit(sparse.COO, dense[:150], workers=[one])
        rest = client.submit(sparse.COO, dense[150:], workers=[other])
        both = client.submit(joined, half, rest, workers=[one])
        product = client.submit(with_itself, both, workers=[other])
        assert (await product).sum() == expected
        array = dask.array.from_array(dense, chunks=(100, 100)).map_blocks(sparse.COO)
        product = (array @ array.T).map_blocks(lambda block: block.todense())
        assert await client.compute(product.sum()) == expected
        await check_is_ours(client)


def joined(*parts):
    return library("sparse").concatenate(parts)


def with_itself(array):
    return array @ array.T
