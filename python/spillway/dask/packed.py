"""Values as they came, for those who keep them so until a task asks.

A worker with a store asks for them where it receives data: whatever it reads there is
not decoded, and its store takes what stands for a value as it is. Where it asks itself,
its store also decides where the frames go as they come, to memory or to its disk.
Anybody else gets values, as ever.
"""

import contextlib
import contextvars
import functools
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from dask.sizeof import sizeof

from spillway.dask import shared_files

_receiver: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "spillway_packed_receiver", default=None
)
"""The worker's store for which a task asks for data, whether that is to come to memory
whatever room there is, and what has come."""

_stores: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""By what workers of this process listen that have a store, and the stores. Not by an
address: what a worker tells is not always where its peers come to."""

_LONGEST_NAME = 200

SCATTERED = "update_data"
"""What brings data to a worker unasked."""

_SCATTERED = SCATTERED.encode()


class Packed:
    """What stands for a value: its header, as bytes, and its frames, in memory or, as
    `FileRange`s, on the receiver's disk, and how many bytes the value takes. Each type
    of values has a class of its own, with the name of the type, since Dask shows those.
    """

    __slots__ = ("__weakref__", "frames", "nbytes")

    def __init__(self, frames: list[Any], nbytes: int) -> None:
        self.frames, self.nbytes = frames, nbytes


@functools.lru_cache(maxsize=1000)
def class_for(type_name: str) -> type[Packed]:
    """The class of what stands for values of a type, by its name as a header has it."""
    if not _is_name(type_name):
        return Packed
    module, _, name = type_name.rpartition(".")
    body = {"__slots__": (), "__module__": module or "builtins", "__qualname__": name}
    return type(name, (Packed,), body)


def _is_name(text: Any) -> bool:
    return (
        isinstance(text, str)
        and len(text) <= _LONGEST_NAME
        and all(part.isidentifier() for part in text.split("."))
    )


@sizeof.register(Packed)
def _sizeof(value: Packed) -> int:
    return value.nbytes


@contextlib.contextmanager
def wanted_by(
    store: Any, in_memory: bool = False
) -> Iterator["weakref.WeakSet[Packed]"]:
    """Within it, replies with data that this task reads, and tasks that it starts, have
    `Packed` in them for values, which are for a worker's store: in memory, or where the
    store has room for them. Gives those that have come, for `let_go`."""
    came: weakref.WeakSet[Packed] = weakref.WeakSet()
    token = _receiver.set((store, in_memory, came))
    try:
        yield came
    finally:
        _receiver.reset(token)


def note(message: Any) -> None:
    """Remember what has come by a message, which was read for who wants it so."""
    data = message.get("data") if isinstance(message, dict) else None
    if _receiver.get() is not None and isinstance(data, dict):
        came = _receiver.get()[2]
        came.update(value for value in data.values() if isinstance(value, Packed))


def let_go(came: Iterable[Packed], kept: Iterable[Any] = ()) -> None:
    """Let go of what is in values that came, but for those that are kept. Dask's log
    has what failed, with all that was at hand where it did: of a connection that was
    lost before it was answered, the files of the peer's, and their space."""
    wanted = {id(value) for value in kept}
    for value in list(came):
        if id(value) not in wanted:
            value.frames = []


def around(receive: Any, store: Any) -> Any:
    """An async function that asks others for data, to be given `Packed` for a store."""

    @functools.wraps(receive)
    async def ours(*args: Any, **kwargs: Any) -> Any:
        # To Dask who could not give a file is gone, and what he has is missing. By new
        # connections he sends it; and what has come is not asked for again.
        refusals = -1
        with wanted_by(store) as came:
            try:
                while refusals != shared_files.refusals():
                    refusals = shared_files.refusals()
                    answer = await receive(*args, **kwargs)
            finally:
                let_go(came)
        return answer

    return ours


def receiver() -> Any:
    """The library's store that decides where values go which this task is about to
    read; None where nobody does."""
    store, in_memory, _ = _receiver.get() or (None, True, None)
    return None if in_memory else store.native


def listen_by(listener: Any, store: Any) -> None:
    """From now on a worker takes `Packed` for what is scattered to it by a listener,
    where its store has room for that, until `leave`."""
    _stores[listener] = store


def leave(store: Any) -> None:
    """End what `listen_by` began."""
    for listener, taking in list(_stores.items()):
        if taking is store:
            del _stores[listener]


def scattered_to(listener: Any) -> Any:
    """The library's store that decides where what is scattered goes to who reads a
    message that came by a listener; None where nobody does."""
    store = _stores.get(listener) if listener is not None else None
    return store.native if store is not None else None


def is_anybody() -> bool:
    """Whether there are such workers in this process."""
    return bool(_stores)


def is_wanted(head: bytes | memoryview, listener: Any) -> bool:
    """Whether who reads a message, of which head is the first frame, can tell them from
    values. `listener`: the one by which the peer came, None where it did not."""
    if _receiver.get() is not None:
        return True
    return (
        listener is not None
        and listener in _stores
        and type(head) is bytes
        and _SCATTERED in head
    )


def are_data(kept: list[Packed], message: Any) -> bool:
    """Whether a message is one with data, and these are values in it."""
    if not isinstance(message, dict):
        return False
    if message.get("status") != "OK" and message.get("op") != SCATTERED:
        return False
    data = message.get("data")
    if not isinstance(data, dict):
        return False
    values = {id(value) for value in data.values()}
    return all(id(one) in values for one in kept)
