"""How many messages with values were encoded and decoded where, for stats()."""

import threading
from typing import Literal

Direction = Literal["encoded", "decoded"]
Place = Literal["inline", "offloaded"]

_DIRECTIONS: tuple[Direction, ...] = ("encoded", "decoded")
_PLACES: tuple[Place, ...] = ("inline", "offloaded")

_lock = threading.Lock()
"""Over the counts: each loop of the process counts its own messages."""
_counts = {
    direction: {place: {"count": 0, "bytes": 0} for place in _PLACES}
    for direction in _DIRECTIONS
}


def add(direction: Direction, place: Place, size: int) -> None:
    """Count a message of that many bytes."""
    with _lock:
        counted = _counts[direction][place]
        counted["count"] += 1
        counted["bytes"] += size


def read() -> dict[str, dict[str, dict[str, int]]]:
    """The counts since the start of the process."""
    with _lock:
        return {
            direction: {place: dict(counted) for place, counted in places.items()}
            for direction, places in _counts.items()
        }
