"""Threads for work that would keep an event loop from its turn.

Dask has one such thread for a whole process, in which messages of all connections wait
for each other. These are several, started as they are needed and ended when they are
not. They are daemons: an interpreter that ends does not wait for what nobody will read
any more.
"""

import asyncio
import collections
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from distributed.metrics import context_meter

T = TypeVar("T")

MOST_THREADS = 4

IDLE_S = 1.0
"""A thread without work ends after so long."""


class OffloadThreads(Executor):
    """At most so many daemon threads. What was submitted first begins first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._forget()
        # A child has none of the threads, and nobody there waits for their results.
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._work: collections.deque[tuple[Future, Callable[[], Any]]] = (
            collections.deque()
        )
        self._count = 0
        self._waiting = 0

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Any:
        """Run function(*args, **kwargs) in one of the threads."""
        future: Future[T] = Future()
        with self._changed:
            if self._waiting <= len(self._work) and self._count < self._most:
                name = f"spillway-offload-{self._count + 1}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
                self._count += 1
            self._work.append((future, lambda: function(*args, **kwargs)))
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._waiting += 1
                self._changed.wait_for(lambda: self._work, IDLE_S)
                self._waiting -= 1
                if not self._work:
                    self._count -= 1
                    return
                future, call = self._work.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:  # it is the caller's to handle
                    future.set_exception(_for_future(error))
                else:
                    future.set_result(result)
                    del result
            del future, call  # not kept until the next one comes


def _for_future(error: BaseException) -> BaseException:
    """Older asyncio has no way to hand StopIteration on: who waits would for ever."""
    if not isinstance(error, StopIteration):
        return error
    instead = RuntimeError(f"{type(error).__name__} was raised: {error!r}")
    instead.__cause__ = error
    return instead


_threads = OffloadThreads(min(MOST_THREADS, len(os.sched_getaffinity(0))))


def in_thread(function: Callable[..., T], /, *args: Any) -> Awaitable[T]:
    """Run it in one of the threads, in the context of the caller, metered as Dask
    meters its own. Begins at once, not when it is awaited."""
    context = contextvars.copy_context()
    with context_meter.meter("offload"):
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(_threads, context.run, function, *args)
