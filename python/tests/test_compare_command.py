"""`spillway compare`, as a user starts it. Its stock side is an environment of links to
the packages of this one."""

import json
import os
import signal
import site
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)  # it starts clusters, on a busy machine too

BYTES = 30_000_000
CLUSTER = f"""
import json, sys
from distributed import Client, LocalCluster

def main():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as one:
        with Client(one) as client:
            client.wait_for_workers(2)
            first, second = client.scheduler_info()["workers"]
            made = client.submit(bytes, {BYTES}, workers=[first])
            print("digest:", client.submit(len, made, workers=[second]).result())

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def stock_python(tmp_path_factory):
    home = tmp_path_factory.mktemp("stock")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    links = home / "links"
    links.mkdir()
    for packages in filter(Path.is_dir, map(Path, site.getsitepackages())):
        for one in packages.iterdir():
            if "spillway" not in one.name:
                (links / one.name).symlink_to(one)
    (own,) = home.glob("lib/python*/site-packages")
    (own / "links.pth").write_text(f"{links}\n")
    return str(home / "bin" / "python")


@pytest.fixture
def command(tmp_path, stock_python):
    """The command that compares a script of this text."""

    def write(text, *options):
        script = tmp_path / "script.py"
        script.write_text(text)
        start = [sys.executable, "-m", "spillway", "compare"]
        return [*start, "--stock-python", stock_python, *options, str(script)]

    return write


def run(command, *arguments):
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=280
    )


def test_a_cluster_is_compared(command, tmp_path):
    found, chart = tmp_path / "found.json", tmp_path / "chart.svg"
    options = ("--rounds", "1", "--json", str(found), "--chart", str(chart))
    done = run(command(CLUSTER, *options), "--gb", "1")
    assert done.returncode == 0, done.stderr
    assert "wall time" in done.stdout and "too few rounds" in done.stdout
    content = json.loads(found.read_text())
    assert content["arguments"] == ["--gb", "1"]
    (runs,) = content["rounds"]
    for side in ("stock", "spillway"):
        figures = runs[side]
        assert figures.pop("scheduler_cpu_s") is None
        assert all(value is not None for value in figures.values())
        assert BYTES <= figures["socket_bytes"] < BYTES + 200_000
        assert figures["workers_cpu_s"] > 0.2 < figures["client_cpu_s"]
        by_role = figures["workers_cpu_s"] + figures["client_cpu_s"]
        assert by_role == pytest.approx(figures["cpu_s"], abs=0.5)
        assert BYTES < figures["worker_peak_bytes"] < figures["peak_bytes"]
        assert 0 < figures["worker_lag_s"] < figures["wall_s"]
    assert content["notes"] == ["a scheduler ran in the client's process"]
    assert "<svg" in chart.read_text()


def test_a_script_that_fails_on_one_side(command):
    done = run(command("import spillway"))
    assert done.returncode == 4, done.stderr
    assert "the script failed in round 1 of 5, stock" in done.stderr
    assert "No module named 'spillway'" in done.stderr


def test_a_script_without_a_cluster(command):
    done = run(command("print('digest: 1')"))
    assert done.returncode == 3, done.stderr
    assert "made no cluster and no client" in done.stderr


def test_a_stock_side_with_spillway(command):
    done = run([*command("")[:-1], "--stock-python", sys.executable, __file__])
    assert done.returncode == 6
    assert "can import spillway" in done.stderr


def test_where_nothing_can_be_written_nothing_runs(command):
    done = run(command("raise KeyError", "--chart", "/nowhere/chart.svg"))
    assert done.returncode == 2
    assert "there is no folder /nowhere" in done.stderr


HANGS = """
import os, subprocess, sys
escapes = sys.argv[2] == "escapes"
child = subprocess.Popen(["sleep", "600"], start_new_session=escapes)
with open(sys.argv[1] + ".tmp", "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
child.wait()
"""


@pytest.mark.parametrize(
    ("number", "child"), [(signal.SIGINT, "escapes"), (signal.SIGTERM, "stays")]
)
def test_nothing_is_left_after_a_signal(command, tmp_path, number, child):
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [*command(HANGS), str(pids), child], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not pids.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "Traceback" not in errors
    for pid in pids.read_text().split():
        assert not os.path.exists(f"/proc/{pid}")
