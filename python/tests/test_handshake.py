"""What two Spillway peers tell each other, and what becomes of it elsewhere."""

import pytest
from distributed.protocol import to_serialize

from comm_pairs import OURS, STOCK, comms, exchanged
from message_shapes import MIB, noise
from spillway.dask import handshake
from spillway.dask.comm import SpillwayComm

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def test_two_spillway_peers_find_each_other():
    async with comms(OURS, OURS) as (near, far):
        assert near.peer_features == far.peer_features == {"unsplit", "checksums"}
        told = near.remote_info["spillway"]
        assert (told["wire"], told["features"]) == (1, handshake.FEATURES)


@pytest.mark.parametrize("pair", [(OURS, STOCK), (STOCK, OURS)], ids="-".join)
async def test_a_stock_peer_has_no_features(pair):
    async with comms(*pair) as ends:
        (ours,) = [end for end in ends if isinstance(end, SpillwayComm)]
        assert ours.peer_features == frozenset()


@pytest.mark.parametrize(
    "theirs",
    [
        {"wire": 2, "features": ["unsplit"]},
        {"wire": 1},
        {"wire": 1, "features": []},
        {"wire": 1, "features": ["later"]},
        {"features": ["unsplit"]},
        {"wire": 1, "features": None},
        {"wire": 1, "features": 3},
        {"wire": 1, "features": [[1], {"a": 1}]},
        {"wire": [1], "features": "unsplit"},
        {},
        None,
        7,
        "unsplit",
        ["unsplit"],
    ],
    ids=repr,
)
async def test_another_wire_version_or_garbage_is_treated_as_stock(theirs, monkeypatch):
    monkeypatch.setattr(SpillwayComm, "max_shard_size", 100_000)
    array = noise(MIB)
    options = {"handshake_overrides": {"spillway": theirs}}
    async with comms(OURS, OURS, connect_options=options) as (near, far):
        assert far.peer_features == frozenset()
        assert near.peer_features == {"unsplit", "checksums"}
        assert await shards_of(far, near, array) == 11
        assert await shards_of(near, far, array) == 1


async def shards_of(near, far, array):
    """In how many shards an array goes."""
    far.deserialize = False
    held = await exchanged(near, far, to_serialize(array))
    assert b"".join(held.frames) == array.tobytes()
    return len(held.frames)
