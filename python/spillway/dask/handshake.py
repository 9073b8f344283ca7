"""What two Spillway peers tell each other in Dask's handshake.

That is a dict each way, in which ours stands under one key: a stock peer ignores it. A
peer may say anything there.
"""

from __future__ import annotations

from typing import Any

KEY = "spillway"

WIRE_VERSION = 1
"""Changes when what one sends cannot be read by the other."""

CHECKSUMS = "checksums"
"""It compares what values' headers say of their frames: checksums.py."""

TAKES_FILES = "files"
"""It keeps values, and takes those of this host that are on disk as files:
shared_files.py. Said by who makes a connection."""

FEATURES: tuple[str, ...] = ("unsplit", CHECKSUMS)
"""Names that both must have before either uses one."""

_HOST = "host"


def ours(
    host_offer: dict[str, Any] | None, *, takes_files: bool = False
) -> dict[str, Any]:
    """What our half of the handshake has beside Dask's: with what a peer needs to know
    to share memory with us, if it shares our host."""
    features = (*FEATURES, TAKES_FILES) if takes_files else FEATURES
    said: dict[str, Any] = {"wire": WIRE_VERSION, "features": features}
    if host_offer is not None:
        said[_HOST] = host_offer
    return {KEY: said}


def features_in_common(info: dict[str, Any]) -> frozenset[str]:
    """Features that both have, by the peer's half; none with a stock peer."""
    names = _features(info)
    return frozenset(name for name in FEATURES if name in names)


def takes_files(info: dict[str, Any]) -> bool:
    """Whether the peer says that it takes files."""
    return TAKES_FILES in _features(info)


def host_offer(info: dict[str, Any]) -> Any:
    """What the peer says of its host, unchecked; None when that is nothing."""
    return _said(info).get(_HOST)


def _features(info: dict[str, Any]) -> tuple[Any, ...]:
    names = _said(info).get("features")
    return names if isinstance(names, tuple) else ()


def _said(info: dict[str, Any]) -> dict[str, Any]:
    """What the peer says beside Dask's part, where we understand it."""
    said = info.get(KEY)
    if not isinstance(said, dict) or said.get("wire") != WIRE_VERSION:
        return {}
    return said
