"""CPU seconds of sender and receiver together per 10^9 bytes, messages of 1 MiB to
1 GiB."""

from typing import Any

from two_processes import random_messages, run, send_arrays

COUNTS = {1 << 20: 600, 8 << 20: 80, 64 << 20: 16, 1 << 30: 2}


async def measure(comm: Any, arguments: Any) -> dict:
    cpu, moved = 0.0, 0
    for size, count in COUNTS.items():
        messages = random_messages([size])
        await send_arrays(comm, arguments.plane, messages, min(count, 3))
        took = await send_arrays(comm, arguments.plane, messages, count)
        cpu += took["cpu"]
        moved += size * count
    return {"cpu_s_per_gb": cpu / moved * 1e9}


if __name__ == "__main__":
    run(measure)
