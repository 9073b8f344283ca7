"""The rows of run.py: which program measures what, and what is asked of it."""

import dataclasses

HIGHER, LOWER = "at least", "at most"
ABSOLUTE = " (absolute)"

# Row: program with arguments; metric: which way, bar, aim. Ratios are Spillway's figure
# over stock's, except "absolute" ones, which are Spillway's figure itself.
SIZES = {
    "small": (0, 1 << 10, 1 << 16, 1 << 20),
    "large": (8 << 20, 64 << 20, 256 << 20, 1 << 30),
}
NEVER_SLOWER = (HIGHER, 0.95, None)
TCP_ONLY = {"SPILLWAY_DISABLE": "same_host"}
# What 1 GiB must reach, by the way it goes and whether the receiver keeps it.
GIB_BARS = {
    ("same_host", "dropped"): (HIGHER, 2.5, 5),
    ("same_host", "kept"): (HIGHER, 1.6, 2.5),
    ("tcp", "dropped"): (HIGHER, 2.0, 3),
    ("tcp", "kept"): (HIGHER, 1.0, 1.4),
}


@dataclasses.dataclass(frozen=True)
class Row:
    program: list[str]
    metrics: dict[str, tuple[str, float, float | None]]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of Spillway's side."""
    has_nannies: bool = False
    """Its workers are started by nannies, with malloc settings: Dask's, or ours. Stock
    is run a third time, with ours."""
    bare: str | None = None
    """A metric that the program also has of a process without a data plane."""
    against: list[str] | None = None
    """Arguments with which Spillway itself is what it is held against, not stock."""
    stock_limit_s: float | None = None
    """Stock may fail, and is ended when it is not done by then: its time counts as
    endless, and the table says how often."""


def _sizes(way: str, mode: str) -> Row:
    metrics = {f"{size}_bytes_per_s": NEVER_SLOWER for size in SIZES["large"]}
    metrics[f"{1 << 30}_bytes_per_s"] = GIB_BARS[way, mode]
    return Row(
        ["sizes.py", "--range", "large", "--mode", mode],
        metrics,
        TCP_ONLY if way == "tcp" else {},
    )


def _small(mode: str) -> Row:
    metrics = {f"{size}_bytes_per_s": NEVER_SLOWER for size in SIZES["small"]}
    metrics[f"{1 << 16}_bytes_per_s"] = (HIGHER, 1.1, 2)
    return Row(["sizes.py", "--range", "small", "--mode", mode], metrics)


def _of_workers(
    program: list[str],
    metrics: dict[str, tuple[str, float, float | None]],
    bare: str | None = None,
) -> Row:
    return Row(program, metrics, has_nannies=True, bare=bare)


