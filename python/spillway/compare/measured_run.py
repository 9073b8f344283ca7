"""One run of a script, watched from outside of its processes."""

import math
import os
import resource
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import psutil

from spillway.compare.answer import Answer
from spillway.compare.process_tree import ProcessTree
from spillway.compare.socket_bytes import SocketBytes
from spillway.compare.tree_watch import TreeWatch

PERIOD_S = 0.1
MEMORY_SHARE = 0.1
"""Of the time, at most, is spent on asking for memory, which makes processes wait."""
LEFT_GRACE_S = 5.0
"""For what the script has left behind to end by itself."""
INTERRUPT_GRACE_S = 5.0
SETTLE_S = 1.0
"""For the system to say what sockets had moved that were open to the end."""
KEPT_BYTES = 4 << 10
"""Of the end of the output and of that of the errors."""
_PIPE_BYTES = 64 << 10


@dataclass
class MeasuredRun:
    """What came of it. Figures that could not be had are None, and `notes` say why."""

    pid: int
    code: int
    """As a shell has it."""
    wall_s: float
    cpu_s: float
    """Of all processes, also those that were too short to be seen."""
    written_bytes: int
    """What they gave the system to write to disks, also what it had not written when
    the file was gone."""
    socket_bytes: int | None
    answer: Answer
    output_end: str
    """Of the standard output."""
    errors_end: str
    """Of the standard error."""
    watch: TreeWatch
    notes: list[str] = field(default_factory=list)


def measure(
    command: Sequence[str],
    environment: Mapping[str, str],
    limit_s: float = math.inf,
) -> MeasuredRun:
    """Run a command to its end, or interrupt it where it takes longer than a limit.
    Whatever happens, none of its processes is left."""
    with ProcessTree() as tree:
        cpu_s, written_bytes = _cpu_s_of_children(), _written_bytes()
        watched = _Watched(tree, command, environment)
        try:
            wall_s = watched.until_script_ends(limit_s)
            watched.until_all_ended()
        except BaseException:
            tree.end(INTERRUPT_GRACE_S)
            raise
        finally:
            watched.close()
        code = watched.script.wait()
        return MeasuredRun(
            pid=watched.script.pid,
            code=code if code >= 0 else 128 - code,
            wall_s=wall_s,
            cpu_s=_cpu_s_of_children() - cpu_s,
            written_bytes=_written_bytes() - written_bytes,
            socket_bytes=watched.sockets and watched.sockets.total(),
            answer=watched.answer,
            output_end=watched.output_end.decode(errors="replace"),
            errors_end=watched.errors_end.decode(errors="replace"),
            watch=watched.watch,
            notes=watched.notes,
        )


class _Watched:
    """The script's processes, and all that is looked at while they run."""

    def __init__(
        self, tree: ProcessTree, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.tree = tree
        self.notes: list[str] = []
        self.answer = Answer()
        self.output_end = self.errors_end = b""
        self.watch = TreeWatch()
        self._next = self._next_memory = 0.0
        self._has_ended = False
        self._selector = selectors.DefaultSelector()
        self.sockets = self._count_sockets()
        self._started = time.perf_counter()
        self.script = tree.start(command, environment)
        self._pidfd = os.pidfd_open(self.script.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, self._end)
        self._take(self.script.stdout, self._keep_output)
        self._take(self.script.stderr, self._keep_errors)

    def close(self) -> None:
        self._selector.close()
        os.close(self._pidfd)
        if self.sockets is not None:
            self.sockets.close()
        self.script.stdout.close()
        self.script.stderr.close()

    def until_script_ends(self, limit_s: float) -> float:
        """Returns how long it took."""
        while not self._has_ended:
            self._step()
            if time.perf_counter() - self._started > limit_s and not self._has_ended:
                self.notes.append(f"the script was interrupted after {limit_s:g} s")
                self.tree.end(INTERRUPT_GRACE_S)
        wall_s = time.perf_counter() - self._started
        # It is not waited for yet, so that its CPU time can still be read, all of it.
        self.watch.sample(self.tree.processes())
        return wall_s

    def until_all_ended(self) -> None:
        """For some seconds; then they are ended, and the output is read to its end."""
        deadline = time.monotonic() + LEFT_GRACE_S
        while self._others() and time.monotonic() < deadline:
            self._step()
        if self._others():
            self.notes.append("the script left processes behind, which were ended")
            self.tree.end(INTERRUPT_GRACE_S)
        while self._selector.get_map().keys() & {
            self.script.stdout.fileno(),
            self.script.stderr.fileno(),
        }:
            self._step()
        if self.sockets is not None:
            self._of_sockets(lambda: self.sockets.settle(SETTLE_S))
        self.answer.end()

    def _step(self) -> None:
        """Wait for the next event, or until it is time to look."""
        for key, _ in self._selector.select(max(0, self._next - time.monotonic())):
            key.data()
        if time.monotonic() < self._next:
            return
        self.tree.reap()
        processes = self.tree.processes()
        self.watch.sample(processes)
        self._sample_memory(processes)
        if self.sockets is not None:
            pids = [one.pid for one in processes]
            self._of_sockets(lambda: self.sockets.sample(pids))
        self._next = time.monotonic() + PERIOD_S

    def _sample_memory(self, processes: list[psutil.Process]) -> None:
        before = time.monotonic()
        if before < self._next_memory:
            return
        self.watch.sample_memory(processes)
        after = time.monotonic()
        self._next_memory = after + (after - before) / MEMORY_SHARE

    def _others(self) -> bool:
        return any(one.pid != self.script.pid for one in self.tree.processes())

    def _end(self) -> None:
        self._has_ended = True
        self._selector.unregister(self._pidfd)

    def _take(self, pipe: IO[bytes], use: Callable[[bytes], None]) -> None:
        def read() -> None:
            piece = os.read(pipe.fileno(), _PIPE_BYTES)
            if piece:
                use(piece)
            else:
                self._selector.unregister(pipe)

        self._selector.register(pipe, selectors.EVENT_READ, read)

    def _keep_output(self, piece: bytes) -> None:
        self.answer.feed(piece)
        self.output_end = (self.output_end + piece)[-KEPT_BYTES:]

    def _keep_errors(self, piece: bytes) -> None:
        self.errors_end = (self.errors_end + piece)[-KEPT_BYTES:]

    def _count_sockets(self) -> SocketBytes | None:
        try:
            sockets = SocketBytes()
        except OSError as error:
            self.notes.append(f"bytes over sockets are not known: {error}")
            return None
        self._selector.register(
            sockets,
            selectors.EVENT_READ,
            lambda: self._of_sockets(sockets.read_ended),
        )
        return sockets

    def _of_sockets(self, look: Callable[[], None]) -> None:
        try:
            look()
        except OSError as error:
            self.notes.append(f"some bytes over sockets were not seen: {error}")


def _cpu_s_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _written_bytes() -> int:
    """Of this process, which writes nothing meanwhile, with all its former children."""
    return psutil.Process().io_counters().write_bytes
