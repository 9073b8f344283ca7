"""Spillway under Dask. Importing this changes nothing; `enable()` does."""

from collections.abc import Sequence
from typing import Any, Literal

from spillway.dask.enable import disable, enable

__all__ = ["disable", "enable", "serialize"]


def serialize(
    value: Any,
    serializers: Sequence[str] | None = None,
    on_error: Literal["message", "raise"] = "message",
    context: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], list[bytes | bytearray | memoryview]]:
    """The header and the frames of a value, as a comm of this process would send them
    that is made now: by Spillway, or by Dask where SPILLWAY_DISABLE=values says so.
    Dask's `deserialize` makes the value of them again, in any process.

    Parameters
    ----------
    value
        Anything; of one that is marked by Dask's `to_serialize` what is in it.
    serializers
        Families of Dask's serialisers, in the order in which they are asked; None for
        "dask" and then "pickle". A list without "pickle" means that nothing is pickled.
    on_error
        "message": a value that cannot be serialised becomes one that raises TypeError
        when it is deserialised. "raise": it raises here.
    context
        What Dask's serialisers are told about the connection.

    Returns
    -------
    header
        What `deserialize` has to know, of what msgpack can pack.
    frames
        Contiguous bytes, in one dimension. Those of large buffers are the value's own
        memory, not a copy of it, and keep it alive; "writeable" in the header of a
        pickled value says for each of them whether it is to be so where it arrives.

    Raises
    ------
    TypeError
        With ``on_error="raise"``, from what made it impossible.
    ValueError
        When the value cannot be serialised, and `on_error` is anything else.

    Examples
    --------
    >>> from distributed.protocol import deserialize
    >>> header, frames = serialize({"x": range(3)})
    >>> deserialize(header, frames)
    {'x': range(0, 3)}
    """
    from distributed.protocol.serialize import Serialize
    from distributed.protocol.serialize import serialize as by_dask

    from spillway.dask import hook_values

    if hook_values.encoder() is None:
        return by_dask(Serialize(value), serializers, on_error, context)

    from spillway.dask import value_encoder

    return value_encoder.serialize(value, serializers, on_error, context)