ROWS = {
    "small_messages": Row(
        ["small_messages.py"],
        {
            "round_trips_per_s": (HIGHER, 1.8, 2.2),
            "one_way_per_s": (HIGHER, 1.6, 1.9),
        },
    ),
    **{f"small_{mode}": _small(mode) for mode in ("dropped", "kept")},
    **{f"{way}_{mode}": _sizes(way, mode) for way, mode in GIB_BARS},
    "busy_tcp": Row(
        ["busy_receiver.py"],
        {
            f"{64 << 20}_bytes_per_s": NEVER_SLOWER,
            f"{1 << 30}_bytes_per_s": (HIGHER, 2.5, 4),
        },
        TCP_ONLY,
    ),
    "busy_same_host": Row(
        ["busy_receiver.py"],
        {
            f"{64 << 20}_bytes_per_s": NEVER_SLOWER,
            f"{1 << 30}_bytes_per_s": (HIGHER, 5, 8),
        },
    ),
    "beside_transfer": Row(["beside_transfer.py"], {"p99_s": (LOWER, 0.5, 0.2)}),
    "small_tasks": Row(
        ["small_tasks.py"], {"cpu_s_per_task": (LOWER, 0.95, 0.8)}, has_nannies=True
    ),
    "receiver_memory": Row(
        ["receiver_memory.py"],
        {"peak_over_payload": (LOWER + ABSOLUTE, 1.02, None)},
    ),
    "plain_values": _of_workers(
        ["plain_values.py"],
        {
            "integers_cpu_s": (LOWER, 0.1, 0.02),
            "integers_frames": (LOWER + ABSOLUTE, 10, None),
            "floats_cpu_s": (LOWER, 0.1, 0.02),
            "floats_frames": (LOWER + ABSOLUTE, 10, None),
            "arrays_cpu_s": (LOWER, 1.0, 0.5),
            "nested_cpu_s": (LOWER, 1.0, 0.5),
        },
    ),
    "cpu_per_gb": Row(["cpu_per_gb.py"], {"cpu_s_per_gb": (LOWER, 1.0, 0.6)}),
    "spilled_send": _of_workers(
        ["spilled_send.py"],
        {
            "seconds": (LOWER, 0.6, 0.3),
            # None of what it has: a worker writes some pages of its own.
            "written_again_bytes": (LOWER + ABSOLUTE, 1 << 20, None),
            "unpickled": (LOWER + ABSOLUTE, 0, None),
            "growth_bytes": (LOWER + ABSOLUTE, 16 << 20, None),
        },
    ),
    "loop_lag": _of_workers(
        ["loop_lag.py"],
        {
            "worst_s": (LOWER + ABSOLUTE, 0.02, 0.005),
            "seconds": (LOWER, 0.8, 0.6),
        },
        bare="worst_s",
    ),
    "matrix_product": _of_workers(
        ["matrix_product.py"],
        {"written_bytes": (LOWER + ABSOLUTE, 4e9, 3e9)},
    ),
    **{
        f"unspilled_{job}": _of_workers(
            ["unspilled.py", "--job", job], {"done_per_s": (HIGHER, 0.97, 1.0)}
        )
        for job in ("tasks", "shuffle", "merge")
    },
    **{
        f"shuffled_{data}": _of_workers(
            ["shuffled.py", "--data", data],
            {
                "seconds": (LOWER, 1 / 2.5, first),
                "later_seconds": (LOWER, later, aim),
                "cpu_s_per_gb": (LOWER + ABSOLUTE, 4.5, 3),
                "growth_over_data": (LOWER + ABSOLUTE, 1.2, 1.05),
            },
        )
        for data, first, later, aim in (
            ("numeric", 1 / 4, 1 / 4, 1 / 6),
            ("text", 1 / 4, 1 / 3.5, 1 / 5),
        )
    },
    **{
        f"shuffled_{data}_disk": _of_workers(
            ["shuffled.py", "--data", data, "--buffer", "disk"],
            {"seconds": (LOWER, 1 / 2.5, 1 / 4)},
        )
        for data in ("numeric", "text")
    },
    "shuffled_more": Row(
        ["shuffled.py", "--more-gb", "4", "--memory", "9GiB"],
        {"s_per_gb": (LOWER + ABSOLUTE, 1.5, 0.8)},
    ),
    "shuffled_stream": Row(
        [
            *("shuffled.py", "--stream", "--gb", "8", "--memory", "1GiB"),
            *("--frames", "128", "--outputs", "256"),
        ],
        {
            "seconds": (LOWER, 1 / 2, 1 / 3),
            "written_over_data": (LOWER + ABSOLUTE, 1.1, None),
        },
        stock_limit_s=120,
    ),
    "shuffled_auto": Row(
        ["shuffled.py", "--later", "0"],
        {"seconds": (LOWER, 1.05, 1.0)},
        against=["--buffer", "memory"],
    ),
    "shuffled_tasks": _of_workers(
        ["shuffled.py", "--stock-method", "tasks"],
        {"seconds": (LOWER, 1 / 1.5, 1 / 2.5)},
    ),
}
