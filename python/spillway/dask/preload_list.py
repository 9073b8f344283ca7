"""A preload beside those that are there already."""

from collections.abc import Sequence
from typing import Any

PRELOAD = "spillway.dask.preload"


def with_ours(
    preload: str | Sequence[str] | None, argv: Sequence[Any] | None
) -> tuple[list[str], list[Any]]:
    """Add Spillway's preload to the end of a Dask preload setting, once."""
    return with_preload(PRELOAD, preload, argv)


def with_preload(
    added: str, preload: str | Sequence[str] | None, argv: Sequence[Any] | None
) -> tuple[list[str], list[Any]]:
    """Add one to the end of a Dask preload setting, once.

    Dask takes one list of arguments for all preloads (strings), or one list for each
    (lists, as many as there are preloads): the second kind needs one for it too.
    """
    modules = [preload] if isinstance(preload, str) else list(preload or ())
    arguments = [argv] if isinstance(argv, str) else list(argv or ())
    if added in modules:
        return modules, arguments
    if arguments and not isinstance(arguments[0], str):
        arguments.append([])
    return [*modules, added], arguments
