"""In which buffer a P2P shuffle of a DataFrame keeps its rows: memory, disk or auto.

Who builds the graph chooses, in the process that builds it:

    with dask.annotate(spillway_shuffle_buffer="memory"):
        shuffled = df.shuffle("k")

or for all that is built while it is set, by Dask's configuration:

    dask.config.set({"spillway.shuffle.buffer": "disk"})

An annotation wins over the configuration, which is also the user's YAML and the
variable DASK_SPILLWAY__SHUFFLE__BUFFER: those of the process that builds the graph, as
workers and schedulers are not asked. Where nothing is said it is "auto". Any other word
than the three is a ValueError of the call that makes a shuffle under it.

What is in force when the user's call makes the collection goes with it, wherever it is
optimised or computed later: in shuffle, merge, join of two, set_index, sort_values,
drop_duplicates, unique, and all that groupby shuffles for. What has no place for it
takes what is in force when it is optimised, which compute and persist do: value_counts,
the join of a list of frames, alignment, and a shuffle made with nothing said.

Both shuffles of a merge are kept in the same way. Two shuffles that differ in nothing
else are two shuffles, except that "auto" is the same as nothing. Only P2P has a buffer:
other methods of shuffling do as they always do.
"""

from typing import Any

MEMORY, DISK, AUTO = BUFFERS = ("memory", "disk", "auto")

CONFIG_KEY = "spillway.shuffle.buffer"
ANNOTATION = "spillway_shuffle_buffer"

_OF_A_SPEC = "_spillway_buffer"
"""The attribute of a DataFrameShuffleSpec. It is in its __dict__, so pickle takes it
through every process, and it is no field, so what compares or prints a spec is blind to
it. The metadata of the frame would be such a place too, but it comes out again in the
frames of who asked."""


def said() -> str | None:
    """What is said here and now, None when nothing is."""
    import dask

    word = dask.get_annotations().get(ANNOTATION)
    said_by = f"dask.annotate({ANNOTATION}=...)"
    if word is None:
        word = dask.config.get(CONFIG_KEY, None)
        said_by = f"{CONFIG_KEY} in Dask's configuration"
    if word is None or word in BUFFERS:
        return word
    raise ValueError(
        f"{said_by} is {word!r}, and a shuffle's buffer is one of "
        f"{', '.join(repr(buffer) for buffer in BUFFERS)}"
    )


def mark(spec: Any, buffer: str) -> None:
    """Have a DataFrameShuffleSpec say which buffer was chosen."""
    spec.__dict__[_OF_A_SPEC] = buffer


def chosen_for(spec: Any) -> str:
    """Which buffer was chosen for the shuffle of this DataFrameShuffleSpec."""
    buffer = getattr(spec, _OF_A_SPEC, AUTO)
    return buffer if buffer in BUFFERS else AUTO  # a later version may have others


class MethodWithBuffer(str):
    """A shuffle's method as Dask knows it, with the buffer.

    Dask hands the method on from the user's call until it makes the shuffle, whatever
    becomes of an expression on the way. The text is Dask's: "p2p", or "" where none was
    said, which like None has Dask choose one.
    """

    buffer: str

    def __new__(cls, method: str, buffer: str) -> "MethodWithBuffer":
        self = super().__new__(cls, method)
        self.buffer = buffer
        return self

    def __reduce__(self) -> Any:
        # Who reads it may have no Spillway, and shuffles all the same.
        return str, (str(self),)

    def __repr__(self) -> str:
        # By which Dask names an expression: with another buffer it is another one.
        return f"{str(self)!r} (buffer {self.buffer})"


def with_buffer(method: str | None) -> str | None:
    """A method, with the buffer that is in force if it may be for P2P."""
    if isinstance(method, MethodWithBuffer) or (method and method != "p2p"):
        return method
    buffer = said()
    return method if buffer is None else MethodWithBuffer(method or "", buffer)


def without_buffer(method: str | None) -> str | None:
    """A method as Dask has it."""
    if isinstance(method, MethodWithBuffer):
        return str(method) or None
    return method


def buffer_of(method: str | None) -> str | None:
    """The buffer that a method came with."""
    return method.buffer if isinstance(method, MethodWithBuffer) else None
