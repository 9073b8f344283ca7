"""How an array of some dtype is columns of memory, and becomes an array again."""

import threading
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Self, TypeVar

from spillway.column_memory import Column, ColumnType, JoinedColumn


class _Key:
    """A key with its hash, so that one whose object goes when Python does, and with it
    what reckons the hashes of dtypes, can still be found."""

    __slots__ = ("_hash", "_key")

    def __init__(self, key: Hashable) -> None:
        self._key = key
        self._hash = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._key == other._key


class Interned:
    """An object of which there is one for each key, so that those are equal that are
    the same: compared and hashed by nothing but their identity.

    Two of one key must be interchangeable. `parameters`, from which it is built, go
    along in its pickle, so that it is found or built in another process.
    """

    __slots__ = ("__weakref__", "_key", "_parameters")

    _key: Hashable
    _parameters: tuple[Any, ...]

    def __init__(self, *parameters: Any) -> None:
        raise NotImplementedError

    @classmethod
    def of(cls, key: Hashable, *parameters: Any) -> Self:
        """The one object of this key, built by `cls(*parameters)` if there is none."""
        place = _Key((cls, key))
        found = _interned.get(place)
        if found is not None:
            return found  # type: ignore[return-value]
        made = cls(*parameters)
        made._key, made._parameters = key, parameters
        with _lock:
            return _interned.setdefault(place, made)  # type: ignore[return-value]

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (type(self), self._key, self._parameters)


_lock = threading.Lock()
_interned: weakref.WeakValueDictionary[_Key, Interned]
_interned = weakref.WeakValueDictionary()


_I = TypeVar("_I", bound=Interned)


def _of(cls: type[_I], key: Hashable, parameters: tuple[Any, ...]) -> _I:
    return cls.of(key, *parameters)


class ArrayForm(Interned):
    """What rebuilding an array needs beside the bytes of its columns.

    Attributes
    ----------
    types
        Of the columns that such an array has, in order.
    in_blocks
        Whether pandas has several arrays of this form as the rows of one array of two
        dimensions. Such a form has one column.
    """

    __slots__ = ("types",)

    types: tuple[ColumnType, ...]
    in_blocks: ClassVar[bool] = False

    def columns(self, array: Any) -> list[Column]:
        """The columns of an array of this form, without a copy of its values."""
        raise NotImplementedError

    def block_columns(self, block: Any) -> list[list[Column]]:
        """The columns of each row of an array of two dimensions; for forms that are in
        blocks, which take NumPy's arrays."""
        raise NotImplementedError

    def array(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        """An array of `rows` rows in the memory of columns of these types."""
        raise NotImplementedError

    def block(self, rows: int, columns: Sequence[JoinedColumn]) -> Any:
        """An array of shape (len(columns), rows); for forms that are in blocks."""
        raise NotImplementedError
