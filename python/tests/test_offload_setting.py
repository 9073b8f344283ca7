"""What says from how many bytes on work leaves the loop."""

import subprocess
import sys

import dask
import pytest
from distributed.comm import utils as comm_utils

from spillway.dask.offload_setting import (
    ALWAYS,
    AUTO_BYTES,
    KEY,
    NEVER,
    configured,
    parse,
)


@pytest.mark.parametrize(
    "value, size",
    [
        ("auto", AUTO_BYTES),
        ("never", NEVER),
        ("always", ALWAYS),
        (1, 1),
        (4 << 20, 4 << 20),
        ("4 MiB", 4 << 20),
        ("4MB", 4_000_000),
        ("100", 100),
        ((1 << 63) - 1, (1 << 63) - 1),
    ],
)
def test_what_it_takes(value, size):
    assert parse(value) == size
    with dask.config.set({KEY: value}):
        assert configured() == size


@pytest.mark.parametrize(
    "value",
    [
        "",
        "MiB",
        "sometimes",
        "Never",
        "-1",
        "0",
        0,
        -5,
        1 << 63,
        1.5,
        True,
        False,
        None,
        [],
    ],
)
def test_anything_else_is_refused_by_name(value):
    with pytest.raises(ValueError) as refused:
        parse(value)
    message = str(refused.value)
    assert KEY in message and repr(value) in message
    assert '"auto", "never", "always"' in message


@pytest.mark.parametrize(
    "by_user, size", [(False, NEVER), (0, NEVER), (1, ALWAYS), (5 << 20, 5 << 20)]
)
def test_auto_heeds_what_the_user_told_dask(monkeypatch, by_user, size):
    monkeypatch.setattr(comm_utils, "OFFLOAD_THRESHOLD", by_user)
    assert parse("auto") == configured() == size
    assert parse("always") == ALWAYS


def test_a_dask_told_not_to_offload_is_no_other_dask():
    """It has False where it has a number otherwise."""
    script = (
        "import dask; dask.config.set({'distributed.comm.offload': False})\n"
        "import spillway.dask; spillway.dask.enable()\n"
        "from spillway.dask.offload_setting import configured\n"
        "print(spillway.stats()['hooks']['offload'], configured())\n"
    )
    shown = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert shown == "on 0\n"


def test_without_a_word_it_is_auto():
    assert dask.config.get(KEY, None) is None
    assert configured() == AUTO_BYTES
