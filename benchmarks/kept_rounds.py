"""Rounds in benchmarks/results/: of those that were measured none is dropped."""

import json
import os
import pathlib
import subprocess
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results"
LEAST = 7
"""With fewer a row is open."""


def read(row: str) -> list[dict[str, Any]]:
    """All rounds of a row."""
    path = _path(row)
    return json.loads(path.read_text()) if path.exists() else []


def add(row: str, at: float, measured: dict[str, Any]) -> None:
    """Keep one more, which began then, by time.time()."""
    rounds = read(row)
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
    rounds.append(
        {"at": began, **measured, "commit": _commit(), "load": os.getloadavg()[0]}
    )
    path = _path(row)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rounds, indent=1) + "\n")
    print(row, len(rounds), flush=True)


def state(is_there: bool, rounds: int) -> str:
    """What is said of a row whose median reaches its bar, or does not."""
    if rounds < LEAST:
        return f"open: {LEAST} rounds decide"
    return "reached" if is_there else "MISSED"


def _path(row: str) -> pathlib.Path:
    return RESULTS / f"{row}.json"


def _commit() -> str:
    asked = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
    )
    return asked.stdout.strip()
