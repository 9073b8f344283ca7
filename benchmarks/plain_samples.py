"""Values that are made of Python's lists and dicts, and what tasks do with them."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np


def arrays(count: int) -> list[np.ndarray]:
    """Of 8 KB each."""
    return [np.full(1000, float(number)) for number in range(count)]


def layer(number: int) -> dict[str, Any]:
    """One of a model: arrays, numbers, text and names in each other."""
    return {
        "weights": arrays(10),
        "bias": [number * 0.5] * 500,
        "units": {f"unit {unit}": [unit, str(unit)] for unit in range(100)},
        "shape": (number, {"kernel": (3, 3), "tags": {"a", "b"}}),
    }


SAMPLES: dict[str, Callable[[], Any]] = {
    "integers": lambda: list(range(200_000)),
    "floats": lambda: {f"name {number}": number * 0.5 for number in range(100_000)},
    "arrays": lambda: arrays(1000),
    "nested": lambda: {f"layer {number}": layer(number) for number in range(100)},
}


def make(name: str) -> Any:
    return SAMPLES[name]()


def look(value: Any) -> int:
    return len(value)


async def spill(dask_worker: Any) -> None:
    """Have the one value that a worker has, once others have gone, leave its memory."""
    data = dask_worker.data
    while len(data) != 1:
        await asyncio.sleep(0.01)
    data.evict()
    while not data.spilled_total.disk:
        await asyncio.sleep(0.01)
