"""How far the receiver's memory rises over the payload, two arrays of 512 MiB in a
message."""

from typing import Any

from two_processes import random_messages, run, send_arrays

ARRAY_BYTES = 512 << 20


async def measure(comm: Any, arguments: Any) -> dict:
    messages = random_messages([ARRAY_BYTES, ARRAY_BYTES], count=1)
    took = await send_arrays(comm, arguments.plane, messages, 1)
    return {"peak_over_payload": took["grown"] / (2 * ARRAY_BYTES)}


if __name__ == "__main__":
    run(measure)
