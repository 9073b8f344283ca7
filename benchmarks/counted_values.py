"""Values that count how often they are unpickled in a process, and what tasks do with
them."""

from typing import Any

import numpy as np

unpickled = 0


class Counted:
    """An array. Its bytes are pickled as an array's are, out of band."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __sizeof__(self) -> int:
        return self.array.nbytes + 64

    def __reduce__(self) -> tuple:
        return _unpickle, (self.array,)


def _unpickle(array: np.ndarray) -> Counted:
    global unpickled
    unpickled += 1
    return Counted(array)


def make(seed: int, size: int) -> Any:
    """Random bytes, as a value that counts."""
    return Counted(make_plain(seed, size))


def make_plain(seed: int, size: int) -> np.ndarray:
    """Random bytes."""
    return np.random.default_rng(seed).integers(0, 255, size, dtype="u1")


def look(value: Any) -> int:
    """A sum over some bytes of each page."""
    array = value.array if isinstance(value, Counted) else value
    return int(array[::512].sum(dtype="u8")) + int(array[-1])


def count() -> int:
    """How many were unpickled in this process."""
    return unpickled
