"""Each process leaves its figures: while it runs, as it ends, and if it is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from spillway import process_stats


class Server:
    """As much of a Dask server as a writer looks at."""

    address = "tcp://127.0.0.1:1"
    pid = 4242


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv(process_stats.VARIABLE, str(tmp_path))
    monkeypatch.setattr(process_stats, "_addresses", {})
    monkeypatch.setattr(process_stats, "_started", set())
    monkeypatch.setattr(process_stats, "_written", None)
    return tmp_path


def only(directory):
    (process,) = process_stats.collect(directory)
    return process


def python(code, directory, **options):
    environment = {**os.environ, process_stats.VARIABLE: str(directory)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, text=True, **options
    )


def test_write_adds_up_what_a_process_runs(directory):
    process_stats.write("scheduler", "tcp://h:1")
    process_stats.write("worker", "tcp://h:2")
    process_stats.write("worker", "tcp://h:3")
    process = only(directory)
    assert process["pid"] == os.getpid()
    assert process["addresses"] == {
        "scheduler": ["tcp://h:1"],
        "worker": ["tcp://h:2", "tcp://h:3"],
    }
    assert not process["is_last"]
    assert {"messages", "bytes", "copies", "parts"} <= process.keys()


def test_without_a_directory_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.delenv(process_stats.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    process_stats.write("worker", "tcp://h:1")
    process_stats.start_writing(Server(), "worker")  # no event loop, and none needed
    assert list(tmp_path.iterdir()) == []


def test_write_replaces_nothing_that_did_not_change(directory, monkeypatch):
    monkeypatch.setattr(process_stats, "stats", lambda: {"pid": 1})
    process_stats.write("worker", "tcp://h:1")
    (file,) = directory.iterdir()
    before = file.stat().st_ino
    process_stats.write("worker", "tcp://h:1")
    assert file.stat().st_ino == before
    process_stats.write("worker", "tcp://h:2")
    assert file.stat().st_ino != before


def test_a_reader_never_meets_half_a_file(directory):
    process_stats.leave(directory, "1", {"old": 1})
    with open(directory / "1.json", encoding="utf-8") as reader:
        process_stats.leave(directory, "1", {"new": 1})
        assert json.load(reader) == {"old": 1}
    assert process_stats.collect(directory) == [{"new": 1}]


async def test_start_writing_follows_the_figures(directory, monkeypatch):
    figures = {"pid": 1, "count": 0}
    monkeypatch.setattr(process_stats, "stats", lambda: dict(figures))
    monkeypatch.setattr(process_stats, "INTERVAL_MS", 5)
    server = Server()
    process_stats.start_writing(server, "nanny")
    assert only(directory)["count"] == 0
    assert only(directory)["started"] == [4242]
    figures["count"] = 1
    async with asyncio.timeout(10):
        while only(directory)["count"] != 1:
            await asyncio.sleep(0.001)
    figures["count"] = 2
    process_stats.stop_writing(server, "nanny")
    assert only(directory)["count"] == 2


async def test_a_directory_that_is_gone_ends_the_writing(
    directory, monkeypatch, caplog
):
    monkeypatch.setattr(process_stats, "INTERVAL_MS", 1)
    directory.rename(directory.with_name("elsewhere"))
    server = Server()
    process_stats.start_writing(server, "worker")
    assert not process_stats._tickers[server].is_running()
    assert "leaves no more figures" in caplog.text


ENDS = {
    "returns": ("pass", 0),
    "raises": ("raise KeyError", 1),
    "exits": ("import sys; sys.exit(5)", 5),
}


@pytest.mark.parametrize(("end", "code"), ENDS.values(), ids=ENDS)
def test_write_at_exit_has_the_last_word(directory, end, code):
    begin = "from spillway import process_stats; process_stats.write_at_exit('script')"
    with python(f"{begin}\n{end}", directory, stderr=subprocess.DEVNULL) as process:
        assert process.wait(60) == code
    assert only(directory)["is_last"]
    assert only(directory)["addresses"] == {"script": []}


CHILD = """
import multiprocessing
from spillway import process_stats

def child():
    process_stats.write_at_exit("worker")

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    process = context.Process(target=child)
    process.start()
    process.join()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_write_at_exit_in_a_child_of_multiprocessing(
    directory, tmp_path_factory, method
):
    """Which is what a nanny's worker is: atexit is not called in each of these."""
    script = tmp_path_factory.mktemp("script") / "parent.py"
    script.write_text(CHILD.format(method=method))
    environment = {**os.environ, process_stats.VARIABLE: str(directory)}
    subprocess.run([sys.executable, script], env=environment, check=True, timeout=60)
    assert only(directory)["is_last"]
    assert only(directory)["addresses"] == {"worker": []}


def test_a_fork_does_not_write_in_its_parents_name(directory):
    code = """
import os
from spillway import process_stats
process_stats.write_at_exit("script")
if os.fork() == 0:
    raise SystemExit
os.wait()
"""
    with python(code, directory) as process:
        assert process.wait(60) == 0
        assert only(directory)["pid"] == process.pid


def test_a_killed_process_leaves_its_figures_of_before(directory):
    code = """
import signal
from spillway import process_stats
process_stats.write_at_exit("worker")
process_stats.write("worker", "tcp://h:1")
print("written", flush=True)
signal.pause()
"""
    with python(code, directory, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    assert only(directory)["addresses"] == {"worker": ["tcp://h:1"]}
    assert not only(directory)["is_last"]
