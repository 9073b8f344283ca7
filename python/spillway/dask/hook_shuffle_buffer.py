"""Has the buffer that a user chooses for a shuffle go with the graph to its workers.

What makes collections asks functions of Dask's for the method of the shuffle, and gets
the buffer with it. Where an expression with that method becomes a P2P shuffle, the
buffer becomes one more operand, behind those that Dask names, so that it is in the name
and in every copy. Where the shuffle becomes tasks, its spec is marked.

Dask's scheduler makes the tasks, from the expression that it is sent, and need not have
Spillway. So a P2P shuffle with a buffer is pickled with its tasks, ready made.

Dask's DataFrames are not imported because of us: until they are, this hook waits.
"""

import functools
import logging
import pickle
import sys
from typing import Any

import cloudpickle

from spillway import in_force
from spillway.dask import after_import, manifest, shuffle_buffers, switches

logger = logging.getLogger("spillway")

NAME = "shuffle_buffer"
OFF_WITH = (switches.ALL, switches.SHUFFLE)

_COLLECTIONS = "dask.dataframe.dask_expr._collection"
"""Comes with every import of dask.dataframe."""

_replaced: list[tuple[Any, str, Any, Any]] = []
"""Where something of ours stands: the owner, the name, what was there, None when the
owner had that from a base, and ours."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can, or while nobody can know."""
    if _COLLECTIONS not in sys.modules:
        return None
    return manifest.mismatch(NAME) or _why_buffers_are_one()


def install() -> None:
    """Stand where a choice is made and where it is handed on, now or as soon as Dask's
    DataFrames are imported."""
    if _COLLECTIONS in sys.modules:
        _install()
    else:
        after_import.call(_COLLECTIONS, _install_late)


def remove() -> None:
    """Leave, except where somebody else now stands before us."""
    after_import.cancel(_COLLECTIONS)
    while _replaced:
        owner, name, before, ours = _replaced.pop()
        if vars(owner).get(name) is not ours:
            continue
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _why_buffers_are_one() -> str | None:
    from dask.tokenize import tokenize

    methods = [
        shuffle_buffers.MethodWithBuffer("p2p", buffer)
        for buffer in shuffle_buffers.BUFFERS
    ]
    if len({tokenize(method) for method in methods}) == len(methods):
        return None
    return "dask.tokenize:tokenize does not tell texts apart by their repr"


