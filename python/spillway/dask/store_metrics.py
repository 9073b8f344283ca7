"""What a store did, in Dask's labels and units."""

from collections.abc import Callable, Mapping
from typing import Any

from distributed.metrics import context_meter

Metric = tuple[Any, float, str]
"""A label, a value, and its unit."""

_NS = 1e-9


def written(figures: Mapping[str, Any]) -> list[Metric]:
    """What it cost to bring values to disk, in the order in which it is done: from
    memory, and as they came."""
    return [
        ("serialize", figures["pack_ns"] * _NS, "seconds"),
        ("compress", figures["compress_ns"] * _NS, "seconds"),
        ("disk-write", figures["write_ns"] * _NS, "seconds"),
        ("disk-write", figures["writes"] + figures["received"], "count"),
        ("disk-write", figures["written_bytes"] + figures["received_bytes"], "bytes"),
    ]


def read_back(figures: Mapping[str, Any]) -> list[Metric]:
    """What it cost to bring them back."""
    return [
        ("disk-read", figures["read_ns"] * _NS, "seconds"),
        ("disk-read", figures["reads"], "count"),
        ("disk-read", figures["read_bytes"], "bytes"),
        ("decompress", figures["decompress_ns"] * _NS, "seconds"),
        ("deserialize", figures["unpack_ns"] * _NS, "seconds"),
    ]


class Since:
    """What was written since the last time that somebody asked."""

    def __init__(self) -> None:
        self._told: dict[tuple[Any, str], float] = {}

    def take(self, figures: Mapping[str, Any]) -> list[Metric]:
        """What is new, nothing if no value was written."""
        now = written(figures)
        new = [
            (label, value - self._told.get((label, unit), 0), unit)
            for label, value, unit in now
        ]
        if not any(value > 0 for _, value, unit in new if unit == "count"):
            return []
        self._told = {(label, unit): value for label, value, unit in now}
        return [(label, max(value, 0), unit) for label, value, unit in new]

    def discount(self, metrics: list[Metric]) -> None:
        """Take these as told."""
        for label, value, unit in metrics:
            self._told[label, unit] = self._told.get((label, unit), 0) + value


def digest(metrics: list[Metric]) -> None:
    """Have Dask meter them in the context of the caller."""
    for metric in metrics:
        context_meter.digest_metric(*metric)


def metered(
    label: str,
    codec_label: str,
    call: Callable[[], Any],
    take_bytes: Callable[[], int | None],
) -> tuple[Any, list[Metric]]:
    """Call what reads from a disk or writes to it. Its answer, and what Dask is to
    meter: the time that nothing inside was metered for is the disk's."""
    inside: list[Metric] = []
    take_bytes()
    with (
        context_meter.clear_callbacks(),
        context_meter.add_callback(lambda *metric: inside.append(metric)),
        context_meter.meter(label),
    ):
        answer = call()
    *inside, own = inside
    size = take_bytes()
    if size is None:  # somebody else did it, and we waited
        return answer, [own]
    return answer, [
        own,
        (label, 1, "count"),
        (label, size, "bytes"),
        (codec_label, 0.0, "seconds"),
        *inside,
    ]
