"""Round trips of a small message over one comm while arrays of 1 GiB go over another
between the same two processes: how long the slowest in a hundred takes."""

import asyncio
from typing import Any

import numpy as np
from two_processes import random_messages, run, send_arrays

GIB = 1 << 30
TRANSFERS = 6
PING = {"op": "ping", "keys": [f"x-{i}" for i in range(5)]}


async def measure(comm: Any, arguments: Any) -> dict:
    from distributed.comm import connect

    beside = await connect(arguments.address)
    messages = random_messages([GIB], count=2)
    await send_arrays(comm, arguments.plane, messages, 1)
    loop = asyncio.get_running_loop()
    transfer = loop.create_task(send_arrays(comm, arguments.plane, messages, TRANSFERS))
    took = []
    while not transfer.done():
        start = loop.time()
        await beside.write(PING)
        await beside.read()
        took.append(loop.time() - start)
        # A ping now and then, as heartbeats are, and not as many as there is time for:
        # those that meet a busy moment would be few among many that meet none.
        await asyncio.sleep(0.001)
    await transfer
    await beside.close()
    return {
        "p99_s": float(np.percentile(took, 99)),
        "median_s": float(np.median(took)),
        "round_trips": len(took),
    }


if __name__ == "__main__":
    run(measure)
