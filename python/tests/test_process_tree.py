"""A command and what it starts, found and ended whatever they do."""

import signal
import subprocess
import sys

import psutil
import pytest

from spillway.compare.process_tree import ProcessTree

# A child that leaves its parent's session and outlives it, as daemons do, and that
# ignores what it can.
ESCAPES = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    signal.pause()
if sys.argv[1] == "stay":
    signal.pause()
"""


def start(tree, code, *arguments):
    process = tree.start([sys.executable, "-c", code, *arguments], {})
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("parent", ["stay", "leave"])
def test_nothing_is_left_of_what_escapes(parent):
    with ProcessTree() as tree:
        process, child = start(tree, ESCAPES, parent)
        if parent == "leave":
            process.wait(30)
        assert child in [one.pid for one in tree.processes()]
        tree.end(0.1)
        assert tree.processes() == []
    assert not psutil.pid_exists(child)
    process.stdout.close()
    process.stderr.close()


def test_leaving_ends_what_is_there():
    with pytest.raises(KeyError), ProcessTree() as tree:
        process, child = start(tree, ESCAPES, "stay")
        raise KeyError
    assert not psutil.pid_exists(child) and process.returncode == -signal.SIGKILL
    process.stdout.close()
    process.stderr.close()


def test_end_asks_first():
    code = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
print(0, flush=True)
while True:  # pause() misses what comes just before it
    time.sleep(0.05)
"""
    with ProcessTree() as tree:
        process, _ = start(tree, code)
        tree.end(30)
        assert process.returncode == 7
    process.stdout.close()
    process.stderr.close()


def test_what_was_there_before_is_left_alone():
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with ProcessTree() as tree:
        process, _ = start(tree, "print(0)")
        assert other.pid not in [one.pid for one in tree.processes()]
    assert other.poll() is None
    other.communicate(b"\n", timeout=30)
    assert other.returncode == 0
    process.stdout.close()
    process.stderr.close()
