"""What of a store is in memory, and what on disk, as Dask looks at it."""

from collections.abc import Iterator, Mapping
from typing import Any

_IN_MEMORY = 1 | 2


class Tier(Mapping):
    """The keys of a store whose values are in memory, or those of which they are not.
    Its size is known without looking at each; reading a value reads it from the store.
    """

    __slots__ = ("_entries", "_is_fast", "_store")

    def __init__(self, store: Any, entries: dict[Any, Any], *, is_fast: bool) -> None:
        self._store, self._entries, self._is_fast = store, entries, is_fast

    def _has(self, entry: Any) -> bool:
        return bool(entry.forms & _IN_MEMORY) == self._is_fast

    def __contains__(self, key: object) -> bool:
        entry = self._entries.get(key)
        return entry is not None and self._has(entry)

    def __getitem__(self, key: Any) -> Any:
        if key not in self:
            raise KeyError(key)
        return self._store[key]

    def __iter__(self) -> Iterator[Any]:
        # At once, since they come and go meanwhile.
        return iter([key for key, one in self._entries.items() if self._has(one)])

    def __len__(self) -> int:
        count = len(self._entries)
        figures = self._store.figures()
        in_memory = figures["live"]["count"] + figures["packed"]["count"]
        in_memory = min(in_memory, count)
        return in_memory if self._is_fast else count - in_memory

    def __repr__(self) -> str:
        return f"<{'fast' if self._is_fast else 'slow'}: {len(self)} keys>"
