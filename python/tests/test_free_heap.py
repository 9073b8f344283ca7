"""What malloc keeps goes back to the system."""

import os
import subprocess
import sys

from spillway.dask import free_heap
from spillway.dask.malloc_variables import SETTINGS


def test_freed_memory_goes_back():
    """Half of it inside the heap, half at its end, by a thread other than its maker."""
    code = (
        "import threading\n"
        "from spillway.dask import free_heap\n"
        "def resident():\n"
        "    pages = open('/proc/self/statm').read().split()[1]\n"
        "    return int(pages) * 4096 >> 20\n"
        "made = []\n"
        "def make():\n"
        "    for _ in range(200): made.append(bytes(bytearray(b'x') * (1 << 20)))\n"
        "start = resident()\n"
        "thread = threading.Thread(target=make); thread.start(); thread.join()\n"
        "full = resident(); del made[:90], made[20:]\n"
        "kept = resident(); free_heap.give_back()\n"
        "print(full - start, kept - start, resident() - start)\n"
    )
    ours = {setting.variable: setting.value for setting in SETTINGS}
    shown = subprocess.check_output(
        [sys.executable, "-c", code], env=os.environ | ours, text=True
    )
    full, kept, left = map(int, shown.split())
    assert full >= 200
    assert kept >= 190
    assert 20 <= left <= 30


def test_another_c_library_is_named(monkeypatch):
    assert free_heap.why_unavailable() is None
    monkeypatch.setattr(free_heap, "_malloc_trim", None)
    assert "malloc_trim" in free_heap.why_unavailable()
