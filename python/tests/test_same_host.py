"""Peers that share our host: that large data goes from memory to memory, that nothing a
peer says or lacks is ever an error, and that nothing is left behind."""

import asyncio
import gc
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path

import distributed
import numpy
import pytest
from distributed.comm.core import CommClosedError, connect
from distributed.protocol import to_serialize

from comm_pairs import OURS, STOCK, comms, exchanged, soon, until
from host_peer import (
    LARGE,
    array,
    ask,
    exchange_large,
    of_host,
    peer,
)
from spillway import _native, in_force, stats
from spillway.dask import enable, same_host

HERE = str(Path(__file__).parent)
SMALL_BYTES = 100_000  # what everything but bodies takes on the wire, and far more
NOTHING = {
    "meetings": 0,
    "refusals": 0,
    "bytes_sent": 0,
    "by_address": 0,
    "by_descriptor": 0,
    "by_stream": 0,
}


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch):
    """Each test hears a reason for the first time."""
    monkeypatch.setattr(same_host, "_told", set())
    monkeypatch.setattr(same_host, "_places", weakref.WeakKeyDictionary())


@pytest.fixture
def temporary():
    """A temporary directory whose path is short enough for a socket in it."""
    directory = tempfile.mkdtemp(prefix="spw", dir="/tmp")
    yield directory
    shutil.rmtree(directory)


def figures():
    return stats()["same_host"]


async def send_large(near, far, times=3):
    """Every byte is compared, in both directions."""
    for seed in range(times):
        sent = array(LARGE, seed)
        for one, other in ((near, far), (far, near)):
            got = await exchanged(one, other, {"data": to_serialize(sent)})
            assert numpy.array_equal(got["data"], sent)


# ---- two processes ----


async def test_large_data_goes_from_memory_to_memory():
    before, before_bytes = figures(), stats()["bytes"]
    async with peer() as (_, comm):
        await exchange_large(comm, times=1)  # by which they meet
        met = figures()
        await exchange_large(comm, times=4)
        theirs = (await ask(comm, op="stats"))["same_host"]
    changed = of_host(before, figures())
    assert changed["refusals"] == 0
    assert changed["meetings"] == 1
    assert of_host(met, figures())["by_address"] == 4 * LARGE
    assert theirs["by_address"] >= 3 * LARGE
    received = stats()["bytes"]["received"] - before_bytes["received"]
    by_socket = received - changed["by_address"]
    assert by_socket <= LARGE + SMALL_BYTES  # the first one


@pytest.mark.parametrize("off", ["here", "there"])
async def test_switched_off_on_either_side(monkeypatch, off):
    environment = {}
    if off == "here":
        monkeypatch.setenv("SPILLWAY_DISABLE", "same_host")
    environment["SPILLWAY_DISABLE"] = "same_host" if off == "there" else ""
    before = figures()
    async with peer(**environment) as (_, comm):
        await exchange_large(comm)
        theirs = await ask(comm, op="stats")
    assert of_host(before, figures()) == NOTHING
    assert theirs["same_host"] == NOTHING


async def test_a_receiver_whose_gil_is_busy():
    async with peer("busy") as (_, comm):
        await exchange_large(comm)
        theirs = (await ask(comm, op="stats"))["same_host"]
    assert theirs["by_address"] >= LARGE


async def test_refused_reading_is_counted_and_said_once(temporary):
    log = Path(temporary) / "log"
    with log.open("w") as stderr:
        async with peer("refuse-reads", stderr=stderr) as (_, comm):
            await exchange_large(comm)
            address = comm.peer_address
            for _ in range(2):
                another = await connect(address)
                await exchange_large(another)
                another.abort()
            theirs = (await ask(comm, op="stats"))["same_host"]
    assert theirs["refusals"] == 3
    assert theirs["by_address"] == 0
    lines = [line for line in log.read_text().splitlines() if same_host.SLOWER in line]
    assert len(lines) == 1
    assert "Operation not permitted" in lines[0]


