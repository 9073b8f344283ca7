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


TUNABLES = "GLIBC_TUNABLES"
"""The variable in which glibc takes all of them together, as well."""

SETTINGS = (
    # Free memory at the end of the heap stays, whatever its size.
    Setting("MALLOC_TRIM_THRESHOLD_", str(4 << 30), "glibc.malloc.trim_threshold"),
    # Up to here memory is taken from the heap; glibc takes no higher limit.
    Setting("MALLOC_MMAP_THRESHOLD_", str(32 << 20), "glibc.malloc.mmap_threshold"),
    # One heap: threads take what others freed, and all of it can be given back.
    Setting("MALLOC_ARENA_MAX", "1", "glibc.malloc.arena_max"),
)


def in_environment() -> bool:
    """Whether this process has any of our settings, as workers do that a nanny with
    them started."""
    return any(os.environ.get(one.variable) == one.value for one in SETTINGS)
