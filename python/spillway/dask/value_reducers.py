"""How values of some exact types are pickled: what Python, NumPy and Dask do for them
loses something, copies what need not be copied, or fails.

Every reducer names only what a peer without Spillway has, so that a stock peer reads
the pickle. Buffers are `PickleBuffer`s, which carry whether they may be written to.
Subclasses are not meant: their own way of being pickled knows what they add.
"""

import functools
import operator
import warnings
from array import array
from collections.abc import Callable
from pickle import PickleBuffer
from typing import Any

Reducer = Callable[[Any], Any]

PROTOCOL = 5

LEAST_APART_BYTES = 1024
"""Smaller buffers go inside the pickle: a frame costs more than a copy of so much."""

_CAST_FORMATS = frozenset("cbB?hHiIlLqQnNPfd")
"""To which every Python casts a memoryview."""

by_default = operator.methodcaller("__reduce_ex__", PROTOCOL)
"""What pickle does for an object without a reducer."""


class Call:
    """Pickled as a call: stands for what the callable returns where it is unpickled."""

    __slots__ = ("_reduced",)

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> Any:
        return self._reduced


def buffer_bytes(buffer: Any) -> memoryview:
    """The bytes of a contiguous buffer of any shape, in one dimension, without a copy.

    Raises
    ------
    TypeError, BufferError
        When it is no buffer, or not contiguous.
    """
    return PickleBuffer(buffer).raw()


def reduce_memoryview(view: memoryview) -> Any:
    """Contents, format, shape and writeable flag; strides where NumPy has them."""
    if view.format == "O":
        raise TypeError("a memoryview of Python objects cannot be serialised")
    has_items = view.ndim == 1 or (view.ndim and view.nbytes)
    can_be_cast = has_items and view.format.removeprefix("@") in _CAST_FORMATS
    if can_be_cast and view.c_contiguous:
        return _cast(view.cast("B"), view)

    described = _described(view)
    if described is not None:
        return memoryview, (described,)
    if can_be_cast:
        packed = view.tobytes()
        return _cast(packed if view.readonly else bytearray(packed), view)
    raise TypeError(
        f"a memoryview of format {view.format!r}, shape {view.shape} and strides "
        f"{view.strides} cannot be serialised"
    )


def _described(view: memoryview) -> Any:
    """An array of which a view has the same format, shape and strides; None if NumPy,
    which need not be there, or a pickle of it does not have the format."""
    try:
        import numpy

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats of ctypes
            described = numpy.asarray(view)
    except (ImportError, ValueError):
        return None
    dtype = described.dtype
    # NumPy has several names for one dtype, of which a pickle keeps the first.
    is_kept = dtype.kind == "V" or numpy.dtype(dtype.str).char == dtype.char
    return (
        described if is_kept and memoryview(described).format == view.format else None
    )


def _cast(buffer: Any, view: memoryview) -> Any:
    """The bytes of a buffer as those of a view."""
    if view.format == "B" and view.ndim == 1:
        return memoryview, (PickleBuffer(buffer),)
    shape = (view.shape,) if view.ndim > 1 else ()
    cast = operator.methodcaller("cast", view.format, *shape)
    return cast, (Call(memoryview, PickleBuffer(buffer)),)


def reduce_array(values: array) -> Any:
    """Large ones apart, as Dask's registry has them."""
    if values.itemsize * len(values) < LEAST_APART_BYTES:
        return by_default(values)
    from distributed.protocol.serialize import dask_dumps, deserialize

    header, frames = dask_dumps(values)
    return deserialize, (header, [PickleBuffer(frame) for frame in frames])


def reduce_ndarray(values: Any) -> Any:
    """As an array over its memory, in the order and with the signs of its strides.
    Copied only if the memory has holes; what is repeated by a stride of 0 goes once."""
    import numpy

    dtype, shape = values.dtype, values.shape
    if dtype.hasobject or not dtype.itemsize:
        return _reduce_whole(numpy, values)
    if not values.size:
        empty = b"" if not values.flags.writeable else bytearray()
        return numpy.ndarray, (shape, dtype, empty, 0, values.strides)
    if values.flags.c_contiguous:
        return numpy.ndarray, (shape, dtype, _memory(values))
    memory, offset, strides = _dense(numpy, values)
    if not values.flags.writeable:
        memory.flags.writeable = False
    return numpy.ndarray, (shape, dtype, PickleBuffer(memory), offset, strides)


