"""Each process leaves its figures in a directory, for whoever reads them afterwards.

Scripts close their clusters before they end, and workers are killed: what a process
moved must be on disk before it is asked for. `spillway run` names the directory in the
environment, which every process it starts inherits; without it nothing here does
anything.

A process leaves one file, `<pid>.json`: spillway.stats(), and beside it
- "addresses", of what it runs, by role, such as {"worker": ["tcp://127.0.0.1:40001"]};
  a client is known by the address of its scheduler;
- "started", the pids of the workers that its nannies started;
- "is_last", whether the process wrote it as it ended.
"""

import json
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any

from spillway.stats import stats

logger = logging.getLogger("spillway")

VARIABLE = "SPILLWAY_STATS_DIR"
INTERVAL_MS = 1000

_lock = threading.Lock()
"""Over all below: the servers of a process may have event loops of their own."""
_addresses: dict[str, set[str]] = {}
_started: set[int] = set()
_tickers: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_written: dict[str, Any] | None = None
_writes_at_exit_of: int | None = None


def directory() -> Path | None:
    """Where this process leaves its figures, None for nowhere."""
    name = os.environ.get(VARIABLE)
    return Path(name) if name else None


def write(role: str, address: str | None, *, is_last: bool = False) -> None:
    """Replace what this process left by its figures of now, unless nothing changed.
    Remembers the role and the address for all that it leaves later."""
    global _written
    target = directory()
    if target is None:
        return
    with _lock:
        _addresses.setdefault(role, set()).update({address} - {None})
        now = {
            **stats(),
            "addresses": {name: sorted(known) for name, known in _addresses.items()},
            "started": sorted(_started),
            "is_last": is_last,
        }
        if now != _written:
            leave(target, str(os.getpid()), now)
            _written = now


def write_at_exit(role: str) -> None:
    """Write when this process ends, marked as its last figures.

    The worker of a nanny ends without atexit, but with multiprocessing's finalizers,
    which run at the end of every other process as well. With a priority below zero
    they come after the process's children have gone."""
    global _writes_at_exit_of
    from multiprocessing.util import Finalize

    pid = os.getpid()

    def write_last() -> None:
        if os.getpid() == pid:  # a fork inherits the finalizer
            _write_or_warn(role, None, is_last=True)

    if directory() is not None and _writes_at_exit_of != pid:
        _writes_at_exit_of = pid
        Finalize(None, write_last, exitpriority=-1)


def start_writing(server: Any, role: str) -> None:
    """Write the figures of the process that runs a Scheduler, Nanny, Worker or Client:
    now, once a second on its event loop while they change, and at the process's end."""
    if directory() is None or server in _tickers:
        return
    from tornado.ioloop import PeriodicCallback

    reference = weakref.ref(server)

    def tick() -> None:
        server = reference()
        if server is None or not _write_for(server, role):
            ticker.stop()

    ticker = _tickers[server] = PeriodicCallback(tick, INTERVAL_MS)
    write_at_exit(role)
    ticker.start()
    tick()


def stop_writing(server: Any, role: str) -> None:
    """Write for the last time on behalf of a server, which begins to close. The process
    may still move something, and has its own last word at its end."""
    ticker = _tickers.pop(server, None)
    if ticker is not None:
        ticker.stop()
        _write_for(server, role)


def leave(target: Path, name: str, content: dict[str, Any]) -> None:
    """Put a file there, such that a reader meets an older one or this one."""
    beside = target / f"{name}.tmp"
    beside.write_text(json.dumps(content), encoding="utf-8")
    beside.replace(target / f"{name}.json")


def collect(source: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """What every process left in a directory."""
    files = sorted(Path(source).glob("*.json"))
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def _write_for(server: Any, role: str) -> bool:
    if role == "nanny" and server.pid is not None:
        _started.add(server.pid)
    named = server.scheduler if role == "client" else server
    return _write_or_warn(role, named.address if named is not None else None)


def _write_or_warn(role: str, address: str | None, *, is_last: bool = False) -> bool:
    try:
        write(role, address, is_last=is_last)
    except OSError as error:
        # Figures are not worth a worker, and whoever made the directory may be gone.
        logger.warning("Spillway leaves no more figures of this process: %s", error)
        return False
    return True
