"""A pytest plugin: Dask's tests of DataFrames that shuffle, by P2P on a cluster.

    -p dataframe_shuffles --find FILE      leaves in FILE which of the tests shuffle
    -p dataframe_shuffles [--only FILE]    runs them, or those in FILE, on a cluster

Most of these tests say `scheduler="sync"`, or leave it to assert_eq, which does: to
them all of Dask's schedulers are a client of a cluster of two workers, in this process,
with `tcp://` between them. Dask takes P2P where nobody names a method and there is a
client. Tests that are run by each method (`shuffle_method`) run by P2P alone.

To find them each runs without a cluster until it makes the graph of a P2P shuffle, and
no test of another folder runs. Without --find these are left as they are.
"""

import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import dask
import pytest
from dask._expr import Expr
from dask.base import named_schedulers
from dask.dataframe.dask_expr._merge import HashJoinP2P
from dask.dataframe.dask_expr._shuffle import P2PShuffle
from distributed import Client, LocalCluster, get_worker

FOLDER = "dask/dataframe/"
HAS_CLUSTERS_OF_ITS_OWN = "test_distributed.py"
MARKERS = ("gpu", "network", "skip_with_pyarrow_strings", "xfail_with_pyarrow_strings")
"""Of these tests; the configuration is distributed's, and refuses unknown ones."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--find", type=Path)
    parser.addoption("--only", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if sys.version_info < (3, 12):
        take_locks_from(Expr)
    file = config.getoption("--find")
    config.pluginmanager.register(Finder(file) if file else OnTwoWorkers())


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have P2P stand for the methods of the fixture, or of a test, which are others."""
    if "shuffle_method" not in metafunc.fixturenames:
        return
    for mark in metafunc.definition.iter_markers("parametrize"):
        if mark.args[0] == "shuffle_method":
            if "disk" in mark.args[1]:
                mark.args[1][:] = ["p2p"]
            return
    by_p2p = pytest.mark.parametrize("shuffle_method", ["p2p"], indirect=True)
    metafunc.definition.add_marker(by_p2p)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    file = config.getoption("--only")
    chosen = set(json.loads(file.read_text(encoding="utf-8"))) if file else None
    kept, left_out = [], []
    for item in items:
        if is_of_dataframes(item):
            is_to_run = chosen is None or item.nodeid in chosen
            # The configuration's "error" is meant for distributed's tests.
            item.add_marker(pytest.mark.filterwarnings("default"))
        else:
            is_to_run = not config.getoption("--find")
        (kept if is_to_run else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def take_locks_from(kind: type) -> None:
    """Do what Python 3.12 did. A cached_property holds a lock, one for all objects,
    while it computes: who computes by the cluster in one waits for the scheduler, and
    the scheduler, which is in this process, for the lock."""
    for found in vars(kind).values():
        if isinstance(found, cached_property):
            found.lock = nullcontext()
    for inner in kind.__subclasses__():
        take_locks_from(inner)


def is_of_dataframes(item: pytest.Item) -> bool:
    return item.nodeid.startswith(FOLDER)


class Finder:
    """Notes the tests that make the graph of a P2P shuffle, and ends them there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: list[str] = []

    @pytest.fixture(autouse=True)
    def until_it_shuffles(self, request: pytest.FixtureRequest) -> Generator[None]:
        def found(shuffle: object) -> NoReturn:
            self._found.append(request.node.nodeid)
            raise RuntimeError("this test shuffles by P2P")

        with (
            dask.config.set({"dataframe.shuffle.method": "p2p"}),
            mock.patch.object(P2PShuffle, "_layer", found),
            mock.patch.object(HashJoinP2P, "_layer", found),
        ):
            yield

    def pytest_sessionfinish(self) -> None:
        tests = list(dict.fromkeys(self._found))
        self._file.write_text(json.dumps(tests, indent=1), encoding="utf-8")


class OnTwoWorkers:
    """Has the tests compute by a client."""

    @pytest.fixture(scope="module")
    def two_workers(self) -> Iterator[Client]:
        """A client of a cluster for all tests of a module."""
        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=False,
                protocol="tcp",
                dashboard_address=None,
            ) as cluster,
            SerializingClient(cluster, set_as_default=False) as client,
        ):
            yield client

    @pytest.fixture(autouse=True)
    def on_two_workers(self, request: pytest.FixtureRequest) -> Generator[None]:
        if (
            not is_of_dataframes(request.node)
            or request.path.name == HAS_CLUSTERS_OF_ITS_OWN
        ):
            yield
            return
        client = request.getfixturevalue("two_workers")
        schedulers = {
            name: by_client(client, get) for name, get in named_schedulers.items()
        }
        with client.as_current(), mock.patch.dict(named_schedulers, schedulers):
            yield


class SerializingClient(Client):
    """One for tests that forbid it, since schedulers without processes need not."""

    def get(self, *args: Any, **options: Any) -> Any:
        with dask.config.set({"dask-expr-no-serialize": False}):
            return super().get(*args, **options)


def by_client(client: Client, stock: Callable[..., Any]) -> Callable[..., Any]:
    """What computes by a client, but inside of a task, as stock does."""
    return lambda *args, **options: (
        stock(*args, **options) if is_in_a_task() else client.get(*args, **options)
    )


def is_in_a_task() -> bool:
    try:
        get_worker()
    except ValueError:
        return False
    return True
