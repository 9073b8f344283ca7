"""Our preload in Dask's configuration, beside what is there, and taken out again."""

import copy
import os
import subprocess
import sys

import dask
import pytest

from spillway.dask import hook_config
from spillway.dask.preload_list import PRELOAD, with_ours

ROLES = ("scheduler", "nanny", "worker")


@pytest.mark.parametrize(
    "preload, argv, expected",
    [
        ([], [], ([PRELOAD], [])),
        (None, None, ([PRELOAD], [])),
        ("mine", [], (["mine", PRELOAD], [])),
        ("import os; do()", [], (["import os; do()", PRELOAD], [])),
        (("a", "b"), ("--x", "1"), (["a", "b", PRELOAD], ["--x", "1"])),
        (["a", "b"], [["--x"], []], (["a", "b", PRELOAD], [["--x"], [], []])),
        ([PRELOAD, "a"], [["--x"], []], ([PRELOAD, "a"], [["--x"], []])),
        ([PRELOAD], [], ([PRELOAD], [])),
    ],
)
def test_with_ours_keeps_modules_and_arguments_in_step(preload, argv, expected):
    before = copy.deepcopy((preload, argv))
    assert with_ours(preload, argv) == expected
    assert (preload, argv) == before


@pytest.mark.parametrize("role", ROLES)
def test_install_appends_for_each_role(role):
    theirs, arguments = ["json"], [["--mine"]]
    key, key_argv = f"distributed.{role}.preload", f"distributed.{role}.preload-argv"
    with dask.config.set({key: theirs, key_argv: arguments}):
        hook_config.install()
        assert dask.config.get(key) == ["json", PRELOAD]
        assert dask.config.get(key_argv) == [["--mine"], []]
        hook_config.remove()
        assert dask.config.get(key) is theirs
        assert dask.config.get(key_argv) is arguments
        assert (theirs, arguments) == (["json"], [["--mine"]])


def test_remove_restores_the_whole_configuration():
    before = copy.deepcopy(dask.config.config)
    lists = [dask.config.get(f"distributed.{role}.preload") for role in ROLES]
    hook_config.install()
    assert dask.config.config != before
    hook_config.remove()
    assert dask.config.config == before
    for role, preload in zip(ROLES, lists, strict=True):
        assert dask.config.get(f"distributed.{role}.preload") is preload


def test_remove_keeps_what_was_set_since():
    with dask.config.set({"distributed.worker.preload": []}):
        hook_config.install()
        dask.config.set({"distributed.worker.preload": ["json", PRELOAD]})
        dask.config.set({"distributed.nanny.preload": ["json"]})
        hook_config.remove()
        assert dask.config.get("distributed.worker.preload") == ["json"]
        assert dask.config.get("distributed.nanny.preload") == ["json"]
    dask.config.set({"distributed.nanny.preload": []})


def test_failed_install_changes_nothing(monkeypatch):
    before = copy.deepcopy(dask.config.config)
    nanny = dict(dask.config.config["distributed"]["nanny"])
    del nanny["preload"]
    monkeypatch.setitem(dask.config.config["distributed"], "nanny", nanny)
    with pytest.raises(KeyError):
        hook_config.install()
    monkeypatch.undo()
    assert dask.config.config == before


def test_enable_works_before_distributed_is_imported():
    """Dask's own defaults come with that import; with the transport switched off
    nothing else of enable() would bring it."""
    script = (
        "import sys, spillway.dask, spillway\n"
        "assert 'distributed' not in sys.modules\n"
        "spillway.dask.enable()\n"
        "print(spillway.stats()['hooks']['config'])\n"
    )
    shown = subprocess.check_output(
        [sys.executable, "-c", script],
        env={**os.environ, "SPILLWAY_DISABLE": "transport"},
        text=True,
    )
    assert shown == "on\n"
