"""What each hook relies on in Dask.

Every object here is private to Dask or may change with any release (one every two
weeks). Before a hook is installed its part of this list is held against the installed
Dask; a hook whose part does not match stays out, alone, and Dask is stock there.
"""

import inspect
import pkgutil
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

OLDEST, NEWEST = Version("2025.1.0"), Version("2026.8.0")
"""The releases of distributed that the whole of the tests passes on (`make compat`).
2025.1.0 is the first whose P2P shuffle has the entry points of today's."""


@dataclass(frozen=True)
class Relies:
    """One object of Dask, and what must be true of it."""

    path: str
    """The object, as pkgutil.resolve_name reads it: "module:name"."""
    signatures: tuple[str, ...] = ()
    """What `signature()` may say of it; empty for "it is there"."""
    takes: tuple[str, ...] = ()
    """Parameters that it must have, where the others do not matter to us."""

    def mismatch(self) -> str | None:
        """What differs in the installed Dask, None when nothing does."""
        try:
            found = pkgutil.resolve_name(self.path)
        except (ImportError, AttributeError) as error:
            return f"{self.path} is missing ({error})"
        try:
            if self.signatures and signature(found) not in self.signatures:
                known = " or ".join(self.signatures)
                return f"{self.path} is {signature(found)}, not {known}"
            if self.takes and (missing := set(self.takes) - _parameters(found)):
                return f"{self.path} does not take {', '.join(sorted(missing))}"
        except (TypeError, ValueError) as error:
            return f"{self.path} has no signature to compare ({error})"
        return None


def _is(path: str, *signatures: str) -> Relies:
    return Relies(path, signatures=signatures)


def _parameters(found: Any) -> set[str]:
    return set(inspect.signature(found).parameters)


def signature(found: Any) -> str:
    """The signature of a function or class as text: names, kinds and defaults, and what
    a subclass has to fill in. Without annotations: they are not what we call."""
    if not callable(found):
        return type(found).__name__
    plain = inspect.signature(found)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in plain.parameters.values()
    ]
    text = str(
        plain.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    )
    if inspect.iscoroutinefunction(found):
        text = f"async {text}"
    abstract = getattr(found, "__abstractmethods__", None)
    if abstract:
        text += f" abstract: {' '.join(sorted(abstract))}"
    return text


_PROCESS_PRELOADS = "(dask_server, preload, preload_argv, *, file_dir=None)"

# backends.py, comm.py, connector.py, listener.py: what connect() and listen() call.
_COMM = (
    _is("distributed.comm.registry:backends", "dict"),
    _is("distributed.comm.registry:get_backend", "(scheme)"),
    _is(
        "distributed.comm.core:Comm",
        "(deserialize=True) abstract: abort close closed local_address peer_address "
        "read write",
    ),
    _is("distributed.comm.core:Comm.read", "async (self, deserializers=None)"),
    _is(
        "distributed.comm.core:Comm.write",
        "async (self, msg, serializers=None, on_error=None)",
    ),
    _is("distributed.comm.core:Comm.handshake_info", "(self)"),
    _is("distributed.comm.core:Comm.handshake_configuration", "(local, remote)"),
    _is(
        "distributed.comm.core:BaseListener",
        "() abstract: contact_address listen_address start stop",
    ),
    _is(
        "distributed.comm.core:BaseListener.on_connection",
        "async (self, comm, handshake_overrides=None)",
    ),
    _is("distributed.comm.core:BaseListener.abort_handshaking_comms", "(self)"),
    _is("distributed.comm.core:Connector", "() abstract: connect"),
    _is(
        "distributed.comm.core:Connector.connect",
        "async (self, address, deserialize=True)",
    ),
    _is(
        "distributed.comm.core:connect",
        "async (addr, timeout=None, deserialize=True, handshake_overrides=None, "
        "**connection_args)",
    ),
    _is(
        "distributed.comm.core:listen",
        "(addr, handle_comm, deserialize=True, **kwargs)",
    ),
    _is("distributed.comm.core:CommClosedError"),
    _is("distributed.comm.tcp:BaseTCPBackend", "()"),
    _is("distributed.comm.tcp:BaseTCPBackend.get_connector", "(self)"),
    _is(
        "distributed.comm.tcp:BaseTCPBackend.get_listener",
        "(self, loc, handle_comm, deserialize, **connection_args)",
    ),
    _is("distributed.comm.tcp:BaseTCPBackend.get_address_host", "(self, loc)"),
    _is("distributed.comm.tcp:BaseTCPBackend.get_address_host_port", "(self, loc)"),
    _is("distributed.comm.tcp:BaseTCPBackend.resolve_address", "(self, loc)"),
    _is("distributed.comm.tcp:BaseTCPBackend.get_local_address_for", "(self, loc)"),
    _is("distributed.comm.tcp:RequireEncryptionMixin", "()"),
    _is(
        "distributed.comm.tcp:RequireEncryptionMixin._check_encryption",
        "(self, address, connection_args)",
    ),
    _is("distributed.comm.utils:ensure_concrete_host", "(host, default_host=None)"),
    _is("distributed.comm.addressing:parse_host_port", "(address, default_port=None)"),
    _is("distributed.comm.addressing:unparse_host_port", "(host, port=None)"),
    # pool_trimmer.py
    _is("distributed.system:MEMORY_LIMIT", "int"),
)

