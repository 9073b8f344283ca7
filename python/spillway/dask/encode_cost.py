"""What it will cost to serialise a value, as far as can be known without doing it.

Arrays and bytes cost nothing, since they are sent from where they are, and text is as
quick as a copy of it. The size of anything else would take a walk, or the value's own
__sizeof__, which may be wrong, slow or missing, and says little about the time. So what
a kind of value cost the last time is remembered: the CPU time of its thread in
nanoseconds, which stand for bytes.
"""

import math
import time
import weakref
from typing import Any

from distributed.protocol.serialize import Pickled, Serialized

_COST_NOTHING = frozenset({type(None), bool, int, float, complex, bytes, bytearray})
_SERIALISED = (Serialized, Pickled)
_SIZED = frozenset({list, tuple, dict, set, frozenset, str})
_SIZED_PANDAS = frozenset({"DataFrame", "Series"})

Kind = tuple[type, int]
"""A type, and a class of lengths, which are within a factor of two. Length counts only
where asking for it runs nobody's code and takes no time."""

_learned: weakref.WeakKeyDictionary[type, dict[int, float]] = (
    weakref.WeakKeyDictionary()
)
"""Costs in bytes. Any thread: of two that learn at a time one may be forgotten."""

_learned[str] = {size_class: float(1 << size_class) for size_class in range(64)}

now_s = time.thread_time
"""The clock for `learn`: what other threads do meanwhile is no cost of the value."""


_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__
"""As Python has them, whatever a class says of itself."""


def _library_of(type_: type) -> str:
    try:
        module = _module_of(type_)
    except AttributeError:
        return ""
    return module.partition(".")[0] if type(module) is str else ""


def kind_of(value: Any) -> Kind | None:
    """The kind of a message's value, a Serialize or its like; None for those of which
    it is certain that they cost nothing."""
    if isinstance(value, _SERIALISED):
        return None
    data = value.data
    type_ = type(data)
    if type(type_).__hash__ is not type.__hash__:
        return object, 0  # a class whose own class has code where it is looked up
    if type_ in _COST_NOTHING or (type_ is memoryview and data.contiguous):
        return None
    module = _library_of(type_)
    if module == "numpy" and _is_sent_in_place(type_, data):
        return None
    is_sized = type_ in _SIZED or (
        module == "pandas" and _name_of(type_) in _SIZED_PANDAS
    )
    return type_, len(data).bit_length() if is_sized else 0


def expected_bytes(kind: Kind | None) -> float:
    """What a value of the kind will cost; infinite for one that was never met."""
    if kind is None:
        return 0.0
    return _learned.get(kind[0], {}).get(kind[1], math.inf)


def learn(kind: Kind, seconds: float) -> None:
    """It took that long. A quick one makes up for a slow one only by half, so that a
    kind of which some are slow stays slow for a while."""
    costs = _learned.setdefault(kind[0], {})
    costs[kind[1]] = max(seconds * 1e9, costs.get(kind[1], 0.0) / 2)


def _is_sent_in_place(type_: type, data: Any) -> bool:
    if _name_of(type_) != "ndarray":
        return False
    flags = data.flags
    return not data.dtype.hasobject and (flags.c_contiguous or flags.f_contiguous)
