"""Measure Spillway against stock Dask, in pairs, and write what was found.

    python benchmarks/run.py [ROW ...] [--rounds 7] [--stock-python PYTHON]

Each round runs a row's program once on stock and once on Spillway, in turn, the first
of the two alternating. Stock runs in an environment of its own in which Spillway cannot
be imported; it is made under build/ with the same pins unless --stock-python names one.
All rounds are added to benchmarks/results/ROW.json, none is dropped, and the table in
docs/benchmarks.md is written from those files.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
TABLE = ROOT / "docs" / "benchmarks.md"
DISTRIBUTED = "2026.8.0"

HIGHER, LOWER = "at least", "at most"
ABSOLUTE = " (absolute)"
LEAST_PAIRS = 7

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
    "shuffled_tasks": _of_workers(
        ["shuffled.py", "--stock-method", "tasks"],
        {"seconds": (LOWER, 1 / 1.5, 1 / 2.5)},
    ),
}


def stock_environment() -> pathlib.Path:
    """The python of an environment with the pins of ours, without Spillway."""
    home = ROOT / "build" / "bench-stock"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run(
            [
                *(str(python), "-m", "pip", "install", "--quiet"),
                *("--constraint", str(ROOT / "constraints" / "newest.txt")),
                *("distributed", "numpy", "pandas", "pyarrow", "lz4"),
            ],
            check=True,
        )
    return python


def check_environments(stock: pathlib.Path) -> None:
    """Stock must be the version we measure against, and unable to import Spillway."""
    ask = "import distributed; print(distributed.__version__)"
    for python in (stock, pathlib.Path(sys.executable)):
        found = subprocess.check_output([str(python), "-c", ask], text=True).strip()
        if found != DISTRIBUTED:
            sys.exit(f"{python} has distributed {found}, not {DISTRIBUTED}")
    found = subprocess.run(
        [str(stock), "-c", "import spillway"], stderr=subprocess.DEVNULL, cwd="/"
    )
    if found.returncode == 0:
        sys.exit(f"{stock} can import spillway, so it is not stock")


def once(python: str, row: Row, plane: str, environment: dict[str, str]) -> dict:
    program = [str(HERE / row.program[0]), *row.program[1:]]
    done = subprocess.run(
        [python, *program, "--plane", plane],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return json.loads(done.stdout.splitlines()[-1])


def malloc_environment() -> dict[str, str]:
    """Has Dask's nannies start workers with the malloc settings that Spillway gives."""
    from spillway.dask.malloc_variables import SETTINGS

    values = {one.variable: one.value for one in SETTINGS}
    return {"DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON": repr(values)}


def measure(row: str, rounds: int, stock: pathlib.Path) -> None:
    path = RESULTS / f"{row}.json"
    kept = json.loads(path.read_text()) if path.exists() else []
    for _ in range(rounds):
        pair: dict = {"at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())}
        order = ["stock", "spillway"] if len(kept) % 2 == 0 else ["spillway", "stock"]
        for plane in order:
            if plane == "stock":
                pair[plane] = once(str(stock), ROWS[row], plane, {})
            else:
                ours = ROWS[row].environment
                pair[plane] = once(sys.executable, ROWS[row], plane, ours)
        if ROWS[row].has_nannies:
            pair["stock, our malloc settings"] = once(
                str(stock), ROWS[row], "stock", malloc_environment()
            )
        if ROWS[row].bare is not None:
            pair["bare"] = once(str(stock), ROWS[row], "none", {})
        pair["commit"] = commit()
        pair["load"] = os.getloadavg()[0]
        kept.append(pair)
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(kept, indent=1) + "\n")
        print(row, len(kept), flush=True)


def commit() -> str:
    asked = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
    )
    return asked.stdout.strip()


def quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def table() -> str:
    lines = [
        "| row | metric | stock | Spillway | ratio (middle half) "
        "| pairs | bar | aim | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row, described in ROWS.items():
        path = RESULTS / f"{row}.json"
        if not path.exists():
            continue
        pairs = json.loads(path.read_text())
        for metric, (way, bar, aim) in described.metrics.items():
            ours = [pair["spillway"][metric] for pair in pairs]
            theirs = [pair["stock"][metric] for pair in pairs]
            if way.endswith(ABSOLUTE):
                ratios = ours
            else:
                ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            low, middle, high = quartiles(ratios)
            is_there = middle >= bar if way.startswith(HIGHER) else middle <= bar
            state = "reached" if is_there else "MISSED"
            if len(pairs) < LEAST_PAIRS:
                state = f"open: {LEAST_PAIRS} pairs decide"
            lines.append(
                f"| {row} | {metric} | {statistics.median(theirs):.4g} "
                f"| {statistics.median(ours):.4g} "
                f"| {middle:.3g} ({low:.3g} to {high:.3g}) | {len(pairs)} "
                f"| {way} {bar} | {aim or ''} | {state} |"
            )
    return "\n".join(lines)


def malloc_table() -> str:
    """What the malloc settings alone do to stock, where nannies start the workers."""
    lines = ["| row | metric | stock with our malloc settings / stock | pairs |"]
    lines.append("|---|---|---|---|")
    for row, described in ROWS.items():
        path = RESULTS / f"{row}.json"
        if not described.has_nannies or not path.exists():
            continue
        pairs = json.loads(path.read_text())
        for metric, (way, _, _) in described.metrics.items():
            if way.endswith(ABSOLUTE):
                continue
            ratios = [
                pair["stock, our malloc settings"][metric] / pair["stock"][metric]
                for pair in pairs
            ]
            low, middle, high = quartiles(ratios)
            lines.append(
                f"| {row} | {metric} | {middle:.3g} ({low:.3g} to {high:.3g}) "
                f"| {len(pairs)} |"
            )
    return "\n".join(lines)


def bare_table() -> str:
    """What the machine does where there is no data plane."""
    lines = ["| row | metric | bare (middle half) | Spillway (middle half) | runs |"]
    lines.append("|---|---|---|---|---|")
    for row, described in ROWS.items():
        path = RESULTS / f"{row}.json"
        if described.bare is None or not path.exists():
            continue
        pairs = [one for one in json.loads(path.read_text()) if "bare" in one]
        if not pairs:
            continue
        found = [
            quartiles([pair[plane][described.bare] for pair in pairs])
            for plane in ("bare", "spillway")
        ]
        cells = " | ".join(f"{b:.3g} ({a:.3g} to {c:.3g})" for a, b, c in found)
        lines.append(f"| {row} | {described.bare} | {cells} | {len(pairs)} |")
    return "\n".join(lines)


def write_table() -> None:
    pages = f"""# Benchmarks

Written by `make bench` (benchmarks/run.py) from the rounds in benchmarks/results/, of
which none is dropped. Each pair is one run on stock distributed {DISTRIBUTED}, in an
environment of its own, and one on Spillway, in turn; a ratio is Spillway's figure over
stock's, and a row is reached when the median of the ratios reaches its bar. Sender and
receiver are two processes on one machine; in the rows of tcp Spillway has
SPILLWAY_DISABLE=same_host, so that all bytes go through a loopback socket.
With fewer than {LEAST_PAIRS} pairs a row is open, whatever they say.

Rounds of an earlier version, which had no threads and sent all by TCP, are in
benchmarks/results/0.1.0/, those of one whose stores took to disk also what a task
waited for in benchmarks/results/all_to_disk/, and those of one that sent by the stream
what it had on disk in benchmarks/results/by_stream/. Two of shuffles from before memory
moved (decisions/0028) are in benchmarks/results/fresh_pages/.

The rows of shuffles ran at the highest priority (`nice -n -15`, without autogroups)
while other work was on the machine at the lowest; the load is in the rounds. Memory
that was free for a while costs more there, as its host has taken it: the rounds of a
row differ by that, on both planes.

Machine: {os.cpu_count()} virtual cores, {platform.machine()}, Linux
{platform.release()}, Python {platform.python_version()}, congestion control
{pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()}.

{table()}

Sender and receiver of the other rows are started by no nanny, so both planes have the
system's malloc settings there. What the settings that Spillway gives to workers of
nannies do by themselves (docs/decisions/0006-malloc-settings.md), on stock:

{malloc_table()}

How late a loop is that has nothing to do, beside one thread that makes, writes and
reads the same values (`loop_lag.py --plane none`): what the machine does, whatever the
data plane.

{bare_table()}
"""
    TABLE.write_text(pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], default=[])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--stock-python", type=pathlib.Path)
    arguments = parser.parse_args()
    stock = arguments.stock_python or stock_environment()
    check_environments(stock)
    for row in arguments.rows or ROWS:
        measure(row, arguments.rounds, stock)
    write_table()
    print(table())


if __name__ == "__main__":
    main()
