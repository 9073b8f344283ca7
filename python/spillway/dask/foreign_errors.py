"""What errors of somebody else's code say, whatever that code does when it is asked.

A value that cannot be encoded or decoded raises what its author wrote: an error whose
text raises in turn, or is none that can be encoded, and that lets nobody touch it.
"""

import signal
import threading
import traceback
from collections.abc import Collection
from typing import Any

_LONGEST_TEXT = 10_000
_name = type.__dict__["__name__"].__get__
_bases = type.__dict__["__mro__"].__get__
_traceback = BaseException.__dict__["__traceback__"]
_cause = BaseException.__dict__["__cause__"].__get__
_context = BaseException.__dict__["__context__"].__get__
_members = BaseExceptionGroup.__dict__["exceptions"].__get__
"""Python's own, of which a class may have others."""


def is_interrupt(error: BaseException) -> bool:
    """Whether it may be Python that raised this, because of Ctrl-C, in the middle of
    somebody's code. Elsewhere than in the main thread, or where an event loop takes
    the signal, it is a value's code that raises KeyboardInterrupt."""
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def name_of(type_: type) -> str:
    """The name of a class, whatever its metaclass says."""
    return _encodable(_name(type_))


def text_of(value: Any) -> str:
    """The text of an error or a value, as far as it has one."""
    try:
        return _encodable(str(value)[:_LONGEST_TEXT])
    except BaseException as other:
        if is_interrupt(other):
            raise
        return f"<its __str__ raises {name_of(type(other))}>"


def line_of(error: BaseException) -> str:
    """The kind of an error, and its text."""
    return f"{name_of(type(error))}: {text_of(error)}"


def trace_of(error: BaseException) -> str | None:
    """Where an error comes from, as Python shows it; None if it does not let itself be
    shown."""
    try:
        return _encodable("".join(traceback.format_exception(error)))
    except BaseException as other:
        if is_interrupt(other):
            raise
        return None


def kind_of(error: BaseException, kinds: Collection[type[Exception]]) -> Any:
    """The first of an error's classes that is one of some kinds; None if none is."""
    bases = _bases(type(error))
    return next((one for one in bases if any(one is kind for kind in kinds)), None)


def harmless(error: BaseException) -> Exception:
    """An error that fails what it is raised in, and does not end a task or process."""
    if issubclass(type(error), Exception):
        return error
    return RuntimeError(line_of(error))


def let_go_of_frames(error: BaseException) -> bool:
    """Tracebacks keep the variables of functions alive, among them the message. Returns
    whether others could have done the same to it: an error of somebody's may let nobody
    change it."""
    met, is_open = set(), True
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in met:
            continue
        met.add(id(one))
        is_open = is_open and _is_open(one)
        _traceback.__set__(one, None)
        waiting += [_cause(one), _context(one)]
        if issubclass(type(one), BaseExceptionGroup):
            waiting += _members(one)
    return is_open


def _is_open(error: BaseException) -> bool:
    try:
        hash(type(error))  # who pickles it looks its class up
        error.__traceback__ = None
    except BaseException as other:
        if is_interrupt(other):
            raise
        return False
    return True


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
