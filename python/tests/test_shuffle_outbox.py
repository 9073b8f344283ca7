"""What waits to be sent: small pieces together, within a limit, until they arrived."""

import asyncio
import gc
import weakref

import pytest

from spillway.dask.shuffle_message import Piece
from spillway.dask.shuffle_outbox import AT_ONCE, Outbox, Waiting

pytestmark = pytest.mark.timeout(30)

SIZE = 100


def piece(number, size=SIZE):
    return Piece(number, 0, 1, b"", b"", bytes(size))


class Receivers:
    """Takes messages when it is told to."""

    def __init__(self):
        self.came = []
        self.may_take = asyncio.Semaphore(0)
        self.changed = asyncio.Condition()

    async def send(self, address, pieces):
        self.came.append((address, [piece.input for piece in pieces]))
        async with self.changed:
            self.changed.notify_all()
        await self.may_take.acquire()

    async def until_came(self, count):
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.came) >= count)

    def take(self, count=10000):
        for _ in range(count):
            self.may_take.release()


def outbox_to(receivers, limit=1000, message_bytes=3 * SIZE, waiting=None):
    waiting = waiting or Waiting()
    return Outbox(receivers.send, waiting, limit=limit, message_bytes=message_bytes)


def run(scenario):
    asyncio.run(scenario())


def test_what_waits_goes_together_up_to_a_size():
    async def scenario():
        receivers = Receivers()
        outbox = outbox_to(receivers)
        for number in range(AT_ONCE):
            await outbox.put({"a": piece(number)})
            await receivers.until_came(number + 1)
        for number in range(AT_ONCE, AT_ONCE + 4):
            await outbox.put({"a": piece(number)})
        assert outbox.waiting_bytes == (AT_ONCE + 4) * SIZE
        receivers.take()
        await outbox.flush()
        first = [("a", [number]) for number in range(AT_ONCE)]
        assert receivers.came == [*first, ("a", [2, 3, 4]), ("a", [5])]
        assert (outbox.waiting_bytes, outbox.sent_bytes) == (0, 6 * SIZE)
        assert outbox.messages == 4
        await outbox.close()

    run(scenario)


def test_a_piece_above_the_size_goes_alone():
    async def scenario():
        receivers = Receivers()
        receivers.take()
        outbox = outbox_to(receivers)
        await outbox.put({"a": piece(1, 10 * SIZE)})
        await outbox.flush()
        assert receivers.came == [("a", [1])]
        await outbox.close()

    run(scenario)


def test_who_adds_waits_while_more_than_the_limit_waits():
    async def scenario():
        receivers = Receivers()
        outbox = outbox_to(receivers, limit=2 * SIZE)
        await outbox.put({"a": piece(1), "b": piece(2)})
        adding = asyncio.ensure_future(outbox.put({"a": piece(3), "b": piece(4)}))
        await receivers.until_came(4)
        assert not adding.done()
        receivers.take(1)
        await asyncio.sleep(0)
        receivers.take(1)
        await adding
        assert outbox.waiting_bytes == 2 * SIZE
        receivers.take()
        await outbox.flush()
        await outbox.close()

    run(scenario)


def test_shuffles_of_a_worker_share_the_limit_and_do_not_stop_each_other():
    async def scenario():
        slow, receivers, waiting = Receivers(), Receivers(), Waiting()
        first = outbox_to(slow, limit=2 * SIZE, waiting=waiting)
        second = outbox_to(receivers, limit=2 * SIZE, waiting=waiting)
        await first.put({"a": piece(1, 2 * SIZE)})
        adding = asyncio.ensure_future(second.put({"a": piece(2)}))
        await receivers.until_came(1)
        assert not adding.done()
        assert waiting.nbytes == 3 * SIZE
        receivers.take(1)
        await adding
        assert (first.waiting_bytes, second.waiting_bytes) == (2 * SIZE, 0)
        adding = asyncio.ensure_future(second.put({"a": piece(3)}))
        await receivers.until_came(2)
        assert not adding.done()
        slow.take()
        await adding
        assert waiting.nbytes == SIZE
        await first.close()
        await second.close()
        assert waiting.nbytes == 0

    run(scenario)


def test_what_has_failed_no_longer_waits():
    async def scenario():
        waiting = Waiting()

        async def send(address, pieces):
            raise OSError("the worker is gone")

        outbox = Outbox(send, waiting, limit=100 * SIZE, message_bytes=SIZE)
        for number in range(AT_ONCE + 2):
            await outbox.put({"a": piece(number)})
        with pytest.raises(OSError, match="is gone"):
            await outbox.flush()
        assert waiting.nbytes == outbox.waiting_bytes == 0

    run(scenario)


def test_a_receiver_that_takes_nothing_does_not_hold_up_another():
    async def scenario():
        slow, quick = Receivers(), Receivers()
        quick.take()

        async def send(address, pieces):
            await (slow if address == "slow" else quick).send(address, pieces)

        outbox = Outbox(send, Waiting(), limit=100 * SIZE, message_bytes=SIZE)
        for number in range(8):
            await outbox.put({"slow": piece(number), "quick": piece(number)})
        await quick.until_came(8)
        assert len(slow.came) == AT_ONCE
        slow.take()
        await outbox.flush()
        assert len(slow.came) == 8
        await outbox.close()

    run(scenario)


def test_a_failure_is_raised_to_all_who_wait_and_come():
    async def scenario():
        receivers = Receivers()
        failure = OSError("the worker is gone")

        async def send(address, pieces):
            await receivers.send(address, pieces)
            raise failure

        outbox = Outbox(send, Waiting(), limit=SIZE, message_bytes=SIZE)
        waiting = [
            asyncio.ensure_future(outbox.put({"a": piece(1), "b": piece(2)})),
            asyncio.ensure_future(outbox.flush()),
        ]
        await receivers.until_came(2)
        receivers.take()
        for waits in waiting:
            with pytest.raises(OSError, match="is gone"):
                await waits
        with pytest.raises(OSError, match="is gone"):
            await outbox.put({"a": piece(3)})
        await outbox.close()

    run(scenario)


def test_closing_ends_what_is_under_way():
    async def scenario():
        receivers = Receivers()
        outbox = outbox_to(receivers, limit=SIZE)
        adding = asyncio.ensure_future(outbox.put({"a": piece(1), "b": piece(2)}))
        await receivers.until_came(2)
        await outbox.close()
        await adding
        assert outbox.waiting_bytes == 0

    run(scenario)


def test_once_closed_nothing_is_queued():
    async def scenario():
        receivers = Receivers()
        outbox = outbox_to(receivers)
        await outbox.close()
        await outbox.put({"a": piece(1)})
        assert (outbox.waiting_bytes, outbox.waiting_workers) == (0, 0)
        await outbox.flush()
        assert receivers.came == []

    run(scenario)


def test_once_closed_what_was_not_sent_is_let_go_of():
    class Shards(bytearray):
        """Bytes of which it can be known that they are gone."""

    async def send(address, pieces):
        raise OSError("the worker is gone")

    async def scenario():
        shards = Shards(SIZE)
        gone = weakref.ref(shards)
        outbox = Outbox(send, Waiting(), limit=SIZE, message_bytes=SIZE)
        with pytest.raises(OSError, match="is gone"):
            await outbox.put({"a": Piece(1, 0, 1, b"", b"", shards)})
            await outbox.flush()
        await outbox.close()
        del shards
        gc.collect()
        assert gone() is None

    run(scenario)
