"""Whether a process runs under our malloc settings, and what those do."""

import os
import subprocess
import sys

import pytest

from spillway.dask.malloc_variables import SETTINGS, in_environment


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.variable)
def test_one_of_them_is_enough(setting, monkeypatch):
    for other in SETTINGS:
        monkeypatch.delenv(other.variable, raising=False)
    assert not in_environment()
    monkeypatch.setenv(setting.variable, "77")
    assert not in_environment()
    monkeypatch.setenv(setting.variable, setting.value)
    assert in_environment() == [setting]


def test_freed_memory_is_taken_again_without_page_faults():
    """In a task's thread, 2,000 times a block of 1 MiB: 256 pages each."""
    code = (
        "import resource, threading\n"
        "def work():\n"
        "    faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    bytearray(1 << 20), bytearray(1 << 20)\n"
        "    before = faults()\n"
        "    for _ in range(2000): bytes(bytearray(b'x') * (1 << 20))\n"
        "    print(faults() - before)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    )
    ours = {setting.variable: setting.value for setting in SETTINGS}
    plain = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    faults = [
        int(
            subprocess.check_output(
                [sys.executable, "-c", code], env=plain | environ, text=True
            )
        )
        for environ in ({"MALLOC_TRIM_THRESHOLD_": "65536"}, ours)
    ]
    assert faults[0] > 2000 * 256
    assert faults[1] < 2000 * 2
