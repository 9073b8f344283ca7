"""Where the rows of simulated runs are: real memory and real files, of which writing
and reading take their time, and fail."""

import errno
import os
import tempfile
from random import Random
from typing import Any

from simulated_loop import pause
from simulated_weather import Weather
from spillway import _native


class Partitions:
    """The C library's. `memory` is what they may hold before they are written."""

    def __init__(
        self,
        directory: str,
        count: int,
        memory: int | None,
        random: Random,
        weather: Weather,
    ) -> None:
        native = _native.Partitions(
            count, [(directory, weather.disk_bytes)], memory=memory, ahead=True
        )
        self._native, self._random, self._weather = native, random, weather
        for name in (
            "add_types",
            "put",
            "expect",
            "finish",
            "measure",
            "figures",
            "close",
        ):
            setattr(self, name, getattr(native, name))

    # An error keeps the frames that it came through, and they would keep the files.

    def write(self) -> None:
        """As the C library's, or ENOSPC."""
        try:
            self._use("write", self._weather.write_fails, errno.ENOSPC)
        finally:
            del self

    def read(self, place: int, places: Any) -> None:
        """As the C library's, or EIO."""
        try:
            self._use("read", self._weather.read_fails, errno.EIO, place, places)
        finally:
            del self

    def _use(self, name: str, chance: float, number: int, *given: Any) -> None:
        try:
            pause()
            if self._random.random() < chance:
                raise _native.SpillwayError(number, os.strerror(number))
            getattr(self._native, name)(*given)
            pause()
        finally:
            del self


class NamelessFile:
    """What tempfile.TemporaryFile gives, as far as it is used."""

    def __init__(self, directory: str, random: Random, weather: Weather) -> None:
        self.file = tempfile.TemporaryFile(dir=directory)
        self._random, self._weather = random, weather
        for name in ("read", "readline", "readinto", "seek", "flush", "close"):
            setattr(self, name, getattr(self.file, name))

    def write(self, data: Any) -> int:
        """As the file's, or ENOSPC."""
        pause()
        if self._random.random() < self._weather.write_fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)
