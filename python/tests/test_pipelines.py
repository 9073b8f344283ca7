"""The pipelines in benchmarks/pipelines: small, and held against what DuckDB, pandas
and numpy give without Dask."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from distributed import LocalCluster

FOLDER = Path(__file__).parents[2] / "benchmarks/pipelines"
GB = {
    "climate_rechunk": 0.005,
    "image_overlap": 0.02,
    "covariance": 0.1,
    "model_fanout": 0.01,
    "task_tree": 0.0003,
    "groupby_apply": 0.005,
    "h2o_groupby_join": 0.002,
    "records_bag": 0.001,
    "skewed_merge": 0.005,
    "tpch_joins": 0.005,
}

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        int(pd.__version__.split(".")[0]) < 3, reason="they have columns of pandas 3"
    ),
]


@pytest.fixture(scope="module")
def scheduler():
    """Of workers that cannot import what lies in the folder."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        yield cluster.scheduler_address


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, str(script), "--check", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
    )


def assert_right(done):
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "check: right"


@pytest.mark.parametrize("name", GB)
def test_the_answer_is_right(name, scheduler):
    script = FOLDER / f"{name}.py"
    assert_right(run(script, "--gb", GB[name], "--scheduler", scheduler))


def test_a_cluster_of_its_own_gives_the_same_answer():
    assert_right(run(FOLDER / "task_tree.py", "--gb", GB["task_tree"]))


@pytest.mark.parametrize("name", GB)
def test_the_script_is_plain_dask(name):
    text = (FOLDER / f"{name}.py").read_text()
    assert not re.search("spillway", text, re.IGNORECASE)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("climate_rechunk", "anomalies - of_the", "anomalies + of_the"),
        ("image_overlap", "depth=(0, REACH + 1, REACH + 1)", "depth=0"),
        ("covariance", "centred.T", "centred.T[:, ::-1]"),
        ("model_fanout", "submit(draw, entries, VERSIONS)", "submit(draw, entries, 0)"),
        ("task_tree", "start + TOGETHER]", "start + TOGETHER - 1]"),
    ],
)
def test_a_wrong_answer_is_found(name, right, wrong, scheduler, tmp_path):
    """The check can fail: what Dask computes is not what it should be."""
    text = (FOLDER / f"{name}.py").read_text()
    assert text.count(right) == 1
    (tmp_path / "broken.py").write_text(text.replace(right, wrong))
    shutil.copy(FOLDER / "pipeline.py", tmp_path)
    arguments = ["--gb", GB[name], "--scheduler", scheduler]
    done = run(tmp_path / "broken.py", *arguments)
    assert done.returncode == 1
    assert "AssertionError: DataFrame.iloc" in done.stderr
