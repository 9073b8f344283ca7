"""Where a worker's values and partitions go when they leave memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

KEY = "spillway.directories"


def spill_directories(worker: Any, limit: int) -> list[tuple[str, int]]:
    """Directories in the order in which they fill, each with a limit in bytes, 0 for
    none: the worker's local directory, with this limit, and those that
    `spillway.directories` names, as paths or as mappings of `path` and `limit`.

    Raises
    ------
    ValueError
        When that is no such list, or names what is no directory.
    """
    import dask

    named = dask.config.get(KEY, None) or []
    if not isinstance(named, (list, tuple)):
        raise ValueError(f"{KEY} must be a list of directories, not {named!r}")
    return [(worker.local_directory, limit), *map(_directory, named)]


def _directory(entry: Any) -> tuple[str, int]:
    from dask.utils import parse_bytes

    named = entry if isinstance(entry, Mapping) else {"path": entry}
    path = named.get("path")
    if not isinstance(path, str) or named.keys() - {"path", "limit"}:
        raise ValueError(
            f"{KEY} names paths, or mappings of path and limit, not {entry!r}"
        )
    if not os.path.isdir(path):
        raise ValueError(f"{KEY} names {path}, which is no directory")
    if "limit" not in named:
        return path, 0
    try:
        limit = parse_bytes(named["limit"])
    except (ValueError, TypeError, AttributeError):
        limit = 0
    if limit <= 0:
        raise ValueError(
            f'{KEY} must have a limit such as "100 GiB" for {path}, or none, '
            f"not {named['limit']!r}"
        )
    return path, limit
