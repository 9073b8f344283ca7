"""A worker whose store is there, and places at which a task of it is held up: in the
middle of each await, and of what it hands to threads."""

import asyncio
import contextlib
import threading
from typing import ClassVar

import dask
from distributed import Client, Scheduler, Worker

from spillway.dask import hook_store

PATIENCE_S = 30
SETTINGS = {
    hook_store.SMALL_KEY: "1 B",
    "distributed.worker.memory.target": 0.6,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.scheduler.work-stealing": False,
}
LIMIT = 100_000
LARGE = 70_000  # more than the target
LIVE, PACKED, ON_DISK = 1, 2, 4


class Gate:
    """Who passes waits, whatever thread it is in, and can be waited for."""

    def __init__(self):
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._open = threading.Event()
        self._open_here = asyncio.Event()
        self.count = 0

    def passed(self):
        """In a thread."""
        self.count += 1
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._open.wait(PATIENCE_S), "nobody opened the gate"

    async def passed_on_loop(self):
        self.count += 1
        self.reached.set()
        await self._open_here.wait()

    def open(self):
        self._open.set()
        self._open_here.set()


class Gates:
    """The gate of each place, for the values and tasks of this process."""

    by_place: ClassVar[dict] = {}
    unpickled: ClassVar[list] = []  # numbers, and the threads in which it was done
    ran: ClassVar[list] = []

    @classmethod
    def clear(cls):
        cls.by_place, cls.unpickled, cls.ran = {}, [], []

    @classmethod
    def at(cls, place):
        gate = cls.by_place.get(place)
        if gate is not None:
            gate.passed()


class Value:
    """Is held up where it is pickled and unpickled."""

    def __init__(self, number, weight=10_000):
        self.number, self.weight = number, weight

    def __sizeof__(self):
        return self.weight

    def __reduce__(self):
        Gates.at(f"pickling {self.number}")
        return _again, (self.number, self.weight)


def _again(number, weight):
    Gates.at(f"unpickling {number}")
    Gates.unpickled.append((number, threading.current_thread()))
    return Value(number, weight)


def use(value, weight):
    """A task: a value of ten times the number."""
    Gates.ran.append(value.number)
    Gates.at("running")
    return Value(10 * value.number, weight)


def number_of(value):
    return value.number


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE_S)


@contextlib.asynccontextmanager
async def workers(count, **options):
    """A client, and workers of this process."""
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        scheduler = await enter(
            Scheduler(dashboard_address=":0", port=0, host="127.0.0.1")
        )
        options = {"memory_limit": LIMIT, "nthreads": 2, "validate": True, **options}
        made = [await enter(Worker(scheduler.address, **options)) for _ in range(count)]
        client = await enter(Client(scheduler.address, asynchronous=True))
        yield client, *made


@contextlib.contextmanager
def settings(**more):
    with dask.config.set({**SETTINGS, **more}):
        yield


async def to_disk(store, key):
    """Have a value on disk only."""
    entry = store.entry(key)
    await asyncio.to_thread(entry.spill)
    await all_that_can_leaves(store)
    assert entry.forms == ON_DISK


async def all_that_can_leaves(store):
    """Evict until nobody is left who may leave."""

    def is_done():
        figures = store.figures()
        return not figures["leaving_bytes"] and store._native.evict(1 << 40) == -1

    await until(is_done)
