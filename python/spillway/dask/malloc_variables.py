"""The environment variables by which glibc's malloc is set, and our values of them."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One variable that glibc reads as a process starts."""

    variable: str
    value: str
    tunable: str
    """The same setting by its name in TUNABLES."""
    parameter: int
    """The same setting by its number for mallopt, in malloc.h."""
    on_dask: int | None
    """What stock Dask's workers have; None where that is glibc's own choice."""


TUNABLES = "GLIBC_TUNABLES"
"""The variable in which glibc takes all of them together, as well."""

SETTINGS = (
    # Free memory at the end of the heap stays, whatever its size.
    Setting(
        "MALLOC_TRIM_THRESHOLD_",
        str(4 << 30),
        tunable="glibc.malloc.trim_threshold",
        parameter=-1,
        on_dask=64 << 10,
    ),
    # Up to here memory is taken from the heap; glibc takes no higher limit.
    Setting(
        "MALLOC_MMAP_THRESHOLD_",
        str(32 << 20),
        tunable="glibc.malloc.mmap_threshold",
        parameter=-3,
        on_dask=128 << 10,
    ),
    # One heap: threads take what others freed, and all of it can be given back.
    Setting(
        "MALLOC_ARENA_MAX",
        "1",
        tunable="glibc.malloc.arena_max",
        parameter=-8,
        on_dask=None,
    ),
)


def in_environment() -> list[Setting]:
    """Those of our settings that this process has, as workers do that a nanny with them
    started."""
    return [one for one in SETTINGS if os.environ.get(one.variable) == one.value]
