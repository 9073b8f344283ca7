"""The manifest against the installed Dask, and against a Dask that has changed."""

import pkgutil

import distributed
import pytest
from distributed.comm.registry import backends
from packaging.version import Version

from spillway import in_force, stats
from spillway.dask import enable, manifest

OBJECTS = [
    pytest.param(hook, relies, id=f"{hook}-{relies.path}")
    for hook, entries in manifest.HOOKS.items()
    for relies in entries
]

# For each hook an object that no hook but those in FOLLOWS relies on.
OWN_OBJECT = {
    "transport": "distributed.comm.tcp:BaseTCPBackend.get_listener",
    "config": "dask.config:set",
    "offload": "distributed.protocol.compression:maybe_compress",
    "merge": "distributed.protocol.serialize:merge_memoryviews",
    "values": "distributed.client:FutureState.set_error",
    "lost_data": "distributed.scheduler:SchedulerState.remove_replica",
    "scheduler_offload": "distributed.core:ConnectionPool",
    "malloc": "distributed.nanny:_get_env_variables",
    "nanny_environ": "distributed.nanny:Nanny.instantiate",
    "idle_memory": "distributed.worker_memory:WorkerMemoryManager._maybe_spill",
    "preloads": "distributed.preloading:process_preloads",
    "worker_info": "distributed.worker:Worker.get_startup_information",
    "memory_limit": "distributed.worker_memory:WorkerMemoryManager",
    "worker_executor": "distributed.utils:_offload_executor",
    "relay": "distributed.scheduler:Scheduler.get_nbytes",
    "client_check": "distributed.scheduler:Scheduler.identity",
    "store": "distributed.spill:SpillBuffer",
    "shuffle": "distributed.shuffle._worker_plugin:_ShuffleRunManager._fetch",
    "shuffle_buffer": "dask.dataframe.dask_expr._merge:Merge._lower",
}


# For a hook those that go off with it: they cannot do without it or its object.
FOLLOWS = {
    "client_check": ("shuffle",),
    "config": ("malloc",),
    "idle_memory": ("malloc",),
    "memory_limit": ("idle_memory", "malloc", "store"),
}


def holder_and_name(path):
    module, _, names = path.partition(":")
    *holders, name = names.split(".")
    return pkgutil.resolve_name(f"{module}:{'.'.join(holders)}"), name


def changed(self, in_a_way, that_we_do_not, know):
    raise AssertionError("a hook that does not match must not be used")


def spillway_warnings(caplog):
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("hook", manifest.HOOKS)
def test_installed_dask_matches(hook):
    assert manifest.mismatch(hook) is None


@pytest.mark.parametrize("hook, relies", OBJECTS)
def test_missing_object_is_named(hook, relies, monkeypatch):
    holder, name = holder_and_name(relies.path)
    monkeypatch.delattr(holder, name)
    if hasattr(holder, name):  # inherited: the class still answers to the name
        monkeypatch.setattr(holder, name, changed, raising=False)
        assert relies.path in manifest.mismatch(hook)
    else:
        assert "is missing" in manifest.mismatch(hook)


@pytest.mark.parametrize(
    "hook, relies",
    [case for case in OBJECTS if case.values[1].signatures or case.values[1].takes],
)
def test_changed_signature_is_named(hook, relies, monkeypatch):
    holder, name = holder_and_name(relies.path)
    monkeypatch.setattr(holder, name, changed)
    assert relies.mismatch().startswith(relies.path)
    assert manifest.mismatch(hook) is not None


def test_new_abstract_method_is_a_mismatch(monkeypatch):
    methods = distributed.comm.core.Comm.__abstractmethods__ | {"write_later"}
    monkeypatch.setattr(distributed.comm.core.Comm, "__abstractmethods__", methods)
    assert "write_later" in manifest.mismatch("transport")


def test_object_without_a_signature_is_a_mismatch(monkeypatch):
    monkeypatch.setattr(distributed.comm.utils, "to_frames", min)
    assert "no signature to compare" in manifest.mismatch("transport")


@pytest.mark.parametrize("broken", manifest.HOOKS)
def test_broken_hook_stays_stock_alone(broken, monkeypatch, caplog):
    stock_tcp = backends["tcp"]
    with monkeypatch.context() as patch:
        patch.setattr(*holder_and_name(OWN_OBJECT[broken]), changed)
        stock_process_preloads = distributed.preloading.process_preloads
        enable()
        assert (backends["tcp"] is stock_tcp) == (broken == "transport")
        assert (distributed.preloading.process_preloads is stock_process_preloads) == (
            broken == "preloads"
        )
    hooks = stats()["hooks"]
    reason = hooks.pop(broken).removeprefix("off: ")
    followers = FOLLOWS.get(broken, ())
    assert all(hooks.pop(follower).startswith("off: ") for follower in followers)
    assert set(hooks.values()) == {in_force.ON}
    warnings = spillway_warnings(caplog)
    assert len(warnings) == 1 + len(followers)
    (warning,) = (text for text in warnings if f"hook {broken} does" in text)
    assert f"hook {broken} " in warning
    assert warning.endswith(reason)
    assert reason.startswith(OWN_OBJECT[broken])
    assert "that_we_do_not" in reason or "does not take" in reason


@pytest.mark.parametrize(
    "version", ["2024.12.1", "2026.8.1", "2031.1.0+4.g12ab", "mine"]
)
def test_unknown_version_that_matches_is_on_with_a_notice(version, monkeypatch, caplog):
    monkeypatch.setattr(distributed, "__version__", version)
    enable()
    assert set(stats()["hooks"].values()) == {in_force.ON}
    (notice,) = spillway_warnings(caplog)
    assert version in notice
    assert "\n" not in notice


def test_known_version_is_on_without_a_notice(caplog):
    assert manifest.OLDEST <= Version(distributed.__version__) <= manifest.NEWEST
    enable()
    assert spillway_warnings(caplog) == []