def _install_late() -> None:
    reason = check()
    if reason is None:
        try:
            _install()
            return
        except Exception as error:  # stock Dask goes on working, so the import does
            logger.debug("Spillway's hook %s failed", NAME, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
            remove()
    if NAME in in_force.hooks:  # or disable() comes at the same time
        in_force.hooks = {**in_force.hooks, NAME: reason}
    logger.warning(
        "Spillway's hook %s does not fit the installed Dask, which stays stock "
        "there: %s",
        NAME,
        reason,
    )


def _install() -> None:
    from dask.dataframe.dask_expr import _collection, _groupby, _merge, _shuffle

    _replace(_collection, "get_annotations", _around_get_annotations)
    _replace(_collection, "get_specified_shuffle", _around_choice_of_method)
    _replace(_groupby, "get_specified_shuffle", _around_choice_of_method)
    _replace(_collection, "_get_shuffle_preferring_order", _around_choice_of_method)
    _replace(_groupby, "new_collection", _around_new_collection)
    _replace(_shuffle.Shuffle, "_lower", _around_lower)
    _replace(_merge.Merge, "_lower", _around_lower_merge)
    for kind in (_shuffle.P2PShuffle, _merge.HashJoinP2P):
        _replace(kind, "_layer", _around_layer)
        _replace(kind, "__reduce__", _around_reduce)


def _replace(owner: Any, name: str, around: Any) -> None:
    ours = around(getattr(owner, name))
    _replaced.append((owner, name, vars(owner).get(name), ours))
    setattr(owner, name, ours)


def _around_get_annotations(get_annotations: Any) -> Any:
    """What Dask asks only to warn that it ignores annotations, which ours are not."""

    @functools.wraps(get_annotations)
    def without_ours() -> dict[str, Any]:
        annotations = dict(get_annotations())
        annotations.pop(shuffle_buffers.ANNOTATION, None)
        return annotations

    return without_ours


def _around_choice_of_method(choice: Any) -> Any:
    @functools.wraps(choice)
    def choice_with_buffer(method: str | None) -> str | None:
        return shuffle_buffers.with_buffer(choice(method))

    return choice_with_buffer


def _around_new_collection(new_collection: Any) -> Any:
    """The aggregations of a groupby take a method as the user gave it."""

    @functools.wraps(new_collection)
    def new_collection_with_buffer(expr: Any) -> Any:
        if "shuffle_method" in expr._parameters:
            method = shuffle_buffers.with_buffer(expr.shuffle_method)
            if method is not expr.shuffle_method:
                expr = _with_operand(expr, "shuffle_method", method)
        return new_collection(expr)

    return new_collection_with_buffer


def _around_lower(lower: Any) -> Any:
    @functools.wraps(lower)
    def _lower(self: Any) -> Any:
        from dask.dataframe.dask_expr._shuffle import P2PShuffle

        lowered = lower(self)
        if type(lowered) is not P2PShuffle:
            return lowered
        return _p2p_with_buffer(lowered, shuffle_buffers.buffer_of(self.method))

    return _lower


def _around_lower_merge(lower: Any) -> Any:
    @functools.wraps(lower)
    def _lower(self: Any) -> Any:
        from dask.dataframe.dask_expr._merge import HashJoinP2P

        method = self.shuffle_method
        buffer = shuffle_buffers.buffer_of(method)
        if buffer is not None:  # Dask asks whether there is a method at all
            self = _with_operand(
                self, "shuffle_method", shuffle_buffers.without_buffer(method)
            )
        lowered = lower(self)
        if type(lowered) is HashJoinP2P:
            return _p2p_with_buffer(lowered, buffer)
        return lowered if buffer is None else _sides_with(buffer, lowered, self)

    return _lower


def _sides_with(buffer: str, lowered: Any, merge: Any) -> Any:
    """A merge of what was shuffled for it, with this buffer."""
    from dask.dataframe.dask_expr._shuffle import RearrangeByColumn

    theirs = {merge.left._name, merge.right._name}
    operands = list(lowered.operands)
    for i, side in enumerate(operands[:2]):
        if type(side) is RearrangeByColumn and side._name not in theirs:
            method = shuffle_buffers.MethodWithBuffer(side.method or "", buffer)
            operands[i] = _with_operand(side, "method", method)
    return type(lowered)(*operands)


def _with_operand(expr: Any, name: str, value: Any) -> Any:
    operands = list(expr.operands)
    operands[expr._parameters.index(name)] = value
    return type(expr)(*operands)


def _p2p_with_buffer(expr: Any, buffer: str | None) -> Any:
    """A P2P shuffle with the buffer it came with, or that is in force now."""
    if buffer is None:
        buffer = shuffle_buffers.said()
    if buffer is None or buffer == shuffle_buffers.AUTO:  # what it is without us
        return expr
    return type(expr)(*expr.operands, buffer)


def _buffer_of(p2p: Any) -> str | None:
    beyond = p2p.operands[len(p2p._parameters) :]
    return beyond[0] if beyond else None


def _around_layer(layer: Any) -> Any:
    @functools.wraps(layer)
    def _layer(self: Any) -> dict[Any, Any]:
        from distributed.shuffle._core import P2PBarrierTask

        tasks = layer(self)
        buffer = _buffer_of(self)
        if buffer is not None:
            for task in tasks.values():
                if isinstance(task, P2PBarrierTask):
                    shuffle_buffers.mark(task.spec, buffer)
        return tasks

    return _layer


def _around_reduce(reduce: Any) -> Any:
    @functools.wraps(reduce)
    def __reduce__(self: Any) -> Any:
        reduced = reduce(self)
        if _buffer_of(self) is None:
            return reduced
        # What is set here stands before the method of its class. A merge has a function
        # in its tasks that is not to be found by name.
        tasks = cloudpickle.dumps(self._layer())
        return *reduced[:2], {"_layer": functools.partial(pickle.loads, tasks)}

    return __reduce__
