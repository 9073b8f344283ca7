"""Aids for tests of code that must not copy."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from spillway.buffer_protocol import Buffer

_lock = threading.Lock()
"""Over the depth, which every thread may change and read."""
_depth = 0


class UnexpectedCopyError(RuntimeError):
    """Frames would have been merged by a copy inside `no_copies()`.

    Not a ValueError, which tells Dask to copy by itself.
    """


@contextmanager
def no_copies() -> Iterator[None]:
    """Have frames raise that do not lie side by side and so would be merged by a copy.

    It holds for the whole process, since messages are decoded in many threads: for
    messages that are received, values that are read back by Dask, and `spillway.merge`
    with any `copy`. A message that cannot be decoded without a copy is then an error of
    its comm's `read()`. What stock Dask copies where Spillway's part ``merge`` is off
    goes unseen, and what is copied elsewhere for good reason (`spillway.stats()` says
    what and why) goes on.

    Raises
    ------
    UnexpectedCopyError
        Where the copy would have been made.
    """
    global _depth
    with _lock:
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1


def refuse_copy(frames: Collection[Buffer]) -> None:
    """Raise, inside `no_copies()`, because these frames would be copied."""
    with _lock:
        is_refused = _depth > 0
    if is_refused:
        size = sum(memoryview(frame).nbytes for frame in frames)
        raise UnexpectedCopyError(
            f"{size} bytes would be copied, to merge {len(frames)} frames"
        )
