"""Round trips of messages with values, with and without compression: milliseconds, CPU
milliseconds of both processes, and the longest that the sender's event loop had to wait
for its turn meanwhile.

    python benchmarks/offload.py --plane spillway --compression none

Beside stock and Spillway, `SPILLWAY_DISABLE=offload` shows Spillway with Dask's policy.
"""

import asyncio
import time
from typing import Any

from two_processes import assert_moved, cpu_seconds, random_messages, run


def values() -> dict[str, tuple[Any, int]]:
    """What is sent, and how often."""
    import numpy as np
    import pandas as pd

    (array,) = random_messages([64 << 20], count=1)[0]
    return {
        "small int": (5, 2000),
        "small table": (pd.DataFrame({"x": range(100), "y": ["a"] * 100}), 500),
        "array of 64 MiB": (array, 10),
        "compressible 64 MiB": (np.repeat(np.arange(1 << 18), 32), 5),
        "dict of 200,000 ints": (dict.fromkeys(range(200_000), 7), 1),
    }


async def measure(comm: Any, arguments: Any) -> dict:
    from distributed.protocol import to_serialize

    async def round_trip(value: Any) -> None:
        message = {"op": "ping", "keys": (), "value": to_serialize(value)}
        await comm.write(message)
        await comm.read()

    if arguments.compression != "none":
        # Between processes of one host none is agreed on.
        comm.handshake_options["compression"] = arguments.compression
    found = {}
    for name, (value, count) in values().items():
        await round_trip(value)
        lags: list[float] = []
        watching = asyncio.ensure_future(watch(lags))
        await comm.write({"op": "start"})
        before = await comm.read()
        cpu, start = cpu_seconds(), time.perf_counter()
        for _ in range(count):
            await round_trip(value)
        seconds = time.perf_counter() - start
        await comm.write({"op": "stop"})
        after = await comm.read()
        cpu = cpu_seconds() - cpu + after["cpu"] - before["cpu"]
        watching.cancel()
        found[name] = {
            "ms": round(seconds / count * 1e3, 3),
            "cpu_ms": round(cpu / count * 1e3, 3),
            "longest_wait_ms": round(max(lags) * 1e3, 1),
        }
    assert_moved(arguments.plane, 64 << 20)
    return found


async def watch(lags: list[float]) -> None:
    """How much later than asked for this task has its turn, each time."""
    while True:
        start = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(time.perf_counter() - start - 0.005)


if __name__ == "__main__":
    run(measure, compression=["none", "lz4"])
