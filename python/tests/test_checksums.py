"""Checksums in the headers of values: who uses the frames compares."""

import pytest
from distributed.protocol import Serialized

from comm_pairs import OURS, comms, exchanged, soon
from message_shapes import MIB, noise
from spillway import _native
from spillway.dask import checksums, undecoded
from spillway.dask.decode_cost import decode_bytes
from spillway.dask.outgoing_message import dumps
from spillway.dask.undecoded import Undecoded
from spillway.dask.value_encoder import serialize


def stored(value, *, sums=None):
    """A value with the checksums of its frames, or with others."""
    header, frames = serialize(value)
    header[checksums.KEY] = sums or tuple(map(_native.checksum, frames))
    return Serialized(header, frames)


def bad(value):
    return stored(value, sums=(1,))


def test_a_checksum_is_xxh3():
    assert _native.checksum(b"") == 0x2D06800538D394C2
    large = bytes(MIB)
    assert _native.checksum(large) == _native.checksum(bytearray(large))
    assert _native.checksum(large[1:]) != _native.checksum(large)
    with pytest.raises(BufferError):
        _native.checksum(memoryview(large)[::2])


def test_what_is_whole_passes():
    frames = [b"a", memoryview(b"b"), b""]
    sums = tuple(map(_native.checksum, frames))
    checksums.verify({}, frames)
    checksums.verify({checksums.KEY: None}, frames)
    checksums.verify({checksums.KEY: sums}, frames)
    checksums.verify({checksums.KEY: [sums[0], None, sums[2]]}, frames)


@pytest.mark.parametrize(
    "sums", [(1, 2), (1,), (), 5, "ab", ("a", "b"), {1: 2, 3: 4}, (None, 7), (-1, 2.5)]
)
def test_anything_else_does_not(sums):
    with pytest.raises(checksums.Damaged):
        checksums.verify({checksums.KEY: sums}, [b"a", b"b"])


@pytest.mark.parametrize("policy", [True, False])
async def test_a_receiver_compares_before_it_decodes(policy, monkeypatch):
    if not policy:
        monkeypatch.setenv("SPILLWAY_DISABLE", "offload")
    value = bytearray(b"0123456789" * 100_000)
    async with comms(OURS, OURS) as (near, far):
        assert await exchanged(near, far, {"x": stored(value)}) == {"x": value}
        await near.write({"x": bad(value)})
        with pytest.raises(checksums.Damaged, match="frame 0 of it, of 1000000 bytes"):
            await soon(far.read())
        # The comm goes on.
        assert await exchanged(near, far, "well") == "well"


async def test_of_a_reply_only_the_value_fails():
    async with comms(OURS, OURS) as (near, far):
        data = {"good": stored(b"12"), "bad": bad(b"34")}
        await near.write({"status": "OK", "data": data})
        with undecoded.wanted():
            got = (await soon(far.read()))["data"]
    assert got["good"] == b"12"
    assert type(got["bad"]) is Undecoded
    error = got["bad"].as_error("key", "tcp://somewhere")
    # To Dask an OSError would say that the connection failed.
    assert type(error) is RuntimeError
    assert "damaged on the sender's disk" in str(error)


async def test_who_relays_a_value_hands_it_on_as_it_is():
    async with comms(OURS, OURS, deserialize=False) as (near, far):
        relayed = await exchanged(near, far, bad(b"1234"))
        assert relayed.header[checksums.KEY] == (1,)
        async with comms(OURS, OURS) as (again, end):
            await again.write(relayed)
            with pytest.raises(checksums.Damaged):
                await soon(end.read())


def test_to_compare_costs_all_bytes():
    array = noise(MIB)
    assert cost(stored(array)) >= MIB
    assert cost(Serialized(*serialize(array))) < MIB


def cost(value):
    how = dict.fromkeys(("serializers", "context", "frame_split_size"))
    return decode_bytes(dumps(value, on_error="message", **how), MIB)
