"""Has Dask merge the parts of a buffer by our functions.

Where it does, in `merge_and_deserialize`, it first tries without a copy, and copies if
that raises. Both functions that it calls there are replaced, so every comm has them,
stock ones too, and so has what is read back from disk. What others may import, in
`distributed.protocol.utils`, stays.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from spillway.dask import manifest, switches

NAME = "merge"
OFF_WITH = (switches.ALL, switches.MERGE)

_replaced: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""By name the function that was there, and ours."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


def install() -> None:
    """Put our functions into the module that calls them."""
    from spillway.dask import merge_parts

    module = _caller()
    for ours in (merge_parts.merge_memoryviews, merge_parts.host_array_from_buffers):
        name = ours.__name__
        _replaced[name] = getattr(module, name), ours
        setattr(module, name, ours)


def remove() -> None:
    """Put back what was there, unless somebody has replaced ours."""
    module = _caller()
    for name, (stock, ours) in _replaced.items():
        if getattr(module, name) is ours:
            setattr(module, name, stock)
    _replaced.clear()


def _caller() -> ModuleType:
    # The package has a function of the module's name, which hides it from `import`.
    return importlib.import_module("distributed.protocol.serialize")
