"""Decides for our comms what is done off the event loop, and where.

It enters nothing of Dask's: our comms ask whether it is in force, and do as Dask does
when it is not.
"""

import functools
import os

from spillway import in_force
from spillway.dask import manifest, switches

NAME = "offload"
OFF_WITH = (switches.ALL, switches.TRANSPORT, switches.OFFLOAD)


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Nothing has to be put anywhere."""


def remove() -> None:
    """Comms that are there stay as they are."""


def is_in_force() -> bool:
    """Whether a comm that is made now has the policy. One of spillway:// may be made
    where enable() was never called."""
    if in_force.hooks:
        return in_force.why_off(NAME) is None
    return _is_on_without_enable(os.environ.get(switches.VARIABLE))


@functools.cache
def _is_on_without_enable(variable: str | None) -> bool:
    return switches.why_off(OFF_WITH, switches.read()) is None and check() is None
