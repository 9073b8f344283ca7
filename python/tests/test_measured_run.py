"""One run of a script, with what its processes used, as it is seen from outside."""

import os
import subprocess
import sys
import time

import pytest

from spillway.compare import measured_run
from spillway.compare.measured_run import measure
from spillway.compare.socket_bytes import SocketBytes
from spillway.compare.tree_watch import TreeWatch

MIB = 1 << 20


def run(code, *arguments):
    return measure([sys.executable, "-c", code, *arguments], dict(os.environ))


def test_the_answer_the_code_and_the_end_of_the_errors():
    found = run(
        "import sys\n"
        "print('x' * 1_000_000)\nprint('digest: 5')\n"
        "sys.stderr.write('begin' + 'e' * 100_000 + 'end')\nsys.exit(7)\n"
    )
    assert (found.code, found.answer.digest) == (7, b"digest: 5")
    assert found.output_end.endswith("xx\ndigest: 5\n")
    assert len(found.output_end) == measured_run.KEPT_BYTES
    assert found.errors_end.endswith("eend")
    assert len(found.errors_end) == measured_run.KEPT_BYTES
    assert found.notes == []


def test_a_signal_is_told_as_by_a_shell():
    assert run("import os; os.kill(os.getpid(), 9)").code == 137


def test_a_script_that_hangs_is_interrupted_at_the_limit():
    code = "import threading; print('here', flush=True); threading.Event().wait()"
    found = measure([sys.executable, "-c", code], dict(os.environ), limit_s=2)
    assert found.code != 0
    assert found.output_end == "here\n"
    assert 2 < found.wall_s
    assert found.notes == ["the script was interrupted after 2 s"]


def test_wall_time_ends_with_the_script():
    child = (
        "import os, sys, time\n"
        "while os.getppid() == int(sys.argv[1]): time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
    )
    begin = time.perf_counter()
    found = run(
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())])\n"
    )
    assert time.perf_counter() - begin - found.wall_s >= 0.5
    assert found.notes == []  # it ended by itself


BURN = "import time\nwhile time.process_time() < 0.4: pass\n"


def test_cpu_counts_also_what_nobody_looked_at(monkeypatch):
    """One child of a child, which ends before the first look after it began."""
    monkeypatch.setattr(measured_run, "PERIOD_S", 3600)
    found = run(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {BURN!r}])\n"
        f"{BURN}"
    )
    assert 0.8 <= found.cpu_s < 1.5
    client = found.watch.cpu_s(found.pid, {})["client"]
    assert 0.39 <= client < 0.8  # of the script's own process up to its end


def test_bytes_written_by_a_child_count_once(tmp_path):
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True)
    if kind.strip() in ("tmpfs", "overlayfs"):
        pytest.skip(f"{tmp_path} is on {kind.strip()}, no disk")
    child = "import sys; open(sys.argv[1], 'wb').write(bytes(20 << 20))"
    found = run(
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {child!r}, sys.argv[1]])\n",
        str(tmp_path / "file"),
    )
    assert 20 * MIB <= found.written_bytes < 22 * MIB


def test_memory_that_is_shared_counts_once(monkeypatch, tmp_path):
    looked = tmp_path / "looked"

    class Told(TreeWatch):
        def sample_memory(self, processes):
            super().sample_memory(processes)
            if len(processes) == 2:
                looked.touch()

    monkeypatch.setattr(measured_run, "TreeWatch", Told)
    found = run(
        "import os, sys, time\n"
        "kept = bytearray(100 << 20)\n"
        "for page in range(0, len(kept), 4096): kept[page] = 1\n"
        "if os.fork() == 0:\n"
        "    while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "    os._exit(0)\n"
        "os.wait()\n",
        str(looked),
    )
    assert 100 * MIB < found.watch.peak_bytes < 190 * MIB


def test_bytes_over_sockets_of_two_processes(monkeypatch, tmp_path):
    looked = tmp_path / "looked"

    class Told(SocketBytes):
        def sample(self, pids):
            super().sample(pids)
            if self._ports:
                looked.touch()

    monkeypatch.setattr(measured_run, "SocketBytes", Told)
    found = run(
        "import os, socket, sys, time\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "if os.fork() == 0:\n"
        "    one = socket.create_connection(server.getsockname())\n"
        "    one.sendall(bytes(3_000_000))\n"
        "    os._exit(0)\n"
        "other = server.accept()[0]\n"
        "while other.recv(1 << 20): pass\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n",
        str(looked),
    )
    assert 3_000_000 <= found.socket_bytes <= 3_000_100


def test_what_the_script_leaves_is_ended_and_told(monkeypatch):
    monkeypatch.setattr(measured_run, "LEFT_GRACE_S", 0.2)
    found = run(
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '99'])\n"
        "print(child.pid)\n"
    )
    assert found.notes == ["the script left processes behind, which were ended"]
    assert not os.path.exists(f"/proc/{int(found.answer.beginning)}")
    assert found.code == 0


def test_without_a_list_of_sockets_the_rest_is_measured(monkeypatch):
    def nowhere():
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(measured_run, "SocketBytes", nowhere)
    found = run("print(1)")
    assert found.socket_bytes is None and found.wall_s > 0
    (note,) = found.notes
    assert "bytes over sockets are not known" in note and "not supported" in note
