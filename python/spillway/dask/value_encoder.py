"""From values to headers and frames.

Dask takes lists, tuples, sets and dicts apart and serialises each item by itself, by
which what items have in common is lost: that two of them are one object, or contain
each other. Here a value is pickled whole, in one pass, its buffers beside the pickle.
Only what Dask's own header says all of goes by that: bytes, and arrays that lie in
memory as they are sent. What only Dask's registry can serialise goes by that, inside
the pickle if it is inside a value. A stock peer reads all of it.
"""

import copyreg
import logging
import pickle
import sys
import weakref
from collections.abc import Sequence
from typing import Any, Literal

import cloudpickle
from dask.utils import typename
from distributed.protocol.serialize import (
    Serialize,
    Serialized,
    dask_dumps,
    dask_serialize,
    deserialize,
)
from distributed.protocol.serialize import serialize as serialize_by_dask

from spillway import value_counts
from spillway.dask import foreign_errors
from spillway.dask.decode import pickles_inside
from spillway.dask.value_reducers import (
    LEAST_APART_BYTES,
    OF_PYTHON,
    PROTOCOL,
    Reducer,
    buffer_bytes,
    by_default,
    is_in_place,
    of_numpy,
)

logger = logging.getLogger("spillway")

Frame = bytes | bytearray | memoryview
Encoded = tuple[dict[str, Any], list[Frame]]

LEAST_PART_BYTES = 1 << 17
"""Bytes inside a pickle that are as long are sent from where they are. What else pickle
hands out is shorter: pieces of 64 KiB, and the end of what is in them."""

_DEFAULT = ("dask", "pickle")
"""What Dask takes where no serialisers are named."""

_PROTOCOL_SINCE = (3, 8)
"""The first Python with our protocol of pickles."""

_IN_MEMORY = frozenset({bytes, bytearray})

_PICKLE_WELL = (
    "distributed.protocol.numpy",
    "distributed.protocol.arrow",
    "distributed.protocol.sparse",
)
"""Where Dask has its own serialisers for what is better pickled: that of sparse arrays
leaves out what their items are that are not stored, so that these become zeros."""


class _TakenApart(Exception):
    """There is a Serialize inside, which only Dask's way of taking values apart meets
    as such."""


def serialize(
    value: Any,
    serializers: Sequence[str] | None = None,
    on_error: Literal["message", "raise"] = "message",
    context: dict[str, Any] | None = None,
) -> Encoded:
    """The header and the frames of a value, as they are sent.

    Parameters
    ----------
    value
        Anything; of a Serialize what is in it.
    serializers, on_error, context
        As `spillway.dask.serialize` takes them.
    """
    header, frames = encode(value, serializers, on_error, context)
    return header, [b"".join(one) if type(one) is list else one for one in frames]


def encode(
    value: Any,
    serializers: Sequence[str] | None = None,
    on_error: Literal["message", "raise"] = "message",
    context: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], list[Frame | list[Frame]]]:
    """As `serialize`, but a frame may be a list of its parts, which are sent one after
    another, so that long bytes inside a pickle are not copied into it."""
    # By type(), not isinstance(): what an object says of its class is any code.
    while issubclass(type(value), Serialize):
        value = value.data
    if issubclass(type(value), Serialized):
        return value.header, value.frames
    names = _DEFAULT if serializers is None else tuple(serializers)
    try:
        return _encoded(value, names, context)
    except BaseException as error:  # one of a value's code, such as SystemExit
        if foreign_errors.is_interrupt(error):
            raise
        value_counts.add("failed")
        return _failed(value, error, on_error)


def _encoded(value: Any, names: tuple[str, ...], context: dict | None) -> Encoded:
    if not _is_pickled_by_us(names, context):
        return _by_dask(value, names, context)
    type_ = type(value)
    place = names.index("pickle")
    with_registry = "dask" in names[:place]
    if with_registry:
        if registered(type_) is not None:
            try:
                return _by_registry(value, context)
            except NotImplementedError:
                pass  # as Dask has it: the next one is asked
        elif type_ in _IN_MEMORY or (_is_ndarray(type_) and is_in_place(value)):
            value_counts.add("in_place")
            return dask_dumps(value, context=context)
    try:
        return _pickled(value, with_registry)
    except _TakenApart:
        return _by_dask(value, names, context)
    except NotImplementedError:
        if place == len(names) - 1:
            raise
        return _by_dask(value, names[place + 1 :], context)


def _is_pickled_by_us(names: tuple[str, ...], context: dict | None) -> bool:
    """Whether what Dask's registry does not have, if that is asked first, is pickled,
    and the peer can read a pickle with buffers beside it."""
    if "pickle" not in names or not set(names[: names.index("pickle")]) <= {"dask"}:
        return False
    # Not the protocol that they agreed on: a scheduler always says 4, for workers with
    # Python 3.7, which no Dask that speaks to ours still runs on.
    python = ((context or {}).get("recipient") or {}).get("python")
    return not python or tuple(python) >= _PROTOCOL_SINCE