def _memory(values: Any) -> PickleBuffer:
    """What a C-contiguous array has in memory."""
    return PickleBuffer(values.reshape(-1).view("u1"))


def _dense(numpy: Any, values: Any) -> tuple[Any, int, list[int]]:
    """Memory without holes that has all of an array's items once, where its first item
    is in that, and its strides there."""
    strides = values.strides
    forward = tuple(
        slice(0, 1) if step == 0 else slice(None, None, -1 if step < 0 else 1)
        for step in strides
    )
    base = values[forward]
    order = sorted(range(base.ndim), key=lambda axis: -base.strides[axis])
    packed = numpy.ascontiguousarray(base.transpose(order))
    steps = [0] * base.ndim
    for axis, step in zip(order, packed.strides, strict=True):
        steps[axis] = step
    offset, signed = 0, []
    for axis, step in enumerate(strides):
        if step < 0:
            offset += (values.shape[axis] - 1) * steps[axis]
        signed.append((step > 0) * steps[axis] - (step < 0) * steps[axis])
    return packed.reshape(-1).view("u1"), offset, signed


def _reduce_whole(numpy: Any, values: Any) -> Any:
    """As NumPy does: what is in an array may contain the array, so it is made first and
    filled then; and made read-only at last."""
    if values.flags.writeable:
        return by_default(values)
    make, args, state = values.__reduce__()
    return _filled(values, make, args, Call(numpy.ndarray.__setstate__, values, state))


def _filled(values: Any, make: Any, args: Any, *steps: Call) -> Any:
    """An array that is made, taken through some steps, and made as writeable as the one
    that is sent. The steps are calls of what NumPy and Python have, inside the state
    that a pickle gives to an array that is there already."""
    import numpy

    write = None if values.flags.writeable else False  # None changes nothing
    state = Call(operator.itemgetter(len(steps)), (*steps, write))
    return make, args, state, None, None, numpy.ndarray.setflags


def reduce_masked_array(values: Any) -> Any:
    """With what its own way of being pickled loses: that there is no mask at all, a
    hard mask, attributes, a read-only buffer."""
    import numpy

    is_plain = (
        values._baseclass is numpy.ndarray
        and not values._optinfo
        and not values.dtype.hasobject
        and vars(values).keys() <= _masked_attributes()
    )
    if not is_plain:
        return _reduce_any_masked_array(numpy, values)
    options = {
        "copy": False,
        "fill_value": values._fill_value,
        "hard_mask": bool(values._hardmask),
    }
    if values._mask is not numpy.ma.nomask:
        options["mask"] = values._mask.view(numpy.ndarray)
    make = functools.partial(numpy.ma.MaskedArray, **options)
    return make, (values.view(numpy.ndarray),)


@functools.cache
def _masked_attributes() -> Any:
    """What every masked array has."""
    import numpy

    return frozenset(vars(numpy.ma.MaskedArray([0])))


def _reduce_any_masked_array(numpy: Any, values: Any) -> Any:
    """One that may contain itself, or is more than an array and its mask."""
    make, args, state = values.__reduce__()
    attributes = vars(values).copy()
    return _filled(
        values,
        make,
        args,
        Call(numpy.ma.MaskedArray.__setstate__, values, state),
        Call(dict.update, Call(getattr, values, "__dict__"), attributes),
    )


def is_in_place(values: Any) -> bool:
    """Whether Dask's own header says all of an array, and its frame is its memory."""
    import numpy

    dtype, flags = values.dtype, values.flags
    if dtype.hasobject or not dtype.itemsize or dtype.metadata is not None:
        return False
    if not (flags.c_contiguous or flags.f_contiguous) or 0 in values.strides:
        return False
    return dtype.kind == "V" or numpy.dtype(dtype.str) == dtype


def of_numpy() -> dict[type, Reducer]:
    """The reducers for NumPy's types."""
    import numpy

    return {
        numpy.ndarray: reduce_ndarray,
        numpy.memmap: lambda mapped: reduce_ndarray(mapped.view(numpy.ndarray)),
        numpy.ma.MaskedArray: reduce_masked_array,
    }


OF_PYTHON: dict[type, Reducer] = {memoryview: reduce_memoryview, array: reduce_array}