# encode.py and decode.py: Dask's message format, by Dask's own functions.
_MESSAGES = (
    _is(
        "distributed.comm.utils:to_frames",
        "async (msg, allow_offload=True, **kwargs)",
    ),
    _is(
        "distributed.comm.utils:from_frames",
        "async (frames, deserialize=True, deserializers=None, allow_offload=True)",
    ),
    _is("distributed.comm.utils:OFFLOAD_THRESHOLD", "int", "bool"),
    _is(
        "distributed.protocol.core:dumps",
        "(msg, serializers=None, on_error='message', context=None, "
        "frame_split_size=None)",
    ),
    _is(
        "distributed.protocol.core:loads",
        "(frames, deserialize=True, deserializers=None)",
    ),
    _is("distributed.protocol.serialize:Serialize", "(data)"),
    _is("distributed.protocol.serialize:Serialized", "(header, frames)"),
    _is("distributed.protocol.serialize:ToPickle", "(data)"),
    _is("distributed.protocol.serialize:Pickled", "(header, frames)"),
    _is("distributed.protocol.serialize:msgpack_encode_default", "(obj)"),
    _is("distributed.protocol.serialize:msgpack_decode_default", "(obj)"),
    _is(
        "distributed.protocol.serialize:merge_and_deserialize",
        "(header, frames, deserializers=None)",
    ),
    _is("distributed.protocol.pickle:loads", "(x, *, buffers=())"),
    _is("distributed.protocol.compression:decompress", "(header, frames)"),
    _is("distributed.protocol.utils:msgpack_opts", "dict"),
    Relies("distributed.sizeof:safe_sizeof", takes=("obj", "default_size")),
    Relies("distributed.utils:nbytes", takes=("frame",)),
    Relies("distributed.utils:offload", takes=("func", "args", "kwargs")),
)

# lost_values.py. Handlers of a scheduler are "who_has" and "broadcast".
_LOST_VALUES = (
    Relies("distributed.scheduler:Scheduler.get_who_has", takes=("keys",)),
    Relies(
        "distributed.scheduler:Scheduler.broadcast",
        takes=("msg", "workers", "on_error"),
    ),
    _is("distributed.worker_state_machine:FreeKeysEvent", "(stimulus_id, keys)"),
    _is(
        "distributed.worker_state_machine:WorkerState._handle_free_keys",
        "(self, ev)",
    ),
)

# store_get_data.py.
_STORE_GET_DATA = (
    # A worker has attributes handlers, by operation, transfer_outgoing_count, _bytes,
    # both with _total, and _log, transfer_outgoing_count_limit, scheduler_delay,
    # status, and state with tasks (which have nbytes) and actors.
    _is(
        "distributed.worker:Worker.get_data",
        "async (self, comm, keys, who=None, serializers=None)",
    ),
    Relies("distributed.core:context_meter_to_server_digest", takes=("digest_tag",)),
    Relies("distributed.core:Status"),
    Relies("distributed.metrics:ContextMeter.meter", takes=("label", "func")),
    Relies(
        "distributed.metrics:ContextMeter.digest_metric",
        takes=("label", "value", "unit"),
    ),
    Relies("distributed.comm.addressing:get_address_host", takes=("addr",)),
    Relies("distributed.comm.inproc:InProc"),
    Relies("distributed.actor:Actor", takes=("cls", "address", "key", "worker")),
    _is("distributed.protocol.compression:compressions", "dict"),
)

