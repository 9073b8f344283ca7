"""Spillway: a native data plane under an unmodified Dask cluster."""

from typing import TYPE_CHECKING, Any

from spillway import debug
from spillway.packing import pack_frames, unpack_frames
from spillway.stats import stats

if TYPE_CHECKING:
    from spillway.merging import buffer_offset, merge

__all__ = [
    "__version__",
    "buffer_offset",
    "debug",
    "merge",
    "pack_frames",
    "stats",
    "unpack_frames",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What needs the C library, without which stats() still has to say what is off."""
    if name in ("buffer_offset", "merge"):
        from spillway import merging

        return getattr(merging, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
