"""What stands for values that cannot be decoded, and where."""

import asyncio
import gc
import pickle
import sys
import traceback
import weakref

import pytest
from distributed import protocol
from distributed.core import clean_exception, error_message
from distributed.protocol import to_serialize
from distributed.protocol.serialize import ToPickle

from comm_pairs import EVERY_PAIR, OURS, STOCK, comms, exchanged
from message_shapes import noise
from spillway import value_counts
from spillway.dask import undecoded
from spillway.dask.decode import loads
from spillway.dask.undecoded import Undecoded
from test_foreign_errors import HOSTILE, raise_


class FailsToLoad:
    def __reduce__(self):
        return eval, ("1 / 0",)


class ExitsToLoad:
    def __reduce__(self):
        return sys.exit, ()


class FailsToPickle:
    def __reduce__(self):
        raise ValueError("no")


class InterruptsToLoad:
    def __reduce__(self):
        return raise_, (KeyboardInterrupt(),)


class CancelsToLoad:
    def __reduce__(self):
        return raise_, (asyncio.CancelledError(),)


class Raises:
    def __init__(self, kind):
        self.kind = kind

    def __reduce__(self):
        return raise_hostile, (self.kind,)


def raise_hostile(kind):
    raise HOSTILE[kind]()


def reply(**data):
    return {"status": "OK", "data": {k: to_serialize(v) for k, v in data.items()}}


def decoded(message, keep_failures=True):
    return loads(protocol.dumps(message), keep_failures=keep_failures)


@pytest.mark.parametrize(
    "bad", [FailsToLoad, ExitsToLoad, FailsToPickle, CancelsToLoad]
)
def test_it_stands_in_the_place_of_its_value(bad):
    before = value_counts.read()["undecoded"]
    data = decoded(reply(a=noise(9), b=bad(), c="text"))["data"]
    assert len(data["a"]) == 9 and data["c"] == "text"
    assert type(data["b"]) is Undecoded
    assert data["b"].error.__traceback__ is None
    assert value_counts.read()["undecoded"] == before + 1
    assert list(undecoded.take_from(data)) == ["b"]
    assert list(data) == ["a", "c"]


@pytest.mark.parametrize(
    "message",
    [
        to_serialize(FailsToLoad()),
        {"status": "error", "data": {"a": to_serialize(FailsToLoad())}},
        {"status": "OK", "data": [to_serialize(FailsToLoad())]},
        {"status": "OK", "data": {"a": [to_serialize(FailsToLoad())]}},
        {"status": "OK", "data": {}, "more": to_serialize(FailsToLoad())},
        {"status": "OK", "data": {"a": ToPickle(FailsToLoad())}},
    ],
)
def test_anywhere_else_the_message_fails(message):
    with pytest.raises(ZeroDivisionError):
        decoded(message)


@pytest.mark.parametrize("bad", [ExitsToLoad, CancelsToLoad])
@pytest.mark.parametrize("mark", [to_serialize, ToPickle])
def test_a_message_never_ends_a_process_or_cancels_a_task(bad, mark):
    for keep_failures in (False, True):
        with pytest.raises(RuntimeError, match=r"SystemExit|CancelledError"):
            decoded([mark(bad())], keep_failures)


async def test_a_value_that_interrupts_fails_alone():
    async with comms(OURS, OURS) as (near, far):
        with undecoded.wanted():
            message = reply(a=1, b=InterruptsToLoad())
            data = (await exchanged(near, far, message))["data"]
            assert data["a"] == 1
            assert type(data["b"].error) is KeyboardInterrupt
        with pytest.raises(RuntimeError, match="KeyboardInterrupt"):
            await exchanged(near, far, to_serialize(InterruptsToLoad()))
        assert await exchanged(near, far, {"x": 1}) == {"x": 1}


def test_an_interrupt_by_the_user_is_raised():
    with pytest.raises(KeyboardInterrupt):
        decoded(reply(b=InterruptsToLoad()))


def test_who_does_not_ask_for_failures_gets_none():
    with pytest.raises(ZeroDivisionError):
        decoded(reply(a=1, b=FailsToLoad()), keep_failures=False)


