"""An event loop whose time is virtual, and threads that run one at a time.

What happens on it follows from what is asked of it and from chance by a seed: it never
waits for a clock or a socket, and a thread runs while the loop stands, until the thread
waits for something. So it runs a second time as it ran the first.

A task or thread belongs to a process (`in_process`), which can be killed: what it
has is cancelled where it waits.
"""

import asyncio
import contextlib
import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

TURNS_MAX = 100_000
"""After which it is taken for one that has no end."""

process: contextvars.ContextVar[str] = contextvars.ContextVar("process")
"""Whose a task or thread is."""

_here = threading.local()
"""The `Thread` that this is, in its attribute `thread`."""


class Killed(BaseException):
    """The process of a thread is gone."""


class Idle(Exception):
    """Nothing is left to be done, or all that is left waits for ever."""


class Task(asyncio.Task):
    """A task that knows whose it is, and of which a set has the same order each
    time."""

    def __init__(
        self, number: int, *given: Any, context: contextvars.Context, **options: Any
    ) -> None:
        self.number, self.process = number, context[process]
        super().__init__(*given, context=context, **options)

    def __hash__(self) -> int:
        return self.number


class Loop(asyncio.BaseEventLoop):
    """The loop."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._selector = self
        self._now = 0.0
        self._random = random
        self.turns = 0
        self.planned: dict[int, list[Callable[[], None]]] = {}
        """What is done between two turns, by their number."""
        self.threads: dict[Thread, None] = {}
        self.trace: list[tuple[Any, ...]] = []
        self._task_numbers = itertools.count()
        self.set_task_factory(self._make_task)

    def _make_task(self, loop: Any, coroutine: Any, **options: Any) -> "Task":
        if options.get("context") is None:
            options["context"] = contextvars.copy_context()
        return Task(next(self._task_numbers), coroutine, loop=loop, **options)

    # What BaseEventLoop wants of a loop, and of its selector.

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Let time go to where something is due."""
        self.turns += 1
        for action in self.planned.pop(self.turns, ()):
            action()
            timeout = 0
        if timeout is None:
            raise Idle
        if self.turns > TURNS_MAX:
            raise AssertionError("it does not end")
        self._now += timeout
        return []

    def _process_events(self, events: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """In a thread of its own, whatever the executor."""
        return Thread(self, lambda: func(*args)).future

    def run_until_idle(self) -> None:
        """Until nothing is left to be done."""
        with contextlib.suppress(Idle):
            self.run_forever()

    def note(self, *what: Any) -> None:
        """Remember what happened now."""
        self.trace.append((self._now, *what))

    def soon(self, function: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Call it after some virtual milliseconds."""
        return self.call_later(self._random.expovariate(200), function, *args)

    def kill(self, name: str) -> None:
        """End all that a process does, where it is."""
        self._end(lambda one: one.process == name)

    def end(self) -> None:
        """Nothing is left on it, and it can run no more."""
        while asyncio.all_tasks(self) or self.threads:
            self._end(lambda one: True)
            self.run_until_idle()
        self.close()

    def _end(self, is_meant: Callable[[Any], bool]) -> None:
        for task in sorted(asyncio.all_tasks(self), key=hash):
            if is_meant(task):
                task.cancel()
        for thread in [thread for thread in self.threads if is_meant(thread)]:
            thread.kill()


def in_process(name: str) -> contextvars.Context:
    """The context of what a process does from nothing."""
    context = contextvars.Context()
    context.run(process.set, name)
    return context


class Thread:
    """A thread that runs while the loop stands, and the other way round."""

    def __init__(self, loop: Loop, function: Callable[[], Any]) -> None:
        self.loop = loop
        self.process = process.get()
        self.future: asyncio.Future[Any] = loop.create_future()
        self._function = function
        self._turn, self._turn_of_loop = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = False
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), daemon=True
        )
        loop.threads[self] = None
        self._thread.start()
        loop.soon(self._begin)

    def _begin(self) -> None:
        if self in self.loop.threads:
            self.go_on()

    def go_on(self) -> None:
        """Have it run until it waits. Thread: the loop's."""
        if self in self.loop.threads:
            self._turn.release()
            self._turn_of_loop.acquire()

    def kill(self) -> None:
        """Have it end where it waits. Thread: the loop's."""
        self._is_killed = True
        self.go_on()
        assert self not in self.loop.threads, "a thread goes on though it was killed"

    def wait(self) -> None:
        """Have the loop run until it calls `go_on`. Thread: this one."""
        self._turn_of_loop.release()
        self._turn.acquire()
        if self._is_killed:
            raise Killed

    def _run(self) -> None:
        _here.thread = self
        self._turn.acquire()
        try:
            if not self._is_killed:
                self._settle(self._function)
        except Killed:
            pass
        finally:
            del self.loop.threads[self]
            del self._function
            self._turn_of_loop.release()

    def _settle(self, function: Callable[[], Any]) -> None:
        try:
            result = function()
        except Exception as error:
            if not self.future.done():
                self.future.set_exception(error)
        else:
            if not self.future.done():
                self.future.set_result(result)


def _this_thread() -> Thread | None:
    return getattr(_here, "thread", None)


def pause() -> None:
    """Let others go on for a while, if this is a thread."""
    thread = _this_thread()
    if thread is not None:
        thread.loop.soon(thread.go_on)
        thread.wait()


def sync(loop: Loop, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a coroutine on the loop returns, for a thread that waits for it."""
    thread = _here.thread
    tasks: list[Task] = []

    def start() -> None:
        if thread not in loop.threads:
            return  # it was killed
        task = loop.create_task(function(*args, **kwargs), context=context)
        task.add_done_callback(lambda _: thread.go_on())
        tasks.append(task)

    context = contextvars.copy_context()
    loop.soon(start)
    thread.wait()
    return tasks[0].result()


class Lock:
    """A lock between such threads. The loop finds it open, or would stand."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: deque[Thread] = deque()

    def __enter__(self) -> None:
        thread = _this_thread()
        while self._is_held:
            assert thread is not None, "the loop waits for a lock that a thread has"
            self._waiting.append(thread)
            thread.wait()
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting in waiting.loop.threads:
                waiting.loop.call_soon(waiting.go_on)
                break
