"""How Arrow's objects are pickled: without what a slice does not show of its parent,
and where Arrow itself cannot.

A pickle of Arrow's own names whole buffers, and its offset into them. What a slice
shows is copied into buffers of its own here if that is notably less; everything else
goes as it is, without a copy. Tables and batches are pickled by their columns.
"""

import functools
import operator
from typing import Any

from spillway.dask.value_reducers import LEAST_APART_BYTES, Reducer, by_default

TOLERATED_BYTES = 512
"""Padding, and bits that are rounded up to bytes, are not worth a copy."""


class SharedBuffers:
    """Reduces buffers, each memory once: Arrow makes a new object whenever it is asked
    for the buffers of an array, also for those that arrays have in common, as chunks
    have a dictionary."""

    def __init__(self) -> None:
        self._met: dict[tuple[int, int, bool], Any] = {}

    def __call__(self, buffer: Any) -> Any:
        if buffer.size < LEAST_APART_BYTES:
            return by_default(buffer)
        first = self._met.setdefault(
            (buffer.address, buffer.size, buffer.is_mutable), buffer
        )
        if first is buffer:
            return by_default(buffer)
        return _the_only_one, ((first,),)


_the_only_one = operator.itemgetter(0)


def reducer_of(type_: type) -> Reducer | type[SharedBuffers] | None:
    """The reducer for a type of Arrow's, if it has one; a class if each pass needs one
    of its own. Subclasses of extension arrays are their authors', but what they hold is
    Arrow's."""
    import pyarrow

    if issubclass(type_, pyarrow.Array):
        return reduce_array
    if issubclass(type_, pyarrow.Buffer):
        return SharedBuffers
    return _of_file_systems().get(type_)


@functools.cache
def _of_file_systems() -> dict[type, Reducer]:
    from pyarrow import fs

    return {fs.FileInfo: _reduce_file_info, fs.FileSelector: _reduce_file_selector}


def reduce_array(values: Any) -> Any:
    """As Arrow does, after trimming."""
    return by_default(trimmed(values))


def trimmed(values: Any) -> Any:
    """An equal array with less memory behind it, or the same."""
    import pyarrow

    try:
        behind = values.get_total_buffer_size()
        if behind <= _shown_bytes(values) + TOLERATED_BYTES:
            return values
        compact = _compact(values)
    except pyarrow.ArrowException:
        return values  # of a type that Arrow cannot copy: too large, but right
    return compact if compact.get_total_buffer_size() < behind * 7 // 8 else values


def _shown_bytes(values: Any) -> int:
    """How much of its memory an array has to have. All the text behind views counts as
    shown, so what little differs says that they are a slice."""
    import pyarrow

    try:
        shown = values.nbytes
    except pyarrow.ArrowException:  # older ones cannot tell it of views
        return 0
    return shown if _holds(values.type, _is_view) else shown + shown // 8


def _compact(values: Any) -> Any:
    """A copy in buffers of its own."""
    import pyarrow

    type_ = values.type
    if _holds(type_, _is_view):
        return values.cast(_without_views(type_)).cast(type_)
    if _holds(type_, _is_dense_union):
        return values.take(pyarrow.array(range(len(values)), pyarrow.int64()))
    return pyarrow.concat_arrays([values])


def _holds(type_: Any, is_such: Any) -> bool:
    if is_such(type_):
        return True
    return any(
        _holds(type_.field(index).type, is_such) for index in range(type_.num_fields)
    )


def _is_view(type_: Any) -> bool:
    return str(type_) in ("string_view", "binary_view")


def _is_dense_union(type_: Any) -> bool:
    return str(type_).startswith("dense_union")


def _without_views(type_: Any) -> Any:
    import pyarrow

    if str(type_) == "string_view":
        return pyarrow.large_string()
    if str(type_) == "binary_view":
        return pyarrow.large_binary()
    if pyarrow.types.is_list(type_):
        return pyarrow.list_(
            type_.value_field.with_type(_without_views(type_.value_type))
        )
    if pyarrow.types.is_struct(type_):
        return pyarrow.struct(
            [
                type_.field(index).with_type(_without_views(type_.field(index).type))
                for index in range(type_.num_fields)
            ]
        )
    return type_  # to which the cast is then refused


def _reduce_file_info(info: Any) -> Any:
    make = functools.partial(
        type(info), info.path, info.type, mtime_ns=info.mtime_ns, size=info.size
    )
    return make, ()


def _reduce_file_selector(selector: Any) -> Any:
    return type(selector), (
        selector.base_dir,
        selector.allow_not_found,
        selector.recursive,
    )
