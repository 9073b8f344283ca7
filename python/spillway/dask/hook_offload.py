"""Decides for our comms what is done off the event loop, and where.

It enters nothing of Dask's: our comms ask whether it is in force, and do as Dask does
when it is not.
"""

from typing import Any

from spillway.dask import manifest, new_comms, switches

NAME = "offload"
OFF_WITH = (switches.ALL, switches.TRANSPORT, switches.OFFLOAD)

_left_to_dask: set[Any] = set()
"""Who needs Dask's own thread, in this process."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Nothing has to be put anywhere."""


def remove() -> None:
    """Comms that are there stay as they are."""


def leave_to_dask(user: Any) -> None:
    """As long as the user is there, comms that are made do as Dask does."""
    _left_to_dask.add(user)


def take_back(user: Any) -> None:
    """It needs that no more, if it ever did."""
    _left_to_dask.discard(user)


def is_in_force() -> bool:
    """Whether a comm that is made now has the policy."""
    return not _left_to_dask and new_comms.have(NAME, OFF_WITH, check)
