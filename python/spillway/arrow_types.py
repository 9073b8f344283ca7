"""Types of Arrow's: told apart by all that they say, and pickled with it."""

import io
import pickle
from collections.abc import Hashable
from typing import Any, ClassVar

import pyarrow as pa


def spelled(arrow_type: pa.DataType) -> Hashable:
    """What is equal for types that are the same in everything, in the names of fields,
    in metadata and in whether there may be nulls: those that Arrow has for equal may
    differ there."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        # Its parameters are in the metadata that others get.
        written = pa.schema([pa.field("", arrow_type)]).serialize().to_pybytes()
        return type(arrow_type), written, spelled(arrow_type.storage_type)
    if isinstance(arrow_type, pa.DictionaryType):
        own = str(arrow_type.index_type), arrow_type.ordered
        return *own, spelled(arrow_type.value_type)
    count = arrow_type.num_fields
    if count == 0:
        return str(arrow_type)
    size = getattr(arrow_type, "list_size", None)
    is_sorted = getattr(arrow_type, "keys_sorted", None)
    fields = [_spelled_field(arrow_type.field(at)) for at in range(count)]
    return arrow_type.id, size, is_sorted, *fields


def _spelled_field(field: pa.Field) -> Hashable:
    metadata = field.metadata
    items = None if metadata is None else tuple(metadata.items())
    return field.name, field.nullable, items, spelled(field.type)


def as_columns(arrow_type: pa.DataType, large: bool = False) -> pa.DataType:
    """A type that has the columns by which arrays of a type are split, with offsets of
    8 bytes if they are to be large.

    All of it has validity: Arrow has arrays with nulls where their type has none, such
    as in the members of a struct that has no value. But for the entries and the keys of
    a map, in which it has not.
    """
    if isinstance(arrow_type, pa.BaseExtensionType):
        return as_columns(arrow_type.storage_type, large)
    if large and pa.types.is_string(arrow_type):
        return pa.large_string()
    if large and pa.types.is_binary(arrow_type):
        return pa.large_binary()
    if pa.types.is_map(arrow_type):
        key = pa.field("key", as_columns(arrow_type.key_type, large), nullable=False)
        item = pa.field("value", as_columns(arrow_type.item_type, large))
        entries = pa.field("entries", pa.struct([key, item]), nullable=False)
        return pa.large_list(entries) if large else pa.map_(key, item)
    fields = [
        pa.field(field.name, as_columns(field.type, large))
        for field in map(arrow_type.field, range(arrow_type.num_fields))
    ]
    if pa.types.is_struct(arrow_type):
        return pa.struct(fields)
    if pa.types.is_fixed_size_list(arrow_type):
        return pa.list_(fields[0], arrow_type.list_size)
    if pa.types.is_large_list(arrow_type) or (large and pa.types.is_list(arrow_type)):
        return pa.large_list(fields[0])
    return pa.list_(fields[0]) if pa.types.is_list(arrow_type) else arrow_type


class PickledType:
    """A type that comes out of its pickle as it was."""

    __slots__ = ("arrow_type",)

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.arrow_type = arrow_type

    def __reduce__(self) -> tuple[Any, ...]:
        file = io.BytesIO()
        _Pickler(file, 5).dump(self.arrow_type)
        return _unpickled, (file.getvalue(),)


def _unpickled(pickled: bytes) -> PickledType:
    return PickledType(pickle.loads(pickled))


def _reduce_map(arrow_type: pa.MapType) -> tuple[Any, ...]:
    fields = arrow_type.key_field, arrow_type.item_field
    return pa.map_, (*fields, arrow_type.keys_sorted)


class _Pickler(pickle.Pickler):
    # Arrow's own reducer forgets keys_sorted.
    dispatch_table: ClassVar = {pa.MapType: _reduce_map}
