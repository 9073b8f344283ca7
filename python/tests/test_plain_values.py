"""What is made of plain lists and dicts goes as one pickle, on each way that a value
goes, and large buffers in it beside that. Frames are counted where they arrive."""

import contextlib

import pytest
from distributed import wait
from distributed.comm import tcp
from distributed.protocol import to_serialize

from comm_pairs import OURS, STOCK, comms, exchanged, soon
from message_shapes import noise
from spillway import value_counts
from spillway.dask import stored_form
from spillway.dask.comm import SpillwayComm
from test_store_get_data import workers
from value_samples import check_came_back

COUNT = 500
"""Items of each: taken apart, as many frames."""

SAMPLES = {
    "list": (0, lambda: list(range(COUNT))),
    "dict": (0, lambda: {f"name {i}": i / 2 for i in range(COUNT)}),
    "tuple": (0, lambda: tuple(str(i) for i in range(COUNT))),
    "set": (0, lambda: set(range(COUNT))),
    "list that begins with an array": (1, lambda: [noise(8000), *range(COUNT)]),
    "arrays": (9, lambda: [noise(8000) for _ in range(9)]),
    "nested": (4, lambda: {i: layer(i) for i in range(4)}),
}
"""How many buffers go beside the pickle of each, and what makes it."""

HEAD, HEADER, PICKLE = 1, 1, 1


def layer(number):
    return {
        "weights": [noise(8000), noise(90)],
        "bias": [number / 2] * COUNT,
        "units": {f"unit {i}": [i, (str(i), {"tag", i})] for i in range(50)},
    }


@pytest.fixture
def arrived(monkeypatch):
    """The numbers of frames of the messages that arrive, at comms of both kinds."""
    numbers = []

    def counted(decode, at):
        async def counting(*args, **options):
            numbers.append(len(args[at]))
            return await decode(*args, **options)

        return counting

    monkeypatch.setattr(tcp, "from_frames", counted(tcp.from_frames, at=0))
    ours = counted(SpillwayComm._decode, at=1)
    monkeypatch.setattr(SpillwayComm, "_decode", ours)
    return numbers


@pytest.mark.parametrize("to", [OURS, STOCK])
@pytest.mark.parametrize("sample", SAMPLES)
async def test_between_comms(sample, to, arrived):
    buffers, make = SAMPLES[sample]
    sent = make()
    async with comms(OURS, to) as (near, far):
        arrived.clear()  # of the handshake
        received = await exchanged(near, far, {"x": to_serialize(sent)})
    assert arrived == [HEAD + HEADER + PICKLE + buffers]
    check_came_back(received["x"], sent)


@pytest.mark.parametrize("sample", SAMPLES)
def test_in_the_store(sample):
    buffers, make = SAMPLES[sample]
    kept = make()
    frames = stored_form.pack(kept)
    assert len(frames) == HEADER + PICKLE + buffers
    received = stored_form.unpack([memoryview(bytearray(one)) for one in frames])
    check_came_back(received, kept)


MIXED = "list that begins with an array"

MOST = 20
"""Messages beside those with values have frames too, such as those of a task."""


def look(value):
    return len(value)


async def test_through_a_cluster(arrived):
    """On ways that all are hundreds of frames on stock Dask."""
    buffers, make = SAMPLES[MIXED]
    async with workers() as (client, sender, receiver):
        sent = make()
        by_dask = value_counts.read()["by_dask"]

        async def scatter(to, **how):
            (future,) = await client.scatter([sent], workers=[to.address], **how)
            return future

        async def use(future, at):
            task = client.submit(look, future, workers=[at.address], pure=False)
            assert await soon(task) == len(sent)

        @contextlib.contextmanager
        def one_pickle():
            arrived.clear()
            yield
            assert HEAD + HEADER + PICKLE + buffers in arrived
            assert max(arrived) < MOST

        for direct in (False, True):
            with one_pickle():
                future = await soon(scatter(receiver, direct=direct, hash=False))
            with one_pickle():
                came = await soon(client.gather(future, direct=direct))
            check_came_back(came, sent)
        made = client.submit(make, workers=[sender.address])
        await soon(wait(made))
        with one_pickle():
            await use(made, at=receiver)
        spilled = await soon(scatter(sender, direct=True, hash=False))
        sender.data.entry(spilled.key).spill()
        with one_pickle():
            await use(spilled, at=receiver)
        assert value_counts.read()["by_dask"] == by_dask
