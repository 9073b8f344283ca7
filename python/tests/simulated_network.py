"""Calls between simulated processes: lost, answered into the void, late, or in vain.

What is sent is encoded and decoded as on a connection, by us or by Dask, and so is what
a handler raises.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from distributed.comm.core import CommClosedError
from distributed.core import clean_exception, error_message
from distributed.protocol import dumps, loads

from simulated_loop import Loop, in_process, process
from simulated_weather import Weather
from spillway.dask import decode, outgoing_message, value_encoder
from spillway.dask.shuffle_message import Pieces

SCHEDULER = "scheduler"
"""That process can be reached always: a worker that cannot ends."""

IN_A_ROW = 2
"""Calls that fail one after another, of the same kind and to the same process: Dask
gives a barrier up after three, and the engine a message after more than that."""

LATE_S = 99
ENCODING = {
    "serializers": None,
    "on_error": "raise",
    "context": {"compression": None},
    "frame_split_size": 10_000,
}


class Network:
    """Between all processes of a simulation."""

    def __init__(self, loop: Loop, random: Random, weather: Weather) -> None:
        self._loop, self._random, self._weather = loop, random, weather
        self._failed: dict[Any, int] = {}
        self._is_ours = random.random() < 0.5
        self.handlers: dict[str, dict[str, Any]] = {}
        """Of each process that lives."""

    async def call(self, target: str, op: str, message: dict[str, Any]) -> Any:
        """What a handler of another process returns or raises.

        Raises
        ------
        CommClosedError
            Whether the call came there or not.
        """
        packed, answer = self._packed(message), self._loop.create_future()
        fate = self._fate(process.get(), target, op, message.get("shuffle_id"))
        self._loop.note(process.get(), target, op, fate)
        if fate != "lost":
            delay = self._delay(target)
            if fate == "late":
                delay += self._random.uniform(0, LATE_S)
            letter = self._loop.call_later(
                delay, self._deliver, target, op, packed, answer
            )
        try:
            if fate == "answered":
                return self._result_of(await answer)
            await asyncio.sleep(self._delay(target) * self._random.randint(1, 3))
            raise CommClosedError(f"{fate}: {op} to {target}")
        except asyncio.CancelledError:
            if fate == "answered" and self._random.random() < 0.5:
                letter.cancel()
            raise

    def _fate(self, *way: Any) -> str:
        _, target, *_ = way
        if target == SCHEDULER or self._failed.get(way, 0) >= IN_A_ROW:
            fate = "answered"
        else:
            weather = self._weather
            [fate] = self._random.choices(
                ["lost", "answer lost", "late", "answered"],
                [weather.lost, weather.answer_lost, weather.late, 1],
            )
        self._failed[way] = 0 if fate == "answered" else self._failed.get(way, 0) + 1
        return fate

    def _delay(self, target: str) -> float:
        is_slow = self._weather.slow in (target, process.get(None))
        return self._random.expovariate(1 if is_slow else 100)

    def _deliver(self, target: str, op: str, packed: Any, answer: Any) -> None:
        if target not in self.handlers:
            self._refuse(target, answer)
            return
        handling = self._loop.create_task(
            self._handle(target, op, packed), context=in_process(target)
        )
        handling.add_done_callback(
            lambda _: self._loop.call_later(
                self._delay(target), self._answer, target, handling, answer
            )
        )

    async def _handle(self, target: str, op: str, packed: Any) -> Any:
        handler, message = self.handlers[target][op], self._unpacked(packed)
        try:
            if self._is_forgotten(message):
                result = {"status": "OK"}
            else:
                result = handler(**message)
            if asyncio.iscoroutine(result):
                result = await result
        except Exception as error:
            result = error_message(error, status="uncaught-error")
        return self._packed({"result": result})

    def _is_forgotten(self, message: dict[str, Any]) -> bool:
        chance = self._weather.forgotten
        return isinstance(message.get("data"), Pieces) and (
            self._random.random() < chance
        )

    def _answer(self, target: str, handling: Any, answer: Any) -> None:
        if handling.cancelled() or target not in self.handlers:
            self._refuse(target, answer)
        elif not answer.done():
            answer.set_result(handling.result())

    def _refuse(self, target: str, answer: Any) -> None:
        if not answer.done():
            answer.set_exception(CommClosedError(f"{target} is gone"))
            answer.exception()  # whoever asked may be gone too

    def _result_of(self, packed: Any) -> Any:
        result = self._unpacked(packed)["result"]
        if isinstance(result, dict) and result.get("status") == "uncaught-error":
            _, error, traceback = clean_exception(**result)
            raise error.with_traceback(traceback)
        return result

    def _packed(self, message: dict[str, Any]) -> list[bytes]:
        if self._is_ours:
            frames = outgoing_message.dumps(message, value_encoder.encode, **ENCODING)
        else:
            frames = dumps(message)
        return [bytes(frame) for frame in frames]

    def _unpacked(self, packed: list[bytes]) -> Any:
        return (decode.loads if self._is_ours else loads)(packed)


class Remote:
    """What has a coroutine for each handler of a process."""

    def __init__(self, network: Network, target: str) -> None:
        self._network, self._target = network, target

    def __getattr__(self, op: str) -> Callable[..., Any]:
        return lambda **message: self._network.call(self._target, op, message)
