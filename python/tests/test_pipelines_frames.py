"""The pipelines of DataFrames and of records: plain Dask gives their answers, as DuckDB
or pandas does. On tiny data."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

PIPELINES = Path(__file__).parents[2] / "benchmarks/pipelines"
GB = {
    "groupby_apply": 0.005,
    "h2o_groupby_join": 0.002,
    "records_bag": 0.001,
    "skewed_merge": 0.005,
    "tpch_joins": 0.005,
}

pytestmark = [
    pytest.mark.timeout(300),  # a whole run with its cluster, on a busy machine too
    pytest.mark.skipif(
        int(pd.__version__.split(".")[0]) < 3, reason="they have columns of pandas 3"
    ),
]


def run(script, name):
    command = [sys.executable, str(script), "--gb", str(GB[name]), "--check"]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


@pytest.mark.parametrize("name", GB)
def test_the_answer_is_right(name):
    done = run(PIPELINES / f"{name}.py", name)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^digest: [1-9]\d* rows \w{16}\ncheck: right$", done.stdout, re.M)


@pytest.mark.parametrize("name", GB)
def test_the_script_is_plain_dask(name):
    assert not re.search(
        "spillway", (PIPELINES / f"{name}.py").read_text(), re.IGNORECASE
    )