@pytest.mark.parametrize("end", ["kill", "abort"])
async def test_a_sender_that_goes_while_it_is_to_be_read(end):
    async with peer() as (process, comm):
        await exchange_large(comm)
        before = figures()
        await comm.write({"op": "send", "size": LARGE, "end": end})
        if end == "kill":
            await asyncio.to_thread(process.wait)
        else:
            # Its other comms are served on, and the one is gone.
            another = await connect(comm.peer_address)
            await ask(another, op="stats")
            another.abort()
        with pytest.raises(CommClosedError):
            await soon(comm.read())
        assert comm.closed()
    assert of_host(before, figures())["by_address"] in (0, LARGE)


@pytest.mark.parametrize("end", ["close", "leave"])
async def test_close_right_after_a_large_write_delivers_it(end):
    size = 200_000_001
    async with peer() as (process, comm):
        await exchange_large(comm)
        before = figures()
        await comm.write({"op": "send", "size": size, "end": end})
        got = await soon(comm.read())
        assert numpy.array_equal(got.data, array(size, 7))
        with pytest.raises(CommClosedError):
            await soon(comm.read())
        assert of_host(before, figures())["by_address"] == size
        if end == "leave":
            assert await asyncio.to_thread(process.wait) == 0


async def test_a_paused_reader_pins_what_it_has_not_read():
    async with peer() as (process, comm):
        await exchange_large(comm)
        assert await ask(comm, op="pause") == "paused"
        gc.collect()
        before = stats()["budget"]["queued"]
        sent = array()
        alive = weakref.ref(sent)
        await comm.write({"data": to_serialize(sent)})
        del sent
        gc.collect()
        assert alive() is not None
        assert stats()["budget"]["queued"] - before == LARGE
        process.kill()
        await until(comm.closed)
        await until(lambda: stats()["budget"]["queued"] == before)
        gc.collect()
        assert alive() is None


async def test_an_idle_comm_has_its_socket_and_nothing_else():
    async with peer() as (_, comm):
        before = await ask(comm, op="descriptors")
        idle = [await connect(comm.peer_address) for _ in range(10)]
        for one in idle:
            await ask(one, op="echo", data=to_serialize(array(10_000)))
        assert await ask(comm, op="descriptors") == before + len(idle)
        await exchange_large(idle[0])
        assert await ask(comm, op="descriptors") > before + len(idle)
        for one in idle:
            one.abort()
        # Everything that a side channel had goes with its connection.
        while await ask(comm, op="descriptors") > before:
            await asyncio.sleep(0)


@pytest.mark.timeout(120)
async def test_a_cluster_of_this_host():
    enable()
    async with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", asynchronous=True
        ) as cluster,
        distributed.Client(cluster, asynchronous=True) as client,
    ):
        for seed in range(3):
            sent = array(20_000_000, seed)
            future = await client.scatter(sent, broadcast=True)
            got = await client.submit(lambda x: x + 1, future)
            assert numpy.array_equal(got, sent + 1)
        by_worker = await client.run(stats)
        assert await client.run(lambda: in_force.parts()["same_host"]["on"])
    assert sum(got["same_host"]["by_address"] for got in by_worker.values()) > 2e7
    assert sum(got["same_host"]["refusals"] for got in by_worker.values()) == 0
    for got in by_worker.values():
        assert got["parts"]["same_host"] == {"on": True, "why_off": None}


# ---- one process ----


async def test_a_process_that_talks_to_itself():
    before = figures()
    async with comms(OURS, OURS) as (near, far):
        await send_large(near, far)
    changed = of_host(before, figures())
    assert changed["meetings"] == 2
    assert changed["by_address"] == changed["bytes_sent"] >= 4 * LARGE
    assert changed["refusals"] == 0


@pytest.mark.parametrize(("near", "far"), [(OURS, STOCK), (STOCK, OURS)])
async def test_stock_peers_are_spoken_to_as_ever(near, far):
    before = figures()
    async with comms(near, far) as (one, other):
        await send_large(one, other)
    assert of_host(before, figures()) == NOTHING


