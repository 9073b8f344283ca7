"""Spillway under Dask. Importing this changes nothing; `enable()` does."""

from typing import Any

from spillway.dask.enable import disable, enable

__all__ = ["disable", "enable", "serialize"]


def serialize(value: Any, **options: Any) -> tuple[dict[str, Any], list[Any]]:
    """The header and the frames of a value, as a comm of this process would send them
    that is made now: by Spillway, or by Dask where SPILLWAY_DISABLE=values says so.

    Parameters
    ----------
    options
        `serializers`, `on_error` and `context`, as Dask's `serialize` takes them.
    """
    from distributed.protocol.serialize import Serialize
    from distributed.protocol.serialize import serialize as by_dask

    from spillway.dask import hook_values

    if hook_values.encoder() is None:
        return by_dask(Serialize(value), **options)

    from spillway.dask import value_encoder

    return value_encoder.serialize(value, **options)