@pytest.mark.parametrize("pair", EVERY_PAIR, ids="-".join)
async def test_between_peers(pair):
    async with comms(*pair) as (near, far):
        with undecoded.wanted():
            if pair[1] == OURS:
                data = (await exchanged(near, far, reply(a=1, b=FailsToLoad())))["data"]
                assert data["a"] == 1 and type(data["b"]) is Undecoded
            else:
                with pytest.raises(ZeroDivisionError):
                    await exchanged(near, far, reply(a=1, b=FailsToLoad()))
        assert not undecoded.is_wanted()
        # The comm is of use after that.
        assert await exchanged(near, far, {"x": 1}) == {"x": 1}
        assert await exchanged(far, near, reply(a=2)) == {
            "status": "OK",
            "data": {"a": 2},
        }


@pytest.mark.parametrize("pair", [(OURS, STOCK), (OURS, OURS)], ids="-".join)
async def test_what_cannot_be_encoded_is_an_error_where_it_is_read(pair):
    async with comms(*pair) as (near, far):
        with pytest.raises(TypeError, match="Could not serialize"):
            await exchanged(near, far, to_serialize(FailsToPickle()))
        assert await exchanged(near, far, 5) == 5


def test_the_error_of_a_task_says_key_source_and_cause():
    error = Undecoded(pickle.UnpicklingError("bad bytes")).as_error(("x", 3), "there")
    assert str(error) == (
        "the value of ('x', 3) could not be brought from there: "
        "UnpicklingError: bad bytes"
    )
    assert isinstance(error.__cause__, pickle.UnpicklingError)


def test_the_message_is_not_kept_alive():
    class Kept:
        pass

    def fail(kept):
        try:
            raise ValueError(1)
        except ValueError as error:
            raise TypeError(2) from error

    kept = Kept()
    watched = weakref.ref(kept)
    try:
        fail(kept)
    except TypeError as raised:
        one = Undecoded(raised)
    del kept
    gc.collect()
    assert watched() is None
    (note,) = one.as_error("key", "there").__notes__
    assert "in fail" in note and "ValueError: 1" in note


@pytest.mark.parametrize(
    "cause, kind",
    [
        (TypeError("x"), TypeError),
        (ModuleNotFoundError("x"), ImportError),
        (UnicodeDecodeError("utf8", b"x", 0, 1, "bad"), ValueError),
        (KeyError("x"), RuntimeError),
        (ConnectionError("x"), RuntimeError),
    ],
    ids=repr,
)
def test_the_kind_of_error_is_kept_if_that_can_do_no_harm(cause, kind):
    error = Undecoded(cause).as_error("key", "there")
    assert type(error) is kind
    assert error.__cause__ is cause and "'key'" in str(error)


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_errors_fail_their_value_alone(kind):
    async with comms(OURS, OURS) as (near, far):
        with undecoded.wanted():
            message = reply(a=1, b=Raises(kind))
            data = (await exchanged(near, far, message))["data"]
        assert data["a"] == 1
        error = data["b"].as_error("x", "there")
        sent = error_message(error)
        outgoing = protocol.dumps(sent)
        _, received, _ = clean_exception(**loads(outgoing))
        assert "'x'" in str(received) and type(received) is type(error)
        assert traceback.format_exception(error)
        str(error).encode()


@pytest.mark.parametrize("kind", ["Unnamed", "Unhashed"])
async def test_values_of_hostile_classes_fail_alone(kind):
    async with comms(OURS, OURS) as (near, far):
        with undecoded.wanted():
            message = reply(a=noise(9000), b=HOSTILE[kind]())
            data = (await exchanged(near, far, message))["data"]
        assert len(data["a"]) == 9000
        assert "Could not serialize" in str(data["b"].as_error("x", "there"))


def test_an_error_that_cannot_be_shown():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError

    error = Undecoded(Silent()).as_error("x", "there")
    assert "Silent: <its __str__ raises RuntimeError>" in str(error)
