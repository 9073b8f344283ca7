"""A sender and a receiver process with one Dask comm between them, on one plane.

The benchmarks here say what is sent; the receiver obeys the operations below. It counts
what it sees, so that a benchmark can show that every byte arrived: it reads one byte of
each page inside the timed part, and answers CRCs outside of it.
"""

import argparse
import asyncio
import collections
import json
import multiprocessing
import os
import resource
import sys
import threading
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

PAGE_BYTES = 4096


def cpu_seconds() -> float:
    """CPU time of this process, user and system together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_bytes(field: str) -> int:
    """A field of /proc/self/status that is given in kB."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field + ":"))
    return int(line.split()[1]) * 1024


def fingerprint(array: np.ndarray) -> int:
    """A sum over one byte of each page: cheap, and touches the whole array."""
    return int(array[::PAGE_BYTES].sum(dtype="u8")) + int(array[-1:].sum()) + 1


def enable(plane: str) -> None:
    """Put this process on the plane, and make sure that it is on no other."""
    if plane == "stock":
        assert "spillway" not in sys.modules
        return
    import spillway.dask

    spillway.dask.enable()
    assert spillway.stats()["parts"]["transport"]["on"]


def assert_moved(plane: str, at_least_bytes: int) -> None:
    """No silent fall-back: the figures must show that Spillway moved the bytes."""
    if plane != "stock":
        import spillway

        moved = spillway.stats()["bytes"]
        assert moved["sent"] + moved["received"] >= at_least_bytes, moved


class Receiver:
    """What the receiver does with each message; "kept" holds on to the last four."""

    def __init__(self, plane: str, mode: str) -> None:
        self.plane = plane
        self.kept: collections.deque = collections.deque(maxlen=4)
        self.keeps = mode == "kept"
        self.seen = 0

    async def serve(self, comm: Any) -> None:
        while True:
            try:
                msg = await comm.read()
            except OSError:
                return
            answer = self.handle(msg)
            msg = None
            if answer is not None:
                await comm.write(answer)

    def handle(self, msg: dict) -> Any:
        op = msg["op"]
        if op == "data":
            for array in msg["arrays"]:
                self.seen = (self.seen + fingerprint(array)) & 0xFFFFFFFF
            if self.keeps:
                self.kept.append(msg["arrays"])
        elif op == "check":
            return [zlib.crc32(array) for array in msg["arrays"]]
        elif op == "ping":
            return {"op": "pong", "keys": msg["keys"]}
        elif op == "start":
            self.kept.clear()
            self.seen = 0
            with open("/proc/self/clear_refs", "w") as clear:
                clear.write("5")  # the peak of resident memory begins anew
            return {"cpu": cpu_seconds(), "resident": memory_bytes("VmRSS")}
        elif op == "stop":
            assert_moved(self.plane, 1)
            return {
                "cpu": cpu_seconds(),
                "peak": memory_bytes("VmHWM"),
                "seen": self.seen,
            }
        return None


def _spin() -> None:
    """What a task in pure Python does to everybody else in its process."""
    n = 0
    while True:
        n += 1


def _receive(plane: str, mode: str, is_busy: bool, pipe: Any) -> None:
    enable(plane)
    from distributed.comm import listen

    if is_busy:
        threading.Thread(target=_spin, daemon=True).start()

    async def main() -> None:
        listener = await listen("tcp://127.0.0.1:0", Receiver(plane, mode).serve)
        pipe.send(listener.contact_address)
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        listener.stop()

    asyncio.run(main())


def run(
    measure: Callable[[Any, argparse.Namespace], Awaitable[dict]],
    is_busy: bool = False,
    **choices: list[str],
) -> None:
    """Start a receiver, connect to it, and print what measure(comm, arguments) finds as
    one line of JSON. With is_busy a thread of the receiver's competes for the GIL all
    the time. choices are further options that the benchmark must be given."""
    parser = argparse.ArgumentParser()
    for option, values in choices.items():
        parser.add_argument(f"--{option}", choices=values, required=True)
    parser.add_argument("--plane", choices=["stock", "spillway"], required=True)
    parser.add_argument("--mode", choices=["dropped", "kept"], default="dropped")
    arguments = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(
        target=_receive, args=(arguments.plane, arguments.mode, is_busy, there)
    )
    process.start()
    there.close()
    try:
        address = arguments.address = here.recv()
        enable(arguments.plane)
        from distributed.comm import connect

        async def main() -> dict:
            comm = await connect(address)
            try:
                return await measure(comm, arguments)
            finally:
                await comm.close()

        print(json.dumps(asyncio.run(main())), flush=True)
        here.send("stop")
        process.join(30)
    finally:
        if process.is_alive():
            process.kill()
        process.join()
    if process.exitcode != 0:
        sys.exit(f"the receiver failed (exit {process.exitcode})")


async def send_arrays(comm: Any, plane: str, messages: list, count: int) -> dict:
    """Send count messages, each a list of arrays, taken in turn from messages.

    Returns seconds, CPU seconds of both processes, and by how many bytes the receiver's
    memory rose at most.
    """
    from distributed.protocol import to_serialize

    loop = asyncio.get_running_loop()
    await comm.write({"op": "start"})
    before = await comm.read()
    cpu, start = cpu_seconds(), loop.time()
    for i in range(count):
        arrays = messages[i % len(messages)]
        await comm.write({"op": "data", "arrays": [to_serialize(a) for a in arrays]})
    await comm.write({"op": "stop"})
    after = await comm.read()
    seconds = loop.time() - start
    cpu = cpu_seconds() - cpu + after["cpu"] - before["cpu"]
    expected = sum(
        fingerprint(a) for i in range(count) for a in messages[i % len(messages)]
    )
    assert after["seen"] == expected & 0xFFFFFFFF, "wrong bytes arrived"
    last = messages[-1]
    await comm.write({"op": "check", "arrays": [to_serialize(a) for a in last]})
    assert list(await comm.read()) == [zlib.crc32(a) for a in last], "wrong bytes"
    assert_moved(plane, sum(a.nbytes for a in last))
    return {
        "seconds": seconds,
        "cpu": cpu,
        "grown": after["peak"] - before["resident"],
    }


def random_messages(sizes: list[int], count: int = 3) -> list[list[np.ndarray]]:
    """count different messages of one array of random bytes per size."""
    random = np.random.default_rng(0)
    return [
        [random.integers(0, 255, size, dtype="u1") for size in sizes]
        for _ in range(count)
    ]


assert os.path.exists("/proc/self/clear_refs"), "needs Linux"
