"""Has a client move data through its scheduler in parts.

A scheduler that relays what a client gathers or scatters holds all of one request at
once, and what all clients ask for is as much as they ask for. So a client asks for no
more than a part at a time, two parts being under way: whatever the scheduler is, and
whatever the workers are. A value goes in one piece, however large it is, but then
nothing else is under way.

Dask calls what it finds as attributes of the client's scheduler; ours are put there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any

from spillway.dask import manifest, switches

NAME = "relay"
OFF_WITH = (switches.ALL, switches.TRANSPORT)

PART_BYTES = 32 << 20
AT_ONCE = 2
UNDER_WAY_BYTES = AT_ONCE * PART_BYTES

_installed: dict[Any, Any] = {}
"""By client, what it calls its scheduler by."""


def check() -> str | None:
    """Why this hook cannot be installed, None when it can."""
    return manifest.mismatch(NAME)


async def install(client: Any) -> None:
    """Stand before what the client calls."""
    from distributed.core import PooledRPCCall

    if type(client.scheduler) is not PooledRPCCall:
        return
    relay = Relay(client.scheduler)
    client.scheduler.gather, client.scheduler.scatter = relay.gather, relay.scatter
    _installed[client] = client.scheduler


def remove(client: Any) -> None:
    """Stand there no longer."""
    scheduler = _installed.pop(client, None)
    if scheduler is not None:
        del scheduler.gather, scheduler.scatter


class Relay:
    """What stands before the scheduler of one client."""

    def __init__(self, scheduler: Any) -> None:
        # Found by name at each call, as for who calls them itself.
        self._gather, self._scatter = scheduler.gather, scheduler.scatter
        self._nbytes = scheduler.nbytes

    async def gather(self, *, keys: Any, **options: Any) -> Any:
        """As Scheduler.gather."""
        sizes = await self._sizes_of(keys)
        if sum(sizes.values()) <= PART_BYTES:
            return await self._gather(keys=keys, **options)
        data: dict[Any, Any] = {}
        failed: list[Any] = []
        parts = parts_of(sizes)
        way = Way(UNDER_WAY_BYTES)

        async def ask() -> None:
            for part in parts:  # the next one of all who ask
                async with way.taken(sum(max(0, sizes[key]) for key in part)):
                    reply = await self._gather(keys=part, **options)
                if reply["status"] == "OK":
                    data.update(reply["data"])
                else:
                    failed.extend(reply["keys"])

        await _all_or_none(ask() for _ in range(AT_ONCE))
        if failed:
            return {"status": "error", "keys": failed}
        return {"status": "OK", "data": data}

    async def scatter(self, *, data: Any, **options: Any) -> Any:
        """As Scheduler.scatter."""
        from distributed.sizeof import safe_sizeof

        from spillway.dask import value_sizes

        sizes = {key: safe_sizeof(value.data) for key, value in data.items()}
        for key, value in data.items():
            value_sizes.know(value, sizes[key])
        if sum(sizes.values()) <= PART_BYTES:
            return await self._scatter(data=data, **options)
        keys: list[Any] = []
        for part in parts_of(sizes):
            keys += await self._scatter(data={k: data[k] for k in part}, **options)
        return keys

    async def _sizes_of(self, keys: Any) -> dict[Any, int]:
        if len(keys) < 2:
            return dict.fromkeys(keys, 0)
        try:
            return await self._nbytes(keys=keys, summary=False)
        except KeyError:  # the scheduler does not know one, as its gather says properly
            return dict.fromkeys(keys, 0)


class Way:
    """Room for so many bytes under way, or for what is larger if nothing else is; in
    the order in which they come."""

    def __init__(self, nbytes: int) -> None:
        self._whole = self._free = nbytes
        self._changed = asyncio.Condition()
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def taken(self, nbytes: int) -> AsyncIterator[None]:
        """Wait for the room, and have it within."""
        nbytes = min(nbytes, self._whole)
        async with self._turn, self._changed:
            await self._changed.wait_for(lambda: nbytes <= self._free)
            self._free -= nbytes
        try:
            yield
        finally:
            async with self._changed:
                self._free += nbytes
                self._changed.notify_all()


async def _all_or_none(coroutines: Iterable[Coroutine]) -> None:
    """Run all at the same time. The first that fails ends the others, and is raised as
    it is: by its type who called decides whether to try again."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def parts_of(sizes: dict[Any, int]) -> Iterator[list[Any]]:
    """Keys together, in their order, as many as are no more than a part."""
    part: list[Any] = []
    size = 0
    for key, own in sizes.items():
        own = max(0, own)  # -1 for what nobody knows
        if part and size + own > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(key)
        size += own
    if part:
        yield part
