"""docs/benchmarks.md, written from the rounds in benchmarks/results/."""

import math
import os
import pathlib
import platform
import statistics
from collections.abc import Iterable

import kept_rounds
import pipeline_layers
import pipeline_rows
from rows import ABSOLUTE, HIGHER, ROWS

from spillway.compare.verdict import quartiles

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
DISTRIBUTED = "2026.8.0"


def table(rows: Iterable[str] = ROWS) -> str:
    lines = [
        "| row | metric | stock | Spillway | ratio (middle half) "
        "| pairs | bar | aim | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        pairs = kept_rounds.read(row)
        if not pairs:
            continue
        for metric, (way, bar, aim) in ROWS[row].metrics.items():
            ours = [pair["spillway"][metric] for pair in pairs]
            theirs = [pair["stock"].get(metric, math.inf) for pair in pairs]
            if way.endswith(ABSOLUTE):
                ratios = ours
            else:
                ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            low, middle, high = quartiles(ratios)
            is_there = middle >= bar if way.startswith(HIGHER) else middle <= bar
            state = kept_rounds.state(is_there, len(pairs))
            failed = theirs.count(math.inf)
            if failed:
                state += f"; stock failed in {failed}"
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
        pairs = kept_rounds.read(row)
        if not described.has_nannies or not pairs:
            continue
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
        pairs = [one for one in kept_rounds.read(row) if "bare" in one]
        if described.bare is None or not pairs:
            continue
        found = [
            quartiles([pair[plane][described.bare] for pair in pairs])
            for plane in ("bare", "spillway")
        ]
        cells = " | ".join(f"{b:.3g} ({a:.3g} to {c:.3g})" for a, b, c in found)
        lines.append(f"| {row} | {described.bare} | {cells} | {len(pairs)} |")
    return "\n".join(lines)


def write() -> None:
    text = f"""# Benchmarks

Written by `make bench` (benchmarks/run.py) from the rounds in benchmarks/results/, of
which none is dropped. Each pair is one run on stock distributed {DISTRIBUTED}, in an
environment of its own, and one on Spillway, in turn; a ratio is Spillway's figure over
stock's, and a row is reached when the median of the ratios reaches its bar. Sender and
receiver are two processes on one machine; in the rows of tcp Spillway has
SPILLWAY_DISABLE=same_host, so that all bytes go through a loopback socket.
With fewer than {kept_rounds.LEAST} pairs a row is open, whatever they say.
shuffled_auto is held against Spillway itself with the buffer `memory`, in the column of
stock. Where stock fails its time counts as endless.

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

## Pipelines

Whole jobs of benchmarks/pipelines/, run by `python benchmarks/run.py pipelines/NAME`;
the seconds are those of the work in a cluster that is up, two workers of one thread. In
each round a pipeline runs once on each side; the figures beside the seconds are
`spillway compare`'s ([compare.md](compare.md)), of the whole script. The one to beat is
the best of stock's variants, by the median: as it comes, with the malloc settings that
enable() makes, with `distributed.comm.compression: auto`, and without compression of
what it spills. Where data frames are shuffled the task-based shuffle (`tasks`) is to be
slower too. A run that takes more than {pipeline_rows.LIMIT_S} s counts as endless.

{pipeline_rows.table()}

All sides, median seconds:

{pipeline_rows.variants_table()}

What else was measured, stock as it comes / Spillway:

{pipeline_rows.figures_table()}

Where the time of the threads that run Python goes, stock / Spillway, by
benchmarks/pipeline_layers.py (one run each, with starting and ending): "tasks" is what
pandas, NumPy and Dask do in tasks, "graphs" what Dask does in the client.

{pipeline_layers.table()}
"""
    PAGE.write_text(text)
