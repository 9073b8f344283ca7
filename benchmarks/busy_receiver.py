"""One array a message to a process in which a user's Python code runs all the time:
messages per second of 64 MiB and of 1 GiB."""

from typing import Any

from two_processes import random_messages, run, send_arrays

MIB, GIB = 1 << 20, 1 << 30
COUNTS = {64 * MIB: 8, GIB: 3}


async def measure(comm: Any, arguments: Any) -> dict:
    rates = {}
    for size, count in COUNTS.items():
        messages = random_messages([size], count=2)
        await send_arrays(comm, arguments.plane, messages, 1)
        took = await send_arrays(comm, arguments.plane, messages, count)
        rates[f"{size}_bytes_per_s"] = count / took["seconds"]
    return rates


if __name__ == "__main__":
    run(measure, is_busy=True)
