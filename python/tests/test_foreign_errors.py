"""Errors of which every part is somebody's code."""

import asyncio
import dataclasses
import gc
import signal
import threading
import weakref

import pytest

from spillway.dask import foreign_errors


class Nameless(type):
    def __getattribute__(cls, name):
        if name in ("__name__", "__qualname__", "__module__"):
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class Unnamed(Exception, metaclass=Nameless):
    pass


class Hashless(type):
    def __hash__(cls):
        raise RuntimeError("no hash")


class Unhashed(Exception, metaclass=Hashless):
    pass


class Silent(Exception):
    def __str__(self):
        raise SystemExit(3)

    __repr__ = __str__


class NoText(Exception):
    def __str__(self):
        return 5


class Hidden(Exception):
    def __getattribute__(self, name):
        if name in ("__cause__", "__context__", "__traceback__", "__notes__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Fixed(Exception):
    def __setattr__(self, name, value):
        raise RuntimeError(name)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int = 3


class BadNotes(Exception):
    @property
    def __notes__(self):
        raise SystemExit(4)


HOSTILE = {
    one.__name__: one for one in (Silent, NoText, Hidden, Fixed, Frozen, BadNotes)
} | {
    "Unnamed": Unnamed,
    "Unhashed": Unhashed,
    "surrogates": lambda: ValueError("bad file \udcff"),
    "group": lambda: BaseExceptionGroup("g", [Hidden(), asyncio.CancelledError()]),
    "long": lambda: ValueError("x" * 1_000_000),
    "none": StopIteration,
}


def raise_(error):
    raise error


def raised(error, cause=None):
    """An error that was raised, in a frame that keeps something alive."""

    def fail(_):
        raise error from cause

    class Kept:
        pass

    kept = Kept()
    try:
        fail(kept)
    except BaseException as caught:
        return caught, weakref.ref(kept)


@pytest.mark.parametrize("kind", HOSTILE)
def test_their_text(kind):
    error, _ = raised(HOSTILE[kind](), cause=HOSTILE[kind]())
    for text in (
        foreign_errors.name_of(type(error)),
        foreign_errors.text_of(error),
        foreign_errors.line_of(error),
        foreign_errors.trace_of(error) or "",
    ):
        text.encode()
    assert len(foreign_errors.line_of(error)) < 20_000


@pytest.mark.parametrize("kind", HOSTILE)
def test_their_frames(kind):
    error, kept = raised(HOSTILE[kind](), cause=HOSTILE[kind]())
    is_open = foreign_errors.let_go_of_frames(error)
    gc.collect()
    assert kept() is None
    assert is_open is (kind not in ("Fixed", "Frozen", "Unhashed"))


def test_errors_inside_a_group_let_go_too():
    inner, kept = raised(ValueError(1))
    foreign_errors.let_go_of_frames(ExceptionGroup("g", [inner]))
    gc.collect()
    assert kept() is None


def test_what_is_no_exception_becomes_one():
    error = ValueError(1)
    assert foreign_errors.harmless(error) is error
    for one in (SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()):
        assert type(foreign_errors.harmless(one)) is RuntimeError


def test_only_an_interrupt_that_may_be_the_users_is_one(monkeypatch):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert foreign_errors.is_interrupt(KeyboardInterrupt())
    assert not foreign_errors.is_interrupt(SystemExit())
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(foreign_errors.is_interrupt(KeyboardInterrupt()))
    )
    thread.start()
    thread.join()

    async def inside():
        return foreign_errors.is_interrupt(KeyboardInterrupt())

    answers.append(asyncio.run(inside()))
    assert answers == [False, False]


def test_an_interrupt_while_a_text_is_made_is_not_lost():
    class Interrupted(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        foreign_errors.text_of(Interrupted())