def test_several_loops():
    """Each with a place of its own, and data between them."""
    before = figures()

    def run():
        async def talk():
            async with comms(OURS, OURS) as (near, far):
                await send_large(near, far)

        asyncio.run(talk())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    changed = of_host(before, figures())
    assert changed["meetings"] == 6
    assert changed["refusals"] == 0
    assert changed["by_address"] >= 3 * 4 * LARGE


# ---- what a peer may say ----


def offers():
    """Values of "host" in a handshake, with what is wrong with them."""
    boot = Path(same_host.BOOT_ID_PATH).read_text().strip()
    good = {"boot": boot, "path": "/tmp/spillway-nowhere/door", "secret": b"s" * 16}
    return {
        "none": None,
        "number": 1,
        "text": "here",
        "bytes": b"here",
        "list": ("boot", "path", "secret"),
        "empty": {},
        "other-boot": {**good, "boot": boot[:-1] + "x"},
        "no-boot": {**good, "boot": None},
        "boot-of-another-type": {**good, "boot": (boot,)},
        "path-missing": {"boot": boot, "secret": b"s" * 16},
        "path-of-another-type": {**good, "path": 7},
        "path-of-bytes": {**good, "path": b"/tmp/x"},
        "path-empty": {**good, "path": ""},
        "path-too-long": {**good, "path": "/" + "x" * 107},
        "path-much-too-long": {**good, "path": "/" * 100_000},
        "path-with-a-zero": {**good, "path": "/tmp/\0x"},
        "path-of-nothing": good,
        "path-of-a-directory": {**good, "path": "/tmp"},
        "path-of-a-file": {**good, "path": __file__},
        "path-of-a-device": {**good, "path": "/dev/null"},
        "path-beyond-a-file": {**good, "path": f"{__file__}/x"},
        "secret-missing": {"boot": boot, "path": "/tmp/x"},
        "secret-short": {**good, "secret": b"s" * 15},
        "secret-long": {**good, "secret": b"s" * 17},
        "secret-of-text": {**good, "secret": "s" * 16},
        "secret-empty": {**good, "secret": b""},
        "more-than-that": {**good, "later": {"x": 1}},
    }


@pytest.mark.parametrize("offer", offers().values(), ids=offers().keys())
@pytest.mark.parametrize("who", ["maker", "acceptor"])
async def test_whatever_a_peer_says_is_no_error(monkeypatch, caplog, offer, who):
    before = figures()

    def meet(self, stream, ours, theirs, *, is_maker):
        real(
            self,
            stream,
            ours,
            offer if is_maker == (who == "maker") else theirs,
            is_maker=is_maker,
        )

    real = same_host.MeetingPlace.meet
    monkeypatch.setattr(same_host.MeetingPlace, "meet", meet)
    async with comms(OURS, OURS) as (near, far):
        await send_large(near, far, times=2)
    changed = of_host(before, figures())
    assert changed["by_address"] == 0
    assert changed["refusals"] <= 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    said = [record for record in caplog.records if same_host.SLOWER in record.message]
    assert len(said) == changed["refusals"]


async def test_somebody_elses_socket_is_at_the_path(monkeypatch, temporary):
    """One that would answer, in a language that is none of ours."""
    path = f"{temporary}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(path)
        other.listen()
        other.setblocking(False)
        boot = Path(same_host.BOOT_ID_PATH).read_text().strip()
        offer = {"boot": boot, "path": path, "secret": b"s" * 16}
        real = same_host.MeetingPlace.meet
        monkeypatch.setattr(
            same_host.MeetingPlace,
            "meet",
            lambda self, stream, ours, theirs, is_maker: real(
                self, stream, ours, offer if is_maker else theirs, is_maker=is_maker
            ),
        )
        async with comms(OURS, OURS) as (near, far):
            await send_large(near, far, times=1)
            loop = asyncio.get_running_loop()
            visitor, _ = await soon(loop.sock_accept(other))
            with visitor:
                visitor.send(b"220 mail.example.com ESMTP")
                before = figures()
                await send_large(near, far, times=2)
    assert of_host(before, figures())["by_address"] == 0


