"""A command and all that it starts, whoever of them outlives whom.

This process adopts what loses its parent (a child subreaper, prctl(2)), so that nothing
escapes: all of them can be found, ended and waited for here, and once they are, the
system has added what they used to this process's children.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02


class ProcessTree:
    """While it is entered, what start() started and what came of it."""

    def __enter__(self) -> "ProcessTree":
        self._others = set(psutil.Process().children())
        self.root: subprocess.Popen[bytes] | None = None
        _adopt_orphans(True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing of it is left."""
        self._kill()
        _adopt_orphans(False)

    def start(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start the command, in a session of its own, so that Ctrl-C comes to nobody
        but us; its output comes by pipes."""
        self.root = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return self.root

    def processes(self) -> list[psutil.Process]:
        """All of them, the command's own first while it is there."""
        me = psutil.Process()
        own = [one for one in me.children(recursive=True) if one not in self._others]
        return sorted(own, key=lambda one: one.pid != self.root.pid)

    def reap(self) -> None:
        """Let go of the adopted ones that have ended, not of the command's own."""
        for one in psutil.Process().children():
            if one not in self._others and one.pid != self.root.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)

    def end(self, grace_s: float) -> None:
        """Interrupt them as a terminal's Ctrl-C does, and kill what is left then."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.root.pid, signal.SIGINT)
        deadline = time.monotonic() + grace_s
        while self._is_left() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        self._kill()

    def _kill(self) -> None:
        while self.root is not None and self._is_left():
            for one in self.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            time.sleep(_POLL_S)

    def _is_left(self) -> bool:
        self.root.poll()
        self.reap()
        return bool(self.processes())


def _adopt_orphans(on: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no child subreaper: {os.strerror(number)}")
