"""Our preload where a script gives preloads of its own."""

import logging
from dataclasses import dataclass

import pytest
from distributed import Client, Nanny, preloading

from spillway.dask import hook_preloads
from spillway.dask.preload_list import PRELOAD


@dataclass
class Given:
    """What reached Dask's own function."""

    preload: object
    preload_argv: object
    file_dir: object


@pytest.fixture
def given(monkeypatch):
    """Dask's process_preloads(), which here hands back what it is given, under ours."""

    def process_preloads(dask_server, preload, preload_argv, *, file_dir=None):
        return Given(preload, preload_argv, file_dir)

    monkeypatch.setattr(preloading, "process_preloads", process_preloads)
    hook_preloads.install()
    yield process_preloads
    hook_preloads.remove()


def test_remove_restores_the_same_object():
    stock = preloading.process_preloads
    hook_preloads.install()
    assert preloading.process_preloads is not stock
    hook_preloads.remove()
    assert preloading.process_preloads is stock


def test_a_scripts_own_preloads_get_ours_once(given):
    mine = ["json", "csv"]
    got = preloading.process_preloads(object(), mine, [["--x"], []], file_dir="here")
    assert got == Given(["json", "csv", PRELOAD], [["--x"], [], []], "here")
    again = preloading.process_preloads(object(), got.preload, got.preload_argv)
    assert again == Given(got.preload, got.preload_argv, None)
    assert mine == ["json", "csv"]


def test_a_nannys_worker_process_gets_ours_too(given):
    nanny = object.__new__(Nanny)  # its constructor needs a loop, and starts servers
    nanny.preload, nanny.preload_argv = "json", ["--mine"]
    got = preloading.process_preloads(nanny, [], [])
    assert got.preload == [PRELOAD]
    assert nanny.preload == ["json", PRELOAD]
    assert nanny.preload_argv == ["--mine"]


def test_a_client_gets_ours_once_and_without_a_line_in_the_log(caplog):
    caplog.set_level(logging.DEBUG)
    client = object.__new__(Client)  # its constructor needs a loop, and connects
    hook_preloads.install()
    try:
        got = preloading.process_preloads(client, ["json"], [])
        assert [preload.name for preload in got] == ["json", PRELOAD]
        assert "json" in caplog.text
        assert PRELOAD not in caplog.text
        again = preloading.process_preloads(client, [PRELOAD], [])
        assert [preload.name for preload in again] == [PRELOAD]
    finally:
        hook_preloads.remove()


def test_after_remove_a_wrapper_around_ours_adds_nothing(given, monkeypatch):
    ours = preloading.process_preloads
    theirs = lambda *args, **kwargs: ours(*args, **kwargs)  # noqa: E731
    monkeypatch.setattr(preloading, "process_preloads", theirs)
    hook_preloads.remove()
    assert preloading.process_preloads is theirs
    assert preloading.process_preloads(object(), ["json"], []).preload == ["json"]


def test_arguments_that_do_not_fit_are_still_refused_by_dask():
    hook_preloads.install()
    try:
        with pytest.raises(ValueError, match="mismatched lengths"):
            preloading.process_preloads(object(), ["json", "csv"], [["--x"]])
    finally:
        hook_preloads.remove()