async def test_a_peer_that_announces_more_than_it_has_said(monkeypatch):
    """Both secrets make the nonces: who knows one of them meets nobody."""
    real = same_host.MeetingPlace.meet

    def meet(self, stream, ours, theirs, *, is_maker):
        if is_maker:
            theirs = {**theirs, "secret": b"guessed, of 16.."}
        real(self, stream, ours, theirs, is_maker=is_maker)

    monkeypatch.setattr(same_host.MeetingPlace, "meet", meet)
    before = figures()
    async with comms(OURS, OURS) as (near, far):
        await send_large(near, far)
    assert of_host(before, figures()) == NOTHING


# ---- where there is no place to meet ----


async def test_without_a_place_everything_goes_by_the_socket(monkeypatch, caplog):
    def refuse(parent):
        raise OSError(28, "No space left on device", parent)

    monkeypatch.setattr(_native, "Meetings", refuse)
    enable()
    assert stats()["parts"]["same_host"]["on"]
    before = figures()
    for _ in range(2):
        async with comms(OURS, OURS) as (near, far):
            await send_large(near, far, times=1)
    assert of_host(before, figures()) == NOTHING
    said = [record for record in caplog.records if same_host.SLOWER in record.message]
    assert len(said) == 1
    part = stats()["parts"]["same_host"]
    assert not part["on"]
    assert "No space left on device" in part["why_off"]


@pytest.mark.parametrize(
    "directory", ["/nowhere/at/all", "/tmp/" + "x" * 100, "/tmp/\udcff"]
)
async def test_a_temporary_directory_that_will_not_do(monkeypatch, directory):
    monkeypatch.setattr(tempfile, "tempdir", directory)
    before = figures()
    async with comms(OURS, OURS) as (near, far):
        await send_large(near, far)
    assert of_host(before, figures())["by_address"] > 0


# ---- what is left ----

TALKS = """
import asyncio, os, sys, threading
sys.path.insert(0, {here!r})
from comm_pairs import OURS, comms, exchanged
from distributed.protocol import to_serialize
from spillway import stats

async def talk():
    async with comms(OURS, OURS) as (near, far):
        for i in range(3):
            await exchanged(near, far, to_serialize(b"x" * 3_000_000))
    assert stats()["same_host"]["by_address"]

ENDS = {{
    "closes-its-loop": lambda: asyncio.run(talk()),
    "leaves-its-loop-open": lambda: in_thread(),
    "forks": lambda: (in_thread(), fork()),
    "is-killed": lambda: (in_thread(), print(os.listdir(os.environ["TMPDIR"])),
                          os.kill(os.getpid(), 9)),
}}

def in_thread():
    global loop
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(talk(), loop).result()

def fork():
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    os.waitpid(pid, 0)
    assert len(os.listdir(os.environ["TMPDIR"])) == 1, "the child tidied up for us"

ENDS[sys.argv[1]]()
"""


def talk_and_end(way, temporary):
    return subprocess.run(
        [sys.executable, "-c", TALKS.format(here=HERE), way],
        env={**os.environ, "TMPDIR": temporary},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("way", ["closes-its-loop", "leaves-its-loop-open", "forks"])
def test_nothing_is_left_in_the_temporary_directory(way, temporary):
    done = talk_and_end(way, temporary)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(temporary) == []


def test_what_a_killed_process_left_is_swept_by_the_next(temporary):
    done = talk_and_end("is-killed", temporary)
    assert done.returncode == -signal.SIGKILL
    left = os.listdir(temporary)
    assert len(left) == 1
    Path(temporary, "spillway-something-else").mkdir()
    assert talk_and_end("closes-its-loop", temporary).returncode == 0
    assert os.listdir(temporary) == ["spillway-something-else"]
