"""Calls a function once, right after a module is first imported.

For what of Dask costs a second and a hundred megabytes to import: a process that does
not need it must not have it because of us.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def call(name: str, function: Callable[[], None]) -> None:
    """Have the function called after the import, in the thread that imports.

    What it raises is raised by the import.
    """
    sys.meta_path.insert(0, _Finder(name, function))


def cancel(name: str) -> None:
    """Call nothing any more after this module's import."""
    for finder in list(sys.meta_path):
        if isinstance(finder, _Finder) and finder.name == name:
            sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what all others find, and stands before what loads it."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self.name = name
        self.function = function

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        for finder in sys.meta_path:
            if not isinstance(finder, _Finder):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, self)
                    return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads by another, calls, and leaves the module to that other."""

    def __init__(self, loader: importlib.abc.Loader, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:  # not cancelled meanwhile
            sys.meta_path.remove(self._finder)
            self._finder.function()
