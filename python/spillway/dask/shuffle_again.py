"""Shuffles of which a partition is asked for more than once.

A run gives each partition once, and has it no more. That is enough where each has one
task that reads it, which succeeds. It is asked for again when that task fails behind
the shuffle and is tried again (`retries=`, or the other side of a merge was restarted),
and when two computations share a shuffle, each with tasks of its own. Then the shuffle
is restarted, once, and its next run keeps on disk what was read.
"""

import threading
from collections.abc import Callable
from tempfile import TemporaryFile
from typing import Any

from spillway.dask import shuffle_errors

REMEMBERED = 10_000
"""Shuffles, the latest: one that is forgotten is restarted once more."""

_ids: dict[str, None] = {}


def note(shuffle_id: str) -> None:
    """Have the next runs of this shuffle, in this process, keep what is read."""
    _ids[shuffle_id] = None
    if len(_ids) > REMEMBERED:
        del _ids[next(iter(_ids))]


def is_noted(shuffle_id: str) -> bool:
    """Whether a new run of this shuffle is to keep what is read."""
    return shuffle_id in _ids


class KeptFrames:
    """Frames that were read, in a file without a name. Thread: any."""

    def __init__(self, directory: str) -> None:
        self._file = TemporaryFile(dir=directory)
        self._begin_of: dict[int, int] = {}
        self._lock = threading.Lock()

    def read(self, partition: int, read_first: Callable[[int], Any]) -> Any:
        """A frame: by `read_first` the first time, then from the file."""
        import cloudpickle

        with self._lock:
            begin = self._begin_of.get(partition)
            if begin is not None:
                self._file.seek(begin)
                return cloudpickle.load(self._file)
            frame = read_first(partition)
            try:
                begin = self._file.seek(0, 2)
                cloudpickle.dump(frame, self._file)
                self._file.flush()
            except OSError as error:
                raise shuffle_errors.out_of_disk(error) from error
            self._begin_of[partition] = begin
            return frame

    def close(self) -> None:
        """Give the file back. Waits for who reads."""
        with self._lock:
            self._file.close()
