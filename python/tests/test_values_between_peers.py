"""Values go between comms as they are, whoever the peer is and wherever the work is
done."""

import asyncio

import numpy
import pytest
from distributed import protocol
from distributed.comm.tcp import TCP
from distributed.protocol import to_serialize
from distributed.protocol.serialize import ToPickle
from hypothesis import given, settings

from comm_pairs import OURS, STOCK, comms, exchanged
from message_shapes import Plain, noise
from spillway import value_counts
from spillway.dask.comm import SpillwayComm
from test_value_encoder import KINDS
from value_samples import check_came_back, values, values_for_stock

PLAIN_KINDS = [kind for kind in KINDS if not kind.startswith("array of")]

from_us = pytest.mark.parametrize("to", [OURS, STOCK])


@pytest.fixture(params=[1 << 26, 10_000], ids=["whole", "in shards"])
def shards(request, monkeypatch):
    for kind in (TCP, SpillwayComm):
        monkeypatch.setattr(kind, "max_shard_size", request.param)


@pytest.fixture(
    params=["", "offload", "malloc"], ids=["all", "no offload", "no malloc"]
)
def switched_off(request, monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", request.param)


@from_us
async def test_each_kind_in_one_message(to, shards, switched_off):
    sent = {kind: KINDS[kind]() for kind in PLAIN_KINDS}
    async with comms(OURS, to) as (near, far):
        message = {kind: to_serialize(value) for kind, value in sent.items()}
        received = await exchanged(near, far, message)
    for kind, value in sent.items():
        check_came_back(received[kind], value)


@from_us
@given(values)
@settings(max_examples=25, deadline=None)
def test_nested_values(to, sent):
    async def go():
        async with comms(OURS, to) as (near, far):
            return await exchanged(near, far, to_serialize(sent))

    check_came_back(asyncio.run(go()), sent)


@given(values_for_stock)
@settings(max_examples=25, deadline=None)
def test_nested_values_of_a_stock_peer(sent):
    """As a stock peer would have them."""
    message = to_serialize(sent)
    try:
        expected = protocol.loads(protocol.dumps(message, on_error="raise"))
    except (TypeError, RecursionError):
        return  # more than stock can send

    async def go():
        async with comms(STOCK, OURS) as (near, far):
            return await exchanged(near, far, message)

    check_came_back(asyncio.run(go()), expected)


@from_us
@pytest.mark.parametrize("offload", ["never", "always"])
async def test_on_the_loop_and_in_threads(to, offload):
    shared = noise(70_000, "f8")
    sent = {"a": shared, "b": [shared, {"c": shared}]}
    async with comms(OURS, to) as (near, far):
        near.offload = offload
        if to == OURS:
            far.offload = offload
        received = await exchanged(near, far, to_serialize(sent))
    assert received["a"] is received["b"][0] is received["b"][1]["c"]
    check_came_back(received, sent)


@from_us
async def test_beside_what_msgpack_does_not_know(to, switched_off):
    shared = noise(5000)
    message = {
        "x": Plain(1),
        "y": ToPickle(Plain(2)),
        "z": to_serialize([shared, shared]),
        "n": [None, 3, "text", {1, 2}],
    }
    before = value_counts.read()["by_dask"]
    async with comms(OURS, to) as (near, far):
        received = await exchanged(near, far, message)
    assert (received["x"], received["y"]) == (Plain(1), Plain(2))
    assert received["z"][0] is received["z"][1]
    assert received["n"] == (None, 3, "text", {1, 2})
    assert value_counts.read()["by_dask"] == before


async def test_switched_off_values_are_taken_apart_by_dask(monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", "values")
    shared = noise(5000)
    async with comms(OURS, OURS) as (near, far):
        received = await exchanged(near, far, to_serialize([shared, shared]))
    assert received[0] is not received[1]
    assert numpy.array_equal(received[0], shared)


@from_us
async def test_six_thousand_small_buffers(to):
    sent = [numpy.full(i % 4, i) for i in range(6000)]
    async with comms(OURS, to) as (near, far):
        check_came_back(await exchanged(near, far, to_serialize(sent)), sent)


@from_us
async def test_writing_what_cannot_be_encoded_raises_if_that_is_asked_for(to):
    class Never:
        def __reduce__(self):
            raise ValueError("never")

    async with comms(OURS, to) as (near, far):
        for message in (
            to_serialize(Never()),
            {"x": Plain(1), "y": to_serialize(Never())},
        ):
            with pytest.raises(TypeError, match="Could not serialize"):
                await near.write(message, on_error="raise")
        assert await exchanged(near, far, 1) == 1
