"""`spillway run` and `spillway info`, as a user starts them: real scripts, real
clusters of processes."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.timeout(300)  # each starts clusters, on a busy machine too

SPILLWAY = [sys.executable, "-m", "spillway"]

CLUSTER = """
from distributed import Client, LocalCluster

def work(n):
    return b"x" * n

def main():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0",
                      **OPTIONS) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        sizes = client.map(lambda n: len(work(n)), [100_000, 200_000])
        print(sum(client.gather(sizes)))
"""
MAIN = '\nif __name__ == "__main__":\n    main()\n'
PLAIN = "OPTIONS = {}\n" + CLUSTER + MAIN


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def run(*arguments, command=(*SPILLWAY, "run"), **environment):
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        timeout=140,
        env={**os.environ, **environment},
    )


def words(text):
    """The text without the line breaks of a table."""
    return " ".join(text.split())


def test_run_shows_what_each_process_moved(script):
    done = run(script(PLAIN))
    assert (done.returncode, done.stdout) == (0, "300000\n"), done.stderr
    table = done.stderr[done.stderr.index("What Spillway moved") :]
    assert "nannies" in words(table)
    assert table.count("\n worker ") == 2
    assert table.count(" out") == 6  # three processes, messages and bytes
    assert " 0 out" not in table and " 0 in" not in table
    assert "moved nothing" not in table


def test_run_shows_what_a_script_left_open_has_moved(script):
    text = PLAIN.replace("main()\n", "client = Client(LocalCluster(n_workers=1))\n")
    done = run(script("OPTIONS = {}\n" + CLUSTER + text[text.index("\nif __name__") :]))
    assert done.returncode == 0, done.stderr
    assert "worker" in done.stderr and "moved nothing" not in done.stderr


SAYS = """
import json, multiprocessing, sys

def child(queue):
    queue.put([__name__, sys.argv, sys.path[0]])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    facts = [__name__, __file__, sys.argv, sys.path[0], __spec__, queue.get()]
    process.join()
    print(json.dumps([*facts, sys.modules["__main__"].child is child]))
"""


def test_run_is_what_python_does(script):
    path = script(SAYS)
    arguments = (path, "--help", "-x", "a b", "--", "--workers=3")
    stock = run(*arguments, command=(sys.executable,))
    ours = run(*arguments)
    assert stock.returncode == ours.returncode == 0, ours.stderr
    assert json.loads(ours.stdout) == json.loads(stock.stdout)
    assert "made no distributed cluster" in ours.stderr


def test_run_finds_the_scripts_neighbours_through_a_link(tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    (folder / "neighbour.py").write_text("name = 'the neighbour'")
    (folder / "script.py").write_text("import neighbour; print(neighbour.name)")
    (tmp_path / "link.py").symlink_to(folder / "script.py")
    assert run(str(tmp_path / "link.py")).stdout == "the neighbour\n"


ENDS = {
    "exit": ("raise SystemExit(7)", 7),
    "message": ("raise SystemExit('enough')", 1),
    "exception": ("raise KeyError('lost')", 1),
    "syntax": ("this is no Python", 1),
    "os._exit": ("import os; os._exit(9)", 9),
    "killed": ("import os; os.kill(os.getpid(), 9)", 137),
}


@pytest.mark.parametrize(("text", "code"), ENDS.values(), ids=ENDS)
def test_run_passes_the_exit_code_on(script, text, code):
    done = run(script(text))
    assert done.returncode == code
    assert "Spillway" in done.stderr


def test_run_shows_its_table_after_an_exception(script):
    done = run(script(PLAIN + "    raise KeyError('lost')\n"))
    assert done.returncode == 1
    assert "KeyError: 'lost'" in done.stderr
    assert "worker" in done.stderr[done.stderr.index("What Spillway moved") :]


# Not signal.pause(): what comes just before it is missed.
INTERRUPTED = PLAIN.replace(
    "print(sum(",
    "print('ready', flush=True)\n        import time\n"
    "        while True: time.sleep(0.05)\n#",
)


@contextmanager
def in_a_terminal(*command):
    """A command in a process group of its own, which gets signals as a whole."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.timeout(240)  # on a busy machine Dask's nannies take long to end
