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

_VIEW_BYTES, _LONGEST_INSIDE = 16, 12
"""By Arrow's format: of a view, which begins with its length, and of text inside it."""


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
        hidden = max(behind - _shown_bytes(values), _hidden_text(values))
        if hidden <= TOLERATED_BYTES:
            return values
        compact = _compact(values)
    except pyarrow.ArrowException:
        return values  # of a type that Arrow cannot copy: too large, but right
    return compact if compact.get_total_buffer_size() < behind * 7 // 8 else values


def _shown_bytes(values: Any) -> int:
    """How much of its memory an array has to have. All the text behind views counts as
    shown."""
    import pyarrow

    try:
        shown = values.nbytes
    except pyarrow.ArrowException:  # older ones cannot tell it of views
        return 0
    return shown if _holds(values.type, _is_view) else shown + shown // 8


def _hidden_text(values: Any) -> int:
    """How many bytes of text are behind views of which none shows them, at least."""
    if not _holds(values.type, _is_view):
        return 0
    if not _is_view(values.type):
        return sum(map(_hidden_text, _children(values)))
    _, views, *texts = values.buffers()
    behind = sum(text.size for text in texts)
    if behind <= TOLERATED_BYTES:
        return 0
    views = views.slice(_VIEW_BYTES * values.offset, _VIEW_BYTES * len(values))
    return behind - _text_of(views)


def _text_of(views: Any) -> int:
    """How many bytes views show that are not in themselves."""
    import pyarrow
    from pyarrow import compute

    each = _VIEW_BYTES // 4
    count = views.size // 4
    words = pyarrow.Array.from_buffers(pyarrow.int32(), count, [None, views])
    lengths = compute.list_element(
        pyarrow.FixedSizeListArray.from_arrays(words, each), 0
    )
    is_outside = compute.greater(lengths, _LONGEST_INSIDE)
    return compute.sum(compute.filter(lengths, is_outside)).as_py() or 0


def _children(values: Any) -> list[Any]:
    """The arrays that an array is made of; of a slice maybe more than it shows."""
    import pyarrow
    from pyarrow import types

    type_ = values.type
    if isinstance(type_, pyarrow.BaseExtensionType):
        return [values.storage]
    if types.is_dictionary(type_):
        return [values.dictionary]
    if types.is_struct(type_) or types.is_union(type_):
        return [values.field(index) for index in range(type_.num_fields)]
    return [values.values]  # runs, and every kind of list; maps are lists of pairs


def _compact(values: Any) -> Any:
    """A copy in buffers of its own."""
    import pyarrow

    if _holds(values.type, _is_dense_union):
        copy = values.take(pyarrow.array(range(len(values)), pyarrow.int64()))
    else:
        copy = pyarrow.concat_arrays([values])
    return _without_hidden_text(copy)


def _without_hidden_text(values: Any) -> Any:
    """An array of which all views are copied together with the text that they show;
    else the same."""
    import pyarrow
    from pyarrow import types

    type_ = values.type
    if not _holds(type_, _is_view):
        return values
    if _is_view(type_):
        is_text = str(type_) == "string_view"
        plain = pyarrow.large_string() if is_text else pyarrow.large_binary()
        return values.cast(plain).cast(type_)
    if values.offset:  # a slice: of its buffers only a part is its own
        values = pyarrow.concat_arrays([values])
    children = [_without_hidden_text(child) for child in _children(values)]
    if isinstance(type_, pyarrow.BaseExtensionType):
        return type_.wrap_array(*children)
    if types.is_dictionary(type_):
        return pyarrow.DictionaryArray.from_arrays(
            values.indices, *children, ordered=type_.ordered, safe=False
        )
    if types.is_run_end_encoded(type_):
        return type(values).from_arrays(values.run_ends, *children, type_)
    own = values.buffers()[: type_.num_buffers]
    return pyarrow.Array.from_buffers(type_, len(values), own, children=children)


def _holds(type_: Any, is_such: Any) -> bool:
    import pyarrow

    if is_such(type_):
        return True
    if isinstance(type_, pyarrow.BaseExtensionType):
        return _holds(type_.storage_type, is_such)
    if pyarrow.types.is_dictionary(type_):
        return _holds(type_.value_type, is_such)
    return any(
        _holds(type_.field(index).type, is_such) for index in range(type_.num_fields)
    )


def _is_view(type_: Any) -> bool:
    return str(type_) in ("string_view", "binary_view")


def _is_dense_union(type_: Any) -> bool:
    return str(type_).startswith("dense_union")


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
