"""SPILLWAY_DISABLE: what this process was told to leave to Dask."""

import logging
import os

logger = logging.getLogger("spillway")

VARIABLE = "SPILLWAY_DISABLE"

ALL = "all"
TRANSPORT = "transport"
SAME_HOST = "same_host"
MALLOC = "malloc"
OFFLOAD = "offload"
MERGE = "merge"
VALUES = "values"
STORE = "store"
SHUFFLE = "shuffle"

_PARTS = (TRANSPORT, SAME_HOST, MALLOC, OFFLOAD, MERGE, VALUES, STORE, SHUFFLE)


def _named() -> set[str]:
    return {name.strip() for name in os.environ.get(VARIABLE, "").split(",")} - {""}


def is_off(part: str) -> bool:
    """Whether SPILLWAY_DISABLE names a part of the transport, which is then off for new
    connections by spillway:// too."""
    return part in _named()


def read() -> frozenset[str]:
    """The names in SPILLWAY_DISABLE. One warning says which of them mean nothing."""
    names = _named()
    unknown = names - {ALL, *_PARTS}
    if unknown:
        logger.warning(
            "%s has unknown names, which switch nothing off: %s. It takes a "
            "comma-separated list of: %s",
            VARIABLE,
            ", ".join(sorted(unknown)),
            ", ".join([ALL, *_PARTS]),
        )
    return frozenset(names - unknown)


def why_off(off_with: tuple[str, ...], names: frozenset[str]) -> str | None:
    """Why a hook that goes off with any name in `off_with` is off, or None."""
    for name in off_with:
        if name in names:
            return f"{VARIABLE}={name}"
    return None
