"""The example runs on stock Dask as well: the same answer, however it is cut."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples/python/flights.py"

pytestmark = pytest.mark.timeout(450)  # up to two whole runs, on a busy machine too


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_answer_does_not_depend_on_workers_or_partitions():
    answer = run()
    assert "336776 flights of 16 airlines" in answer
    assert "The same as plain pandas says." in answer
    assert run("--workers", "1", "--partitions", "3") == answer


def test_the_script_is_plain_dask():
    assert not re.search("spillway", SCRIPT.read_text(), re.IGNORECASE)


def test_a_wrong_answer_is_found(tmp_path):
    """The check can fail: a script whose Dask side loses the last partition."""
    text = SCRIPT.read_text()
    whole = "return per_airline(together.map_partitions(follow_delays)).compute()"
    assert whole in text
    broken = tmp_path / "broken.py"
    broken.write_text(text.replace("(together.map", "(together.partitions[:-1].map"))
    done = subprocess.run(
        [sys.executable, str(broken)], capture_output=True, text=True, timeout=140
    )
    assert done.returncode == 1
    assert "Dask and pandas differ" in done.stderr
