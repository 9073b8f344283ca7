"""Round trips and one-way messages of a small dict, per second."""

import time
from typing import Any

from two_processes import assert_moved, run

ROUND_TRIPS = 4000
ONE_WAY = 20000


async def measure(comm: Any, arguments: Any) -> dict:
    msg = {"op": "ping", "keys": [f"x-{i}" for i in range(5)]}
    start = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        await comm.write(msg)
        await comm.read()
    round_trips = ROUND_TRIPS / (time.perf_counter() - start)
    msg = {"op": "nothing", "keys": msg["keys"]}
    start = time.perf_counter()
    for _ in range(ONE_WAY):
        await comm.write(msg)
    await comm.write({"op": "stop"})
    await comm.read()
    one_way = ONE_WAY / (time.perf_counter() - start)
    assert_moved(arguments.plane, 40 * (ROUND_TRIPS + ONE_WAY))
    return {"round_trips_per_s": round_trips, "one_way_per_s": one_way}


if __name__ == "__main__":
    run(measure)
