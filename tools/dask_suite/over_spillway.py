"""A pytest plugin that puts Spillway under Dask's tests, here and in child processes.

    -p over_spillway --figures FILE

It acts as it is imported, which is before Dask's conftest: distributed.utils_test keeps
a copy of the configuration that it finds, and goes back to it for each test.

The tests' values are tiny, and leave memory all the same.

A shuffle that a test makes with a class of its own extends ours, not Dask's.

Some tests go to Tornado's classes by name, as the comm tests do, whose fixture puts
Tornado's backend back: they find ours under these names. TLS and WebSocket stay Dask's.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

PRELOAD = "spillway.dask.preload"
ROLES = ("SCHEDULER", "NANNY", "WORKER")
"""Those whose configuration enable() adds to. Clients are not: Dask logs each preload
that it finds configured, and some tests want no line from a client's script."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--figures", type=Path, required=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    import spillway

    figures = json.dumps(spillway.stats(), indent=2)
    session.config.getoption("--figures").write_text(figures, encoding="utf-8")


def put_under_dask() -> None:
    import dask

    os.environ["DASK_SPILLWAY__STORE__SMALL"] = "1 B"
    dask.config.refresh()
    # For the processes that tests start: they inherit the environment, and not always
    # the configuration, where enable() says the same. Dask reads it when imported.
    for role in ROLES:
        os.environ[f"DASK_DISTRIBUTED__{role}__PRELOAD"] = f'["{PRELOAD}"]'

    import distributed.comm.tcp
    from distributed.comm.registry import backends

    import spillway.dask
    from spillway.dask import backends as ours
    from spillway.dask import comm, connector, listener

    spillway.dask.enable()
    off = spillway.stats()["parts"]["transport"]["why_off"]
    if off:
        raise pytest.UsageError(f"Spillway's transport is off: {off}")
    if not isinstance(backends["tcp"], ours.TakeoverBackend):
        raise pytest.UsageError(f"tcp:// is served by {backends['tcp']!r}")
    # Dask's TLS calls this under the name TCP; in Dask's TCP it does nothing either.
    comm.SpillwayComm._read_extra = lambda self: None
    distributed.comm.tcp.TCP = comm.SpillwayComm
    distributed.comm.tcp.TCPConnector = connector.TakeoverConnector
    distributed.comm.tcp.TCPListener = listener.TakeoverListener
    distributed.comm.tcp.TCPBackend = ours.TakeoverBackend
    put_our_shuffle_under_dask()


def put_our_shuffle_under_dask() -> None:
    """Have tests that extend Dask's run of a shuffle by its name extend ours."""
    import distributed.shuffle._shuffle

    import spillway
    from spillway.dask.shuffle_run import DataFrameRun

    off = spillway.stats()["parts"]["shuffle"]["why_off"]
    if off:
        raise pytest.UsageError(f"Spillway's shuffle is off: {off}")
    distributed.shuffle._shuffle.DataFrameShuffleRun = DataFrameRun


class HostBuffer:
    """One of our buffers, as the tests look at the owner of an array's memory."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.nbytes = memoryview(buffer).nbytes


def know_our_buffers() -> None:
    """Let get_host_array find them: it knows what owns memory by type. Equal buffers
    give the same object, since tests compare the owners of two arrays."""
    from distributed.protocol import utils_test

    from spillway import _native

    stock = utils_test.get_host_array
    known: dict[int, HostBuffer] = {}

    def get_host_array(array: Any) -> Any:
        owner = array
        while not isinstance(owner, _native.Buffer):
            inner = owner.obj if isinstance(owner, memoryview) else owner.base
            if inner is None or isinstance(inner, bytes | bytearray):
                return stock(array)
            owner = inner
        return known.setdefault(id(owner), HostBuffer(owner))

    utils_test.get_host_array = get_host_array


put_under_dask()
know_our_buffers()