def _is_ndarray(type_: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type_ is numpy.ndarray


def _by_dask(value: Any, names: tuple[str, ...], context: dict | None) -> Encoded:
    header, frames = serialize_by_dask(
        Serialize(value), serializers=names, on_error="raise", context=context
    )
    if "pickle" not in names and pickles_inside(header):
        raise TypeError("it has to be pickled, which the serialisers leave out")
    value_counts.add("by_dask")
    return header, [_sendable(frame) for frame in frames]


def _by_registry(value: Any, context: dict | None) -> Encoded:
    header, frames = dask_dumps(value, context=context)
    value_counts.add("registered")
    return header, [_sendable(frame) for frame in frames]


def _sendable(frame: Any) -> Frame:
    """A frame of somebody else's serialiser as one that can be split and sent."""
    if isinstance(frame, bytes | bytearray):
        return frame
    view = memoryview(frame)
    if view.ndim == 1 and view.c_contiguous:
        return view
    return buffer_bytes(view) if view.contiguous else view.tobytes()


def registered(type_: type) -> Any:
    """Dask's serialiser for a type, unless it is one that Dask comes with for a type
    that is better pickled."""
    try:
        dumps = dask_serialize.dispatch(type_)
    except TypeError:
        return None
    module = getattr(dumps, "__module__", None)
    if module in _PICKLE_WELL:
        return None
    is_builtin = module == serialize_by_dask.__module__ and not hasattr(
        dumps, "__self__"
    )
    return None if is_builtin else dumps


class _Known:
    """Reducers of types that nobody has registered. Thread: any; of two that come at a
    time to something new both find it."""

    def __init__(self) -> None:
        self._registered = -1, -1
        self._reducers: weakref.WeakKeyDictionary[type, Reducer | None] = (
            weakref.WeakKeyDictionary()
        )

    def reducer(self, type_: type) -> Reducer | None:
        """That of a type, None if it has none."""
        count = len(dask_serialize._lookup), len(dask_serialize._lazy)
        if count != self._registered:
            self._registered = count
            self._reducers = weakref.WeakKeyDictionary()
        known = self._reducers
        try:
            return known[type_]
        except KeyError:
            pass
        if type_ in dask_serialize._lookup:  # could be registered anew
            return _found(type_)
        known[type_] = reducer = _found(type_)
        return reducer


_known = _Known()


def _found(type_: type) -> Reducer | None:
    if registered(type_) is not None:
        return _reduce_by_registry
    return _of_ours(type_)


def _of_ours(type_: type) -> Reducer | None:
    return OF_PYTHON.get(type_) or _OF_DASK.get(type_) or _of_library(type_)


class _Reducers(dict):
    """For each type that a pickler meets how its objects are reduced. Of one value:
    what is registered meanwhile counts from the next one on."""

    def __init__(self, fallbacks: Any, with_registry: bool) -> None:
        super().__init__()
        self._fallbacks = fallbacks
        self._find = _known.reducer if with_registry else _of_ours

    def __missing__(self, type_: type) -> Reducer:
        self[type_] = reducer = self._reducer(type_)
        return reducer

    def _reducer(self, type_: type) -> Reducer:
        reducer = self._find(type_)
        if isinstance(reducer, type):  # each pass has one of its own
            reducer = reducer()
        if reducer is None:
            reducer = self._fallbacks.get(type_)
        if reducer is None:
            if issubclass(type_, type):
                raise KeyError(type_)  # classes are pickled by name
            reducer = by_default
        return reducer


def _of_library(type_: type) -> Reducer | None:
    """The reducer for a type of a library, which may not be installed."""
    library = str(getattr(type_, "__module__", "")).partition(".")[0]
    if library == "numpy":
        return of_numpy().get(type_)
    if library == "pyarrow" or "pyarrow" in sys.modules:
        from spillway.dask import arrow_reducers

        return arrow_reducers.reducer_of(type_)
    return None


def _reduce_by_registry(value: Any) -> Any:
    try:
        header, frames = dask_dumps(value)
    except NotImplementedError:
        return by_default(value)
    return deserialize, (header, [_apart(frame) for frame in frames])


def _apart(frame: Any) -> Any:
    """A buffer to go beside the pickle; what is none is pickled as it is."""
    try:
        return pickle.PickleBuffer(_sendable(frame))
    except TypeError:
        return frame


def _take_apart(_: Any) -> Any:
    raise _TakenApart


_OF_DASK: dict[type, Reducer] = {Serialize: _take_apart, Serialized: _take_apart}


class _CloudPickler(cloudpickle.Pickler):
    def __init__(self, file: Any, reducers: Any, buffer_callback: Any) -> None:
        self.dispatch_table = reducers
        super().__init__(file, protocol=PROTOCOL, buffer_callback=buffer_callback)


class _Pass:
    """One pass over a value: the pickle, and the buffers beside it. It is the file that
    is pickled to: long bytes come to `write` as the objects that they are."""

    def __init__(self) -> None:
        self.frames: list[memoryview] = []
        self._parts: list[Frame] = []

    def write(self, part: Frame) -> None:
        """Take the next part of the pickle."""
        if type(part) is bytearray:  # which from now on must not change its size
            part = memoryview(part) if len(part) >= LEAST_PART_BYTES else bytes(part)
        self._parts.append(part)

    def packed(self) -> bytes | list[Frame]:
        """The pickle, or its parts if some are long enough to be sent as they are."""
        parts, short = [], []
        for part in self._parts:
            if len(part) < LEAST_PART_BYTES:
                short.append(part)
                continue
            parts += [b"".join(short), part] if short else [part]
            short = []
        if not parts:
            return b"".join(short)
        if short:
            parts.append(b"".join(short))
        return parts

    def _keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer goes inside the pickle."""
        raw = buffer.raw()
        if raw.nbytes < LEAST_APART_BYTES:
            return True
        self.frames.append(raw)
        return False

    def dump(self, value: Any, with_registry: bool) -> None:
        pickler = pickle.Pickler(self, PROTOCOL, buffer_callback=self._keep)
        pickler.dispatch_table = _Reducers(copyreg.dispatch_table, with_registry)
        pickler.dump(value)

    def cloud_dump(self, value: Any, with_registry: bool) -> None:
        reducers = _Reducers(cloudpickle.Pickler.dispatch_table, with_registry)
        _CloudPickler(self, reducers, self._keep).dump(value)


def _pickled(value: Any, with_registry: bool) -> Encoded:
    """By pickle, or by cloudpickle where Dask turns to that."""
    one = _Pass()
    try:
        one.dump(value, with_registry)
        packed = one.packed()
        is_cloud = _is_of_the_script(value, packed)
    except (RecursionError, _TakenApart):
        raise  # cloudpickle would meet the same
    except Exception as error:
        logger.debug(
            "cloudpickle has to take what pickle cannot: %s",
            foreign_errors.name_of(type(error)),
        )
        is_cloud = True
    if is_cloud:
        one = _Pass()
        one.cloud_dump(value, with_registry)
        packed = one.packed()
    value_counts.add("pickled")
    writeable = tuple(not frame.readonly for frame in one.frames)
    header = {"serializer": "pickle", "type": _name_of(type(value))}
    header["writeable"] = writeable
    return header, [packed, *one.frames]


def _name_of(type_: type) -> str:
    """For whoever keeps a value as it came, and is asked of what type it is. As Dask
    has it, in headers and elsewhere."""
    try:
        return typename(type_)
    except Exception:  # of the type's own class, which may be any code
        return "object"


def _is_of_the_script(value: Any, packed: bytes | list[Frame]) -> bool:
    """Whether a pickle may name something that other processes cannot import."""
    type_ = type(value)
    parts = packed if type(packed) is list else [packed]
    if any(b"__main__" in part for part in parts if not _is_data(part)):
        return sum(map(len, parts)) < 1000 or not _is_only_data(type_)
    by_value = cloudpickle.list_registry_pickle_by_value()
    if not by_value:
        return False
    owner = value if isinstance(value, type) or callable(value) else type_
    return getattr(owner, "__module__", None) in by_value


def _is_data(part: Frame) -> bool:
    """Whether a part of a pickle is somebody's bytes, and not pickle's own."""
    return type(part) is memoryview or len(part) > 2 * LEAST_PART_BYTES


def _is_only_data(type_: type) -> bool:
    if type_ is str or type_ is bytes:
        return True
    library = str(getattr(type_, "__module__", "")).partition(".")[0]
    return library in ("numpy", "pandas") and type_.__name__ in (
        "ndarray",
        "DataFrame",
        "Series",
    )


def _failed(value: Any, error: BaseException, on_error: str) -> Encoded:
    """As Dask has it for a value that no serialiser takes."""
    name = foreign_errors.name_of(type(value))
    message = f"Could not serialize object of type {name}"
    if isinstance(error, RecursionError):
        message += ": it is nested too deeply to be pickled"
    if on_error == "raise":
        raise TypeError(message, foreign_errors.text_of(value)) from error
    if on_error != "message":
        raise ValueError(f"{on_error=}; expected 'message' or 'raise'")
    line = foreign_errors.line_of(error)
    logger.warning("%s: %s", message, line)
    text = foreign_errors.trace_of(error) or line
    return {"serializer": "error"}, [message.encode(), text[:100000].encode()]
