"""One array a message: messages per second at each size, --range small (0 bytes to
1 MiB) or large (8 MiB to 1 GiB)."""

from typing import Any

from two_processes import random_messages, run, send_arrays

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
COUNTS = {
    "small": {0: 4000, KIB: 4000, 64 * KIB: 3000, MIB: 500},
    "large": {8 * MIB: 80, 64 * MIB: 16, 256 * MIB: 4, GIB: 2},
}


async def measure(comm: Any, arguments: Any) -> dict:
    rates = {}
    for size, count in COUNTS[arguments.range].items():
        messages = random_messages([size])
        await send_arrays(comm, arguments.plane, messages, min(count, 3))
        took = await send_arrays(comm, arguments.plane, messages, count)
        rates[f"{size}_bytes_per_s"] = count / took["seconds"]
    return rates


if __name__ == "__main__":
    run(measure, range=list(COUNTS))
