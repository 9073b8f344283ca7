"""Two network namespaces with a wire between them, where the machine lets us make
them: processes with addresses that are no loopback, and a wire that can be cut."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from message_shapes import MIB

ADDRESSES = ("10.213.7.1", "10.213.7.2")
SIZES = (100_000, 3 * MIB, 40 * MIB)
PATIENCE_S = 60

# Answers each array with its checksum and the array itself.
FAR = """
import asyncio, json, sys, zlib

import spillway
from distributed.comm.core import CommClosedError, listen
from distributed.comm.registry import backends
from distributed.protocol import to_serialize
from spillway.dask.backends import SpillwayBackend

backends["spillway"] = SpillwayBackend()


async def main():
    accepted = asyncio.Queue()

    async def keep(comm):
        accepted.put_nowait(comm)

    async with listen(f"spillway://{sys.argv[1]}:0", keep) as listener:
        print(listener.contact_address, flush=True)
        comm = await accepted.get()
        try:
            while not isinstance(message := await comm.read(), str):
                body = message.data
                await comm.write([zlib.crc32(body), to_serialize(message)])
        except CommClosedError as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return
        await comm.write("done")
        await comm.close()
        print(json.dumps(spillway.stats()), flush=True)


asyncio.run(main())
"""

NEAR = """
import asyncio, json, sys, zlib

import dask, numpy, spillway
from distributed.comm.core import CommClosedError, connect
from distributed.comm.registry import backends
from distributed.protocol import to_serialize
from spillway.dask.backends import SpillwayBackend

backends["spillway"] = SpillwayBackend()
address, sizes = sys.argv[1], json.loads(sys.argv[2])


async def main():
    comm = await connect(address)
    checksums = []
    try:
        for number in range(2):
            for size in sizes:
                body = numpy.random.default_rng(number).bytes(size)
                await comm.write(to_serialize(numpy.frombuffer(body, "u1")))
                there, back = await comm.read()
                checksums.append([zlib.crc32(body), there, zlib.crc32(back.data)])
                print(json.dumps(number), flush=True)
        await comm.write("end")
        assert await comm.read() == "done"
    except CommClosedError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    await comm.close()
    print(json.dumps({"checksums": checksums, "stats": spillway.stats()}), flush=True)


asyncio.run(main())
"""


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def wire():
    """Two namespaces; the wire's end in the first has the same name."""
    if shutil.which("ip") is None:
        pytest.skip("no `ip` here (iproute2)")
    names = [f"spw{os.getpid()}{end}" for end in "ab"]
    with contextlib.ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            ip(*("link", "add", names[0], "netns", names[0], "type", "veth"),
               *("peer", "name", names[1], "netns", names[1]))  # fmt: skip
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


@pytest.fixture
def run(wire):
    """Start a program in one of the namespaces."""
    with contextlib.ExitStack() as stack:

        def start(end, code, *arguments, within=(), **environment):
            process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", wire[end], *within),
                    *(sys.executable, "-c", code, *arguments),
                ],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **environment},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def last_line(process):
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    return json.loads(out.splitlines()[-1])


def exchange(run, *, within=(), **environment):
    """Both processes' figures, after everything has gone there and back whole."""
    far = run(1, FAR, ADDRESSES[1], **environment)
    address = far.stdout.readline().strip()
    assert ADDRESSES[1] in address
    near = run(0, NEAR, address, json.dumps(SIZES), within=within, **environment)
    answer = last_line(near)
    for sent, there, back in answer["checksums"]:
        assert sent == there == back
    assert len(answer["checksums"]) == 2 * len(SIZES)
    return answer["stats"], last_line(far)


def test_addresses_do_not_decide_who_shares_a_host(run):
    """They have one memory, whatever their addresses say."""
    for figures in exchange(run):
        assert figures["same_host"]["by_address"] > SIZES[-1]
        assert figures["connections"]["tuned"] == 0  # it is no loopback connection


def test_who_cannot_meet_uses_the_wire(run):
    """The directory of the one is not that of the other: as two containers, or hosts
    that were copied with their boot id."""
    with tempfile.TemporaryDirectory(prefix="spw", dir="/tmp") as place:
        hidden = f'mount -t tmpfs none {place} && exec "$0" "$@"'
        for figures in exchange(run, within=("sh", "-c", hidden), TMPDIR=place):
            assert figures["same_host"]["bytes_sent"] == 0
            assert figures["connections"]["tuned"] == 0
            assert figures["bytes"]["received"] > 2 * SIZES[-1]


def test_without_same_host_it_is_a_wire_like_any(run):
    for figures in exchange(run, SPILLWAY_DISABLE="same_host"):
        assert figures["same_host"]["meetings"] == 0
        assert figures["bytes"]["received"] > 2 * SIZES[-1]


def test_a_wire_that_is_cut_ends_both(run, wire):
    """Neither hears from the other any more; both are told within Dask's timeout."""
    settings = {
        "SPILLWAY_DISABLE": "same_host",
        "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "3s",
    }
    far = run(1, FAR, ADDRESSES[1], **settings)
    address = far.stdout.readline().strip()
    sizes = json.dumps([40 * MIB] * 1000)
    near = run(0, NEAR, address, sizes, **settings)
    assert json.loads(near.stdout.readline()) == 0
    ip("-n", wire[0], "link", "set", wire[0], "down")
    for process in (near, far):
        assert "error" in last_line(process)
