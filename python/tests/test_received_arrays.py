"""Arrays after the way: where they lie, how long they live, and what they cost."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap

import numpy
import pytest
from distributed.protocol import to_serialize

import spillway
import wire_oracle
from comm_pairs import OURS, STOCK, charged, comms, exchanged, listening, soon, until
from message_shapes import MIB, noise
from spillway import _native

pytestmark = pytest.mark.usefixtures("nothing_is_left")

KINDS = [OURS, STOCK]


@pytest.mark.parametrize("sender", KINDS)
async def test_arrays_are_views_of_our_buffers(sender):
    sent = [noise(n) for n in (5, 4_096, 100_001, 3 * MIB)]
    async with comms(sender, OURS) as (near, far):
        before = spillway.stats()["copies"]
        received = await exchanged(near, far, [to_serialize(array) for array in sent])
        after = spillway.stats()["copies"]
        for array, original in zip(received, sent, strict=True):
            assert array.ctypes.data % 64 == 0
            assert array.flags.writeable
            assert isinstance(region_of(array), _native.Buffer)
            assert (
                wire_oracle.address(memoryview(region_of(array))) <= array.ctypes.data
            )
            array += 1
            assert (array == original + 1).all()
        copied = sum(after[why]["bytes"] - before[why]["bytes"] for why in after)
        assert copied < 3 * 128 * 1024, "more than what came with an earlier piece"


def region_of(array):
    """What owns an array's memory."""
    owner = array
    while isinstance(owner, numpy.ndarray):
        owner = owner.base
    return getattr(owner, "obj", owner)


@pytest.mark.parametrize("sender", KINDS)
@pytest.mark.parametrize("small", [10, 10_000])
async def test_each_array_has_a_life_of_its_own(sender, small):
    async with comms(sender, OURS) as (near, far):
        before = charged()["held"]
        message = [to_serialize(noise(small)), to_serialize(noise(16 * MIB))]
        kept, large = await exchanged(near, far, message)
        assert charged()["held"] - before >= 16 * MIB
        del large
        # The thread that decoded lets go of it in its own time.
        await until(lambda: charged()["held"] - before < 256 * 1024)
        assert charged()["held"] - before >= small
        del kept
        await until(lambda: charged()["held"] == before)


async def test_shards_from_stock_come_together_without_a_copy(monkeypatch):
    monkeypatch.setattr("distributed.comm.tcp.TCP.max_shard_size", MIB)
    arrays = [noise(5 * MIB), noise(7 * MIB)]
    async with comms(STOCK, OURS) as (near, far):
        received = await exchanged(near, far, [to_serialize(x) for x in arrays])
        for array, sent in zip(received, arrays, strict=True):
            assert (array == sent).all()
            assert isinstance(region_of(array), _native.Buffer)
            assert memoryview(region_of(array)).nbytes == sent.nbytes


PEAK_PROGRAM = """
    import asyncio, json, sys
    import numpy
    import spillway
    from comm_pairs import connect

    def field(name):
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith(name):
                    return int(line.split()[1]) << 10

    async def main():
        comm = await connect(sys.argv[1])
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")  # the peak starts anew
        before = field("VmHWM")
        arrays = await comm.read()
        peak = field("VmHWM") - before
        sizes = [array.nbytes for array in arrays]
        print(json.dumps({"peak": peak, "payload": sum(sizes)}))
        comm.abort()

    asyncio.run(main())
"""


@pytest.mark.parametrize("sender", KINDS)
async def test_peak_memory_is_the_payload(sender):
    """Two arrays of 128 MiB cost a receiver little more than their own size."""
    async with listening(sender) as (listener, accepted):
        address = listener.contact_address.replace(f"{sender}://", f"{OURS}://")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            textwrap.dedent(PEAK_PROGRAM),
            address,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        comm = await soon(accepted.get())
        await comm.write([to_serialize(noise(128 * MIB)) for _ in range(2)])
        output, _ = await soon(process.communicate())
        figures = json.loads(output)
        assert figures["payload"] == 256 * MIB
        assert figures["peak"] <= 1.02 * figures["payload"] + 4 * MIB
        comm.abort()
