"""The policy is in force where our comms are, unless it is switched off."""

import pytest
from distributed.protocol import compression

from spillway.dask import disable, enable, hook_offload, new_comms


def test_with_enable_and_without(monkeypatch):
    assert hook_offload.is_in_force()  # for comms of spillway://
    enable()
    assert hook_offload.is_in_force()
    disable()
    assert hook_offload.is_in_force()


@pytest.mark.parametrize("name", ["all", "transport", "offload", "malloc,offload"])
@pytest.mark.parametrize("enabled", [True, False])
def test_switched_off(monkeypatch, name, enabled):
    monkeypatch.setenv("SPILLWAY_DISABLE", name)
    if enabled:
        enable()
    assert not hook_offload.is_in_force()


def test_another_switch_does_not_matter(monkeypatch):
    monkeypatch.setenv("SPILLWAY_DISABLE", "malloc")
    assert hook_offload.is_in_force()


def test_a_dask_that_does_not_fit(monkeypatch):
    new_comms._is_on_without_enable.cache_clear()
    with monkeypatch.context() as patch:
        patch.delattr(compression, "maybe_compress")
        assert not hook_offload.is_in_force()
    new_comms._is_on_without_enable.cache_clear()
    assert hook_offload.is_in_force()
