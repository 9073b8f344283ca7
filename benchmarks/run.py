"""Measure Spillway against stock Dask, in pairs, and write what was found.

    python benchmarks/run.py [ROW ...] [--rounds 7] [--stock-python PYTHON]

A ROW is one of rows.py, or a pipeline of pipelines/. Each round runs a row's program
once on stock and once on Spillway, in turn, the first of the two alternating, and a
pipeline on each variant of stock's settings too (pipeline_rows.py). Stock runs in an
environment of its own in which Spillway cannot be imported; it is made under build/,
with the same pins, unless --stock-python names one. All rounds are added to
benchmarks/results/, none is dropped, and the tables in docs/benchmarks.md are written
from those files (page.py).
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import kept_rounds
import page
import pipeline_rows
from rows import ROWS, Row
from stock_variants import malloc_environment

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent


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
        if found != page.DISTRIBUTED:
            sys.exit(f"{python} has distributed {found}, not {page.DISTRIBUTED}")
    found = subprocess.run(
        [str(stock), "-c", "import spillway"], stderr=subprocess.DEVNULL, cwd="/"
    )
    if found.returncode == 0:
        sys.exit(f"{stock} can import spillway, so it is not stock")


def once(
    python: str,
    row: Row,
    plane: str,
    environment: dict[str, str],
    arguments: Sequence[str] = (),
) -> dict:
    program = [str(HERE / row.program[0]), *row.program[1:], *arguments]
    limit_s = row.stock_limit_s if plane == "stock" else None
    process = subprocess.Popen(
        [python, *program, "--plane", plane],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done after {limit_s} s"}
    finally:
        _end_session(process)
    if process.returncode == 0:
        return json.loads(output.splitlines()[-1])
    if limit_s is None:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return {"failed": f"exit code {process.returncode}"}


def _end_session(process: subprocess.Popen) -> None:
    """Nothing that a run has started outlives it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def reference(row: Row, stock: pathlib.Path) -> dict:
    """What Spillway's figures are held against."""
    if row.against is None:
        return once(str(stock), row, "stock", {})
    return once(sys.executable, row, "spillway", row.environment, row.against)


def measure(row: str, rounds: int, stock: pathlib.Path) -> None:
    for _ in range(rounds):
        at, pair = time.time(), {}
        order = ["stock", "spillway"]
        if len(kept_rounds.read(row)) % 2:
            order.reverse()
        for plane in order:
            if plane == "stock":
                pair[plane] = reference(ROWS[row], stock)
            else:
                ours = ROWS[row].environment
                pair[plane] = once(sys.executable, ROWS[row], plane, ours)
        if ROWS[row].has_nannies:
            pair["stock, our malloc settings"] = once(
                str(stock), ROWS[row], "stock", malloc_environment()
            )
        if ROWS[row].bare is not None:
            pair["bare"] = once(str(stock), ROWS[row], "none", {})
        kept_rounds.add(row, at, pair)


def main() -> None:
    names = [*ROWS, *pipeline_rows.PIPELINES]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", choices=[[], *names], default=[])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--stock-python", type=pathlib.Path)
    arguments = parser.parse_args()
    stock = arguments.stock_python or stock_environment()
    check_environments(stock)
    chosen = arguments.rows or names
    for name in chosen:
        if name in ROWS:
            measure(name, arguments.rounds, stock)
        else:
            pipeline_rows.measure(name, arguments.rounds, stock)
    page.write()
    print(page.table([name for name in chosen if name in ROWS]))
    print(pipeline_rows.table([name for name in chosen if name not in ROWS]))


if __name__ == "__main__":
    main()