HOOKS: dict[str, tuple[Relies, ...]] = {
    "transport": _COMM + _MESSAGES,
    # outgoing_message.py, encode_cost.py, decode_cost.py, offload_threads.py: what
    # encoding is made of, and in place of the one thread of Dask's.
    "offload": (
        _is("distributed.comm.utils:OFFLOAD_THRESHOLD", "int", "bool"),
        _is("distributed.config:defaults", "dict"),
        _is(
            "distributed.protocol.core:dumps",
            "(msg, serializers=None, on_error='message', context=None, "
            "frame_split_size=None)",
        ),
        _is(
            "distributed.protocol.serialize:serialize_and_split",
            "(x, serializers=None, on_error='message', context=None, size=None)",
        ),
        _is(
            "distributed.protocol.pickle:dumps",
            "(x, *, buffer_callback=None, protocol=5)",
        ),
        _is("distributed.protocol.compression:compressions", "dict"),
        _is(
            "distributed.protocol.compression:maybe_compress",
            "(payload, *, min_size=10000, sample_size=10000, nsamples=5, "
            "min_ratio=0.7, compression='auto')",
        ),
        Relies("distributed.utils:ensure_memoryview", takes=("obj",)),
        Relies("distributed.metrics:ContextMeter.meter", takes=("label",)),
    ),
    # The two functions, where they are called, and how.
    "merge": (
        _is(
            "distributed.protocol.serialize:merge_and_deserialize",
            "(header, frames, deserializers=None)",
        ),
        _is("distributed.protocol.serialize:merge_memoryviews", "(mvs)"),
        _is("distributed.protocol.serialize:host_array_from_buffers", "(buffers)"),
    ),
    # value_encoder.py and value_reducers.py, then undecoded_dependencies.py.
    "values": (
        *_LOST_VALUES,
        Relies("dask.utils:Dispatch.dispatch", takes=("cls",)),
        _is("distributed.protocol.serialize:dask_dumps", "(x, context=None)"),
        _is(
            "distributed.protocol.serialize:serialize",
            "(x, serializers=None, on_error='message', context=None, "
            "iterate_collection=None)",
        ),
        _is(
            "distributed.protocol.serialize:deserialize",
            "(header, frames, deserializers=None)",
        ),
        _is(
            "distributed.protocol.serialize:serialize_and_split",
            "(x, serializers=None, on_error='message', context=None, size=None)",
        ),
        Relies("distributed.protocol.serialize:_is_msgpack_serializable", takes=("v",)),
        _is("distributed.protocol.serialize:dask_serialize._lookup", "dict"),
        _is("distributed.protocol.serialize:dask_serialize._lazy", "dict"),
        _is("distributed.protocol.serialize:pickle_loads", "(header, frames)"),
        Relies("distributed.protocol.utils:frame_split_size", takes=("frame", "n")),
        _is(
            "distributed.worker:Worker.gather_dep",
            "async (self, worker, to_gather, total_nbytes, *, stimulus_id)",
        ),
        _is(
            "distributed.utils_comm:gather_from_workers",
            "async (who_has, rpc, *, serializers=None, who=None)",
        ),
        Relies("distributed.worker:gather_from_workers", takes=("who_has",)),
        Relies("distributed.client:gather_from_workers", takes=("who_has",)),
        _is(
            "distributed.client:Client._gather_remote",
            "async (self, direct, local_worker)",
        ),
        # A client has an attribute futures, of key: FutureState.
        _is("distributed.client:FutureState.set_error", "(self, exception, traceback)"),
        _is(
            "distributed.worker_state_machine:GatherDepSuccessEvent",
            "(stimulus_id, worker, total_nbytes, data)",
        ),
        Relies(
            "distributed.worker_state_machine:GatherDepFailureEvent.from_exception",
            takes=("err", "worker", "total_nbytes", "stimulus_id"),
        ),
        Relies("distributed.worker_state_machine:TaskErredMsg", takes=("key",)),
        _is(
            "distributed.worker_state_machine:WorkerState._handle_gather_dep_success",
            "(self, ev)",
        ),
        _is(
            "distributed.worker_state_machine:WorkerState._transitions",
            "(self, recommendations, *, stimulus_id)",
        ),
        # Its tasks have attributes state, dependents and run_id; it has one of events.
        Relies("distributed.worker_state_machine:WorkerState._handle_event"),
    ),
    "scheduler_offload": (
        # The scheduler's attribute connection_args is one dict, and is given to both.
        Relies("distributed.core:rpc", takes=("connection_args",)),
        Relies("distributed.core:ConnectionPool", takes=("connection_args",)),
        _is("distributed.scheduler:Scheduler.restart_workers"),
    ),
    "config": (
        Relies("dask.config:get", takes=("key",)),
        Relies("dask.config:set", takes=("arg",)),
    ),
    "malloc": (
        Relies("dask.config:get", takes=("key",)),
        Relies("dask.config:set", takes=("arg",)),
        _is("distributed.config:defaults", "dict"),
        _is("distributed.nanny:_get_env_variables", "(config_key)"),
    ),
    "nanny_environ": (
        # A nanny has attributes of these names, from which it makes its process.
        Relies("distributed.nanny:WorkerProcess", takes=("pre_spawn_env", "env")),
        _is("distributed.nanny:Nanny.instantiate", "async (self)"),
    ),
    "idle_memory": (
        _is("distributed.system_monitor:SystemMonitor.get_process_memory", "(self)"),
        _is("distributed.worker_state_machine:WorkerState.all_running_tasks"),
        # It has an attribute transition_counter, which counts towards this limit.
        Relies(
            "distributed.worker_state_machine:WorkerState",
            takes=("transition_counter_max",),
        ),
        # It acts on what that method says, at the shares that are its attributes.
        _is(
            "distributed.worker_memory:WorkerMemoryManager._maybe_spill",
            "async (self, worker, memory)",
        ),
    ),
    # The four that call process_preloads must find it in its module to meet ours.
    "preloads": (
        _is("distributed.preloading:process_preloads", _PROCESS_PRELOADS),
        _is("distributed.scheduler:preloading.process_preloads", _PROCESS_PRELOADS),
        _is("distributed.nanny:preloading.process_preloads", _PROCESS_PRELOADS),
        _is("distributed.worker:preloading.process_preloads", _PROCESS_PRELOADS),
        _is("distributed.client:preloading.process_preloads", _PROCESS_PRELOADS),
        Relies("distributed.nanny:Nanny", takes=("preload", "preload_argv")),
        _is("distributed.preloading:PreloadManager", "(preloads)"),
    ),
    "worker_info": (
        Relies("distributed.worker:Worker", takes=("startup_information",)),
        _is("distributed.worker:Worker.get_startup_information", "async (self)"),
        _is("distributed.scheduler:WorkerState.identity", "(self)"),
    ),
    "memory_limit": (
        Relies("distributed.worker:Worker", takes=("memory_limit",)),
        Relies(
            "distributed.worker_memory:WorkerMemoryManager", takes=("memory_limit",)
        ),
        _is("distributed.system_monitor:SystemMonitor.get_process_memory", "(self)"),
    ),
    "worker_executor": (
        # It has an attribute executors, a mapping with a "default".
        Relies("distributed.worker:Worker", takes=("executor",)),
        _is("distributed.utils:_offload_executor", "ThreadPoolExecutor"),
    ),
    # hook_store.py, worker_store.py and store_execute.py. A worker has its data as
    # memory_manager.data and state.data, and calls what its attribute execute is.
    "store": (
        _is(
            "distributed.spill:SpillBuffer",
            "(spill_directory, target, max_spill=False)",
        ),
        _is("distributed.spill:SpilledSize", "(memory, disk)"),
        Relies("distributed.spill:PickleError"),
        Relies("distributed.sizeof:safe_sizeof", takes=("obj",)),
        Relies(
            "distributed.worker_memory:WorkerMemoryManager",
            takes=("worker", "memory_limit", "data"),
        ),
        # It calls evict() of what has that and fast, until it answers -1.
        _is(
            "distributed.worker_memory:WorkerMemoryManager._spill",
            "async (self, worker, memory)",
        ),
        _is(
            "distributed.worker_memory:WorkerMemoryManager._maybe_pause_or_unpause",
            "(self, worker, memory)",
        ),
        _is("distributed.worker_memory:ThrottledGC.collect", "(self)"),
        _is("distributed.system_monitor:SystemMonitor.get_process_memory", "(self)"),
        _is("distributed.worker:Worker.execute", "async (self, key, *, stimulus_id)"),
        Relies("distributed.worker:Worker", takes=("metrics",)),
        Relies("distributed.worker:Worker.digest_metric", takes=("name", "value")),
        Relies(
            "distributed.worker_state_machine:BaseWorker._start_async_instruction",
            takes=("func",),
        ),
        Relies("distributed.worker_state_machine:WorkerState", takes=("data",)),
        _is("distributed.collections:HeapSet.peekn", "(self, n)"),
        Relies(
            "distributed.worker_state_machine:ExecuteSuccessEvent",
            takes=("key", "value", "nbytes"),
        ),
        Relies(
            "distributed.worker_state_machine:ExecuteFailureEvent.from_exception",
            takes=("err_or_msg", "key", "run_id", "stimulus_id"),
        ),
        _is("distributed.worker_state_machine:RescheduleEvent", "(stimulus_id, key)"),
        Relies("distributed.worker_state_machine:ReleaseWorkerDataMsg", takes=("key",)),
        Relies(
            "distributed.scheduler:Scheduler.release_worker_data",
            takes=("key", "worker"),
        ),
        _is(
            "distributed.protocol.serialize:merge_and_deserialize",
            "(header, frames, deserializers=None)",
        ),
        _is("distributed.protocol.compression:get_compression_settings", "(key)"),
        Relies("distributed.metrics:ContextMeter.meter", takes=("label",)),
        Relies("distributed.metrics:ContextMeter.add_callback", takes=("callback",)),
        _is("distributed.metrics:ContextMeter.clear_callbacks", "(self)"),
        _is(
            "distributed.metrics:ContextMeter.digest_metric",
            "(self, label, value, unit)",
        ),
        # packed.py: handlers["gather"], and handlers["update_data"], by whose name a
        # comm knows what is scattered.
        _is("distributed.worker:Worker.gather", "async (self, who_has)"),
        _is(
            "distributed.worker:Worker.gather_dep",
            "async (self, worker, to_gather, total_nbytes, *, stimulus_id)",
        ),
        _is(
            "distributed.worker:Worker.update_data",
            "(self, data, stimulus_id=None)",
        ),
        *_LOST_VALUES,
        *_STORE_GET_DATA,
    ),
    # A scheduler has its stream_handlers, by the name of the message.
    "lost_data": (
        _is(
            "distributed.scheduler:Scheduler.release_worker_data",
            "(self, key, worker, stimulus_id)",
        ),
        _is("distributed.scheduler:SchedulerState.remove_replica", "(self, ts, ws)"),
        _is(
            "distributed.scheduler:Scheduler.transitions",
            "(self, recommendations, stimulus_id)",
        ),
        _is(
            "distributed.scheduler:Scheduler.stimulus_queue_slots_maybe_opened",
            "(self, *, stimulus_id)",
        ),
    ),
    "relay": (
        # A client calls its attribute scheduler, which makes what it is asked for.
        _is("distributed.core:PooledRPCCall.__getattr__", "(self, key)"),
        _is(
            "distributed.client:Client._gather_remote",
            "async (self, direct, local_worker)",
        ),
        _is(
            "distributed.scheduler:Scheduler.gather",
            "async (self, keys, serializers=None)",
        ),
        _is(
            "distributed.scheduler:Scheduler.scatter",
            "async (self, data, workers, client, broadcast=False, timeout=2)",
        ),
        _is(
            "distributed.scheduler:Scheduler.get_nbytes",
            "(self, keys=None, summary=True)",
        ),
    ),
    # hook_shuffle.py and shuffle_run.py. A plugin has attributes worker and _executor;
    # its manager takes what _fetch answers for what the scheduler says.
    "shuffle": (
        _is(
            "distributed.shuffle._worker_plugin:_ShuffleRunManager._fetch",
            "async (self, shuffle_id, key=None)",
        ),
        _is(
            "distributed.shuffle._worker_plugin:_ShuffleRunManager._refresh",
            "async (self, shuffle_id, key=None)",
        ),
        _is(
            "distributed.shuffle._worker_plugin:ShuffleWorkerPlugin.shuffle_receive",
            "async (self, shuffle_id, run_id, data)",
        ),
        _is(
            "distributed.shuffle._worker_plugin:ShuffleWorkerPlugin.add_partition",
            "(self, data, partition_id, id, **kwargs)",
        ),
        _is(
            "distributed.shuffle._worker_plugin:"
            "ShuffleWorkerPlugin.get_output_partition",
            "(self, shuffle_id, run_id, partition_id, meta=None)",
        ),
        _is(
            "distributed.shuffle._shuffle:DataFrameShuffleSpec",
            "(id, disk, npartitions, column, meta, parts_out, drop_column)",
        ),
        _is(
            "distributed.shuffle._shuffle:DataFrameShuffleSpec.create_run_on_worker",
            "(self, run_id, span_id, worker_for, plugin)",
        ),
        Relies("distributed.shuffle._core:ShuffleRunSpec", takes=("worker_for",)),
        Relies("distributed.shuffle._exceptions:ShuffleClosedError"),
        Relies("distributed.shuffle._exceptions:P2POutOfDiskError"),
        Relies(
            "distributed.utils_comm:retry",
            takes=("coro", "count", "delay_min", "delay_max"),
        ),
        Relies("distributed.utils:run_in_executor_with_context", takes=("func",)),
        Relies("distributed.metrics:ContextMeter.add_callback", takes=("callback",)),
        Relies("distributed.worker:Worker.digest_metric", takes=("name", "value")),
        _is(
            "distributed.scheduler:Scheduler.identity",
            "(self, n_workers=-1)",
            "(self)",  # before 2025.4
        ),
    ),
    # hook_shuffle_buffer.py. Expressions are pickled and copied by all their operands,
    # also by those behind _parameters.
    "shuffle_buffer": (
        _is("dask.dataframe.dask_expr._collection:get_annotations", "()"),
        _is(
            "dask.dataframe.dask_expr._collection:get_specified_shuffle",
            "(shuffle_method)",
        ),
        _is(
            "dask.dataframe.dask_expr._groupby:get_specified_shuffle",
            "(shuffle_method)",
        ),
        _is("dask.dataframe.dask_expr._groupby:new_collection", "(expr)"),
        _is(
            "dask.dataframe.dask_expr._collection:_get_shuffle_preferring_order",
            "(shuffle)",
        ),
        # It has parameters method and frame, and Merge shuffle_method, left and right.
        _is("dask.dataframe.dask_expr._shuffle:RearrangeByColumn._lower", "(self)"),
        _is("dask.dataframe.dask_expr._shuffle:Shuffle._lower", "(self)"),
        _is("dask.dataframe.dask_expr._shuffle:P2PShuffle._layer", "(self)"),
        _is("dask.dataframe.dask_expr._shuffle:SimpleShuffle._parameters", "list"),
        _is("dask.dataframe.dask_expr._merge:Merge._lower", "(self)"),
        _is("dask.dataframe.dask_expr._merge:Merge._parameters", "list"),
        _is("dask.dataframe.dask_expr._merge:HashJoinP2P._layer", "(self)"),
        _is("dask.dataframe.dask_expr._merge:HashJoinP2P._parameters", "list"),
        Relies("dask.config:get", takes=("key", "default")),
        _is("distributed.shuffle._core:P2PBarrierTask.spec", "member_descriptor"),
        Relies(
            "distributed.shuffle._shuffle:DataFrameShuffleSpec",
            takes=("id", "disk", "meta"),
        ),
    ),
    "client_check": (
        _is(
            "distributed.scheduler:Scheduler.identity",
            "(self, n_workers=-1)",
            "(self)",  # before 2025.4
        ),
        _is("distributed.client:Client.scheduler_info"),
    ),
}
"""Of store_get_data.py."""


def mismatch(hook: str) -> str | None:
    """The first thing a hook relies on that the installed Dask does not have."""
    differences = (relies.mismatch() for relies in HOOKS[hook])
    return next((difference for difference in differences if difference), None)


def unknown_version() -> str | None:
    """The installed version of distributed when it is none that we know, else None."""
    import distributed

    try:
        known = OLDEST <= Version(distributed.__version__) <= NEWEST
    except InvalidVersion:
        known = False
    return None if known else distributed.__version__
