"""What Dask calls to make one buffer of its parts: the same contract, other means.

Addresses are compared in C, for every kind of memory. A copy goes to aligned memory, is
counted, and can be forbidden (`spillway.debug.no_copies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spillway import _native
from spillway.merging import join


def merge_memoryviews(mvs: Sequence[memoryview]) -> memoryview:
    """One view of parts that lie side by side, in the format that they have in common,
    else of bytes.

    Raises
    ------
    ValueError
        When they do not; Dask then copies.
    """
    if not mvs:
        return memoryview(bytearray())
    if len(mvs) == 1:
        return mvs[0]
    merged = _native.merge(mvs)
    kinds = {(part.format, part.ndim) for part in map(memoryview, mvs)}
    if len(kinds) > 1:
        return merged
    kind, dimensions = kinds.pop()
    return merged.cast(kind) if dimensions == 1 and kind != "B" else merged


def host_array_from_buffers(buffers: Iterable[bytes | memoryview]) -> memoryview:
    """A writeable copy of parts, one after another."""
    return join(buffers)