def test_run_answers_ctrl_c_as_python_does(script):
    with in_a_terminal(*SPILLWAY, "run", script(INTERRUPTED)) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors
    assert "What Spillway moved" in errors


def test_run_passes_sigterm_on(script):
    with in_a_terminal(*SPILLWAY, "run", script(INTERRUPTED)) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "What Spillway moved" in errors


def test_run_fails_when_a_process_moved_nothing_and_gives_no_reason(script):
    """The script puts Dask's own backend back, behind the back of Spillway."""
    behind = (
        "    from distributed.comm import registry, tcp\n"
        "    registry.backends['tcp'] = tcp.TCPBackend()\n    main()\n"
    )
    done = run(script(PLAIN.replace("    main()\n", behind)))
    assert (done.returncode, done.stdout) == (3, "300000\n"), done.stderr
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("spillway run:")]
    assert "scheduler" in line and "moved nothing through Spillway" in line


def test_run_keeps_the_exit_code_of_a_script_that_failed_by_itself(script):
    behind = (
        "    from distributed.comm import registry, tcp\n"
        "    registry.backends['tcp'] = tcp.TCPBackend()\n    main()\n"
        "    raise SystemExit(7)\n"
    )
    assert run(script(PLAIN.replace("    main()\n", behind))).returncode == 7


@pytest.mark.parametrize("switch", ["all", "transport"])
def test_run_takes_a_switch_for_a_reason(script, switch):
    done = run(script(PLAIN), SPILLWAY_DISABLE=switch)
    assert (done.returncode, done.stdout) == (0, "300000\n"), done.stderr
    reasons = [line for line in done.stderr.splitlines() if " moved nothing: " in line]
    assert len(reasons) == 3
    assert f"SPILLWAY_DISABLE={switch}" in reasons[0]


def test_run_takes_a_scheme_of_dasks_for_a_reason(script):
    text = PLAIN.replace("OPTIONS = {}", "OPTIONS = {'processes': False}")
    done = run(script(text))
    assert (done.returncode, done.stdout) == (0, "300000\n"), done.stderr
    assert "inproc:// is left to Dask" in words(done.stderr)


@pytest.fixture
def stock_cluster(tmp_path):
    """A scheduler and a worker on stock Dask, which nobody of ours started."""
    contact = tmp_path / "scheduler.json"
    commands = (
        ["scheduler", "--port", "0", "--dashboard-address", ":0"],
        ["worker", "--nworkers", "1", "--nthreads", "1", "--dashboard-address", ":0"],
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command, "--scheduler-file", str(contact)],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    yield str(contact)
    for process in processes:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def test_run_on_a_cluster_that_it_did_not_start(script, stock_cluster):
    text = f"""
from distributed import Client

with Client(scheduler_file={stock_cluster!r}) as client:
    client.wait_for_workers(1, timeout=60)
    print(client.submit(len, b"x" * 100_000).result())
"""
    done = run(script(text))
    assert (done.returncode, done.stdout) == (0, "100000\n"), done.stderr
    assert "2 of its 2 processes answered" in words(done.stderr)
    assert "script, client" in words(done.stderr)


def test_run_of_no_such_script():
    done = run("/nowhere/script.py")
    assert done.returncode == 2
    assert "/nowhere/script.py" in done.stderr


def test_info_says_what_is_on():
    done = run(command=(*SPILLWAY, "info"))
    assert done.returncode == 0, done.stderr
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert said["spillway"] == said["libspillway"] == "0.1.0"
    assert said["transport"] == said["same_host"] == "on"
    assert {"distributed", "python", "system", "cores", "IPv6"} <= said.keys()


def test_info_says_why_something_is_off():
    done = run(command=(*SPILLWAY, "info"), SPILLWAY_DISABLE="transport")
    said = done.stdout.splitlines()
    for part in ("transport", "same_host"):
        assert f"{part:<12} off: SPILLWAY_DISABLE=transport" in said
