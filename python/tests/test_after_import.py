"""A function called after a module's first import, with modules made for it."""

import importlib
import sys

import pytest

from spillway.dask import after_import

NAME = "imported_by_test_after_import"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes the module's text; nothing of it is left."""
    finders = list(sys.meta_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        (tmp_path / f"{NAME}.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    sys.modules.pop(NAME, None)
    after_import.cancel(NAME)
    assert sys.meta_path == finders


def test_is_called_once_after_the_module_has_run(module):
    module("value = 7\n")
    seen = []
    after_import.call(NAME, lambda: seen.append(sys.modules[NAME].value))
    assert seen == []
    imported = importlib.import_module(NAME)
    assert seen == [7]
    importlib.reload(imported)
    assert seen == [7]
    assert type(imported.__loader__).__module__ == "_frozen_importlib_external"
    assert imported.__spec__.loader is imported.__loader__


def test_other_modules_call_nothing(module):
    module("value = 7\n")
    seen = []
    after_import.call(NAME, lambda: seen.append("called"))
    sys.modules.pop("colorsys", None)
    importlib.import_module("colorsys")
    assert seen == []


@pytest.mark.parametrize("when", ["before", "during"])
def test_cancelled_calls_nothing(module, when):
    seen = []
    after_import.call(NAME, lambda: seen.append("called"))
    if when == "before":
        module("")
        after_import.cancel(NAME)
    else:
        module(
            f"from spillway.dask import after_import\nafter_import.cancel({NAME!r})\n"
        )
    importlib.import_module(NAME)
    assert seen == []


def test_a_module_that_fails_is_called_for_when_it_comes(module):
    seen = []
    after_import.call(NAME, lambda: seen.append("called"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
    module("raise OSError('not today')\n")
    with pytest.raises(OSError, match="not today"):
        importlib.import_module(NAME)
    assert seen == []
    module("value = 'another length'\n")
    importlib.import_module(NAME)
    assert seen == ["called"]
