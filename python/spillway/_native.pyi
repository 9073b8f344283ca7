"""The C library as Python sees it: arguments are parsed and results wrapped here,
nothing is decided."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, final

from spillway.buffer_protocol import Buffer as BufferProtocol

class SpillwayError(OSError):
    """What a C call answered: `errno` (0 when the operating system had no part),
    `strerror`, and `status`, the name of the spw_status such as "PEER_CLOSED"."""

    status: str

class _Array(Protocol):
    """What has an array by Arrow's PyCapsule interface, such as one of pyarrow's."""

    def __arrow_c_array__(self, requested_schema: object = None, /) -> Any: ...

@final
class ArrowArray:
    """An array of `rows` rows of a type of Arrow's, for `Partitions.read` to read all
    its columns into: made for these counts, and with dictionaries in the order of the
    type's tree. Once it is filled, whoever imports the `struct ArrowArray` at its
    address has it. What `__arrow_c_schema__` of a type gave is its schema.

    Raises
    ------
    SpillwayError
        UNSUPPORTED: a view, a union, run-end encoded. LIMIT_EXCEEDED: a count that the
        type's offsets cannot count, types that are nested too deeply, the budget.
    ValueError
        When there are not as many counts as `arrow_counts` says, or too few
        dictionaries.
    """

    def __init__(
        self,
        schema: object,
        rows: int,
        counts: Sequence[int],
        dictionaries: Iterable[_Array],
        /,
    ) -> None: ...
    @property
    def address(self) -> int: ...

@final
class Buffer:
    """One piece of memory of the library's. Supports the buffer protocol: writeable,
    bytes, one dimension, on a 64-byte boundary."""

@final
class FileRange:
    """A frame of a stored value that is on disk, of which nothing has been read.
    `Connection.send` sends it from there. Supports the buffer protocol, for everybody
    else: its bytes are then read, verified and kept.

    Raises
    ------
    SpillwayError
        From whatever reads: CORRUPT when the bytes are not those that were written, IO
        when the disk fails.
    """

    @property
    def nbytes(self) -> int:
        """How large it is in memory."""
    @property
    def writeable(self) -> bool:
        """As the frame was that was stored."""
    @property
    def place(self) -> tuple[int, int, int]:
        """Its file's descriptor, and from where in it how many bytes are on disk."""
    @property
    def codec(self) -> str | None:
        """By what it is compressed on disk, as Dask calls it; None if it is not. A
        compressed one is read to be sent."""
    def as_stored(self) -> FileRange:
        """Its bytes as they are on disk, compressed by `codec`, as a range that is
        sent from there."""
    @property
    def checksum(self) -> int | None:
        """XXH3 of its bytes; None if it is compressed or has none."""
    def verify(self) -> None:
        """Read through it, with little memory, and raise if it is not what was
        written."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Merged:
    """Frames that lie side by side, as one piece of memory, which keeps them exported.
    Supports the buffer protocol: bytes, one dimension, writeable if all frames are."""

@final
class Partitions:
    """What a worker holds of the partitions of one run of a shuffle, `count` of them.
    Pieces are put in, each what one input has for all of them, and each partition is
    read once. What is above `memory` bytes (None: no limit) is written to directories,
    pairs of a path and a limit in bytes, 0 for none. With `ahead` a thread of the
    library reads the partition that is likely to be next, and gives back space on
    disk. Any thread; what waits for a disk gives up the GIL.

    Raises
    ------
    SpillwayError
        IO, LIMIT_EXCEEDED: no directory takes what is to be written; it stays in
        memory, and `write` may be called again. CORRUPT: what is on disk, or in a
        piece, is not what was written. CLOSED: after `close`, or of a partition that
        was read.
    """

    def __init__(
        self,
        count: int,
        directories: Iterable[tuple[str, int]],
        *,
        memory: int | None = None,
        ahead: bool = False,
    ) -> None: ...
    def add_types(self, types: Iterable[tuple[int, int] | object], /) -> int:
        """Say of which columns some pieces are, by kind (`spw_column_kind`) and size of
        an item, or by the schema of a type of Arrow's. The number of it."""
    def put(
        self,
        types: int,
        input: int,
        shards: BufferProtocol,
        rows: bytes,
        counts: bytes,
        /,
    ) -> tuple[bool, bool]:
        """Put in what an input has: as `split` answers it, for these partitions alone.
        Whether it was not there yet, and whether `write` is due before the next."""
    def write(self) -> int:
        """Write to disk, or wait for others who do, until memory is within its limit.
        The bytes that were written."""
    def limit(self, memory: int, /) -> None:
        """Have another limit of memory, which the next `write` comes down to."""
    def expect(self, partition: int, /) -> None:
        """Say which one is likely to be read after the next."""
    def finish(self) -> None:
        """Say that all pieces are there."""
    def measure(self, partition: int, /) -> list[tuple[int, int, tuple[int, ...]]]:
        """Of what a partition consists, in the order of inputs: types, rows, and the
        counts of all columns that have one."""
    def read(
        self,
        partition: int,
        groups: Sequence[tuple[int, int, tuple[BufferProtocol | ArrowArray, ...]]],
        /,
    ) -> None:
        """Read a partition, which is gone then, into places for what `measure` said:
        types, rows, and for each column writeable memory of items or blobs, or an array
        of Arrow's."""
    def figures(self) -> dict[str, int]: ...
    def close(self) -> None:
        """End what others wait for. All that is held goes with the last reference."""

@final
class Store:
    """Values that leave memory when it is short, for directories: pairs of a path and a
    limit in bytes, 0 for none. `pack` makes a list of buffers of a value, `unpack` a
    value of such a list. `target`: bytes in memory above which values leave;
    `in_flight`: bytes that leave at once; `small`: values of fewer bytes stay while
    there are others; `read_ahead`: bytes that may be in memory because somebody will
    ask for them soon, 0 for none; `threads` for disks; 0 for the defaults. `codec`: by
    Dask's name, "" for none."""

    def __init__(
        self,
        pack: Callable[[Any], list[BufferProtocol]],
        unpack: Callable[[list[bytes | memoryview]], Any],
        directories: Iterable[tuple[str, int]],
        *,
        target: int = 0,
        in_flight: int = 0,
        small: int = 0,
        read_ahead: int = 0,
        threads: int = 0,
        codec: str = "",
    ) -> None: ...
    def put(self, key: str, value: Any, weight: int, /) -> StoreEntry:
        """Put a value in. The key is for messages; weight: bytes that it counts for."""
    def put_packed(
        self, key: str, frames: list[BufferProtocol | FileRange], weight: int, /
    ) -> StoreEntry:
        """Put a value in as `pack` would return it, or as it was received: what came to
        the disk of this store stays there, and other `FileRange`s are read."""
    def evict(self, excess: int, /) -> int:
        """Start that the value used longest ago leaves memory. The weight in bytes that
        is leaving, or -1: `excess` bytes are leaving already, or nothing can."""
    def put_spilled(self, key: str, value: Any, weight: int, /) -> StoreEntry:
        """Put a value straight to disk, without any other leaving memory for it, and
        wait for that. Raises as `StoreEntry.spill`; it is not in the store then."""
    def reads_ahead(self) -> bool:
        """Whether `StoreEntry.read_ahead` could begin with any, as far as the store is
        concerned."""
    def is_behind(self) -> bool:
        """Whether who makes new values should wait for those that are leaving."""
    def work(self, timeout_ms: int, /) -> tuple[int, str | None, BaseException | None]:
        """Pack what is to leave, and let go of what has left, until something happened:
        (kind, key, exception). Kinds: 0 time is up (-1 ms: never), 1 the store is
        closed, 2 values have left, 3 a value cannot leave: its key, and why."""
    def figures(self) -> dict[str, Any]: ...
    def close(self) -> None:
        """Write nothing more, and have `work` answer that it is closed."""

@final
class StoreEntry:
    """A value of a `Store`. One that was never removed is when nobody refers to it any
    more. Any thread; what waits gives up the GIL."""

    @property
    def forms(self) -> int:
        """What there is of it: 1 live, 2 packed, 4 on disk, 8 lost; a sum of them."""
    @property
    def is_spilled_in_use(self) -> bool:
        """Whether it has left for disk, and somebody still has the value. Never of one
        that cannot be weakly referenced."""
    @property
    def weight(self) -> int: ...
    def acquire(self) -> Any:
        """The value, which stays in memory until `unpin`; read from disk and unpacked
        if need be, once for all who ask. Raises what `unpack` raises, and SpillwayError
        (IO, CORRUPT: what was on disk is lost; CLOSED)."""
    def try_acquire(self) -> Any | None:
        """As `acquire`, but None where it would wait for a disk or for unpacking."""
    def unpin(self) -> None: ...
    def get(self) -> Any:
        """`acquire` and `unpin`."""
    def frames(self) -> list[bytes | memoryview | FileRange] | None:
        """What `pack` made of the value, as it is: in memory, or on disk and not read;
        None if it is live only. Does not wait. Raises SpillwayError: CLOSED when it was
        removed, IO or CORRUPT when it is lost."""
    def spill(self) -> None:
        """Write the value to disk, and wait for that. Raises what `pack` raises, and
        SpillwayError (IO, LIMIT_EXCEEDED: it stays as it is)."""
    def read_ahead(self) -> bool:
        """Begin to read its bytes from disk, since it will be asked for soon, and do
        not wait; they are the first to be dropped again. Whether it begins."""
    def remove(self) -> None:
        """Take the value out of its store, without reading it."""

@final
class Completions:
    """The threads that move large bodies for one event loop, `threads` of them (0: by
    cores, two to four), and the way back from them. They start when they are needed."""

    def __init__(self, threads: int) -> None: ...
    def fileno(self) -> int:
        """Readable as long as connections wait in `next`."""
    def next(self) -> Connection | None:
        """A connection of which a thread has received a message, sent everything, or
        seen the end: look at `receive` and `interest`."""

@final
class Connection:
    """Whole messages in both directions over one TCP stream. No call blocks. One call
    at a time: a second one, from another thread or from a frame's finalizer, raises
    RuntimeError, except `close` and `open`."""

    @staticmethod
    def connect(
        host: str,
        port: int,
        user_timeout_ms: int,
        loopback_congestion: str | None = None,
        completions: Completions = ...,
    ) -> Connection:
        """Start to connect to a numeric host; see `connecting`."""
    def fileno(self) -> int:
        """The descriptor to watch; -1 once closed or let go. It outlives the end of the
        connection, so that the loop can stop watching it first."""
    def let_go(self) -> None:
        """Close the descriptor of a connection that has ended and that no loop watches
        any more, and give up its completions and meetings. Whole messages can still be
        received."""
    def interest(self) -> int:
        """What to wait for: 1 until the descriptor can be read, 2 until it can be
        written, 4 for the completions, a sum of them, 0 nothing."""
    @property
    def connecting(self) -> bool: ...
    @property
    def open(self) -> bool: ...
    def local(self) -> tuple[str, int]: ...
    def peer(self) -> tuple[str, int]: ...
    def send(self, frames: list[BufferProtocol | FileRange]) -> int:
        """Queue a message, send what the socket takes now, and return its bytes on the
        wire. The frames stay referenced until they are sent. A `FileRange` is sent from
        its file by a thread; where the connection has none, for it was given no
        completions, it is read here."""
    def queued_bytes(self) -> int: ...
    @property
    def received_bytes(self) -> int:
        """Bytes of the frames that `receive` returned last."""
    @property
    def offload_bytes(self) -> int:
        """From how many bytes on work on messages leaves the loop's thread; 0, as at
        first, for never. Stored for whoever does that work. Any thread."""
    @offload_bytes.setter
    def offload_bytes(self, size: int) -> None: ...
    def receive(self) -> list[bytes | memoryview | FileRange] | None:
        """The next message, or None when it has not arrived whole. Frames up to 64 KiB
        that only the decoder reads (the first one) come as bytes, the others as
        writeable memoryviews; shards of one buffer are views of one `Buffer`, side by
        side."""
    def receive_values(self, store: Store, only_with: str | None = None, /) -> None:
        """Have a store decide where the values of the message go that `receive` returns
        next: what has no room in its memory comes to its disk, as `FileRange`s. Without
        completions, when a message has begun to arrive, and when its first frame has
        not the text `only_with`, all comes to memory."""
    def on_readable(self) -> bool:
        """Read what is there. True: call `receive` again."""
    def on_writable(self) -> None:
        """Finish connecting, or send from the queue."""
    def meet(
        self, meetings: Meetings, own_nonce: bytes, peer_path: str, peer_nonce: bytes, /
    ) -> None:
        """The peer is believed to share our host: expect it at `meetings` with
        `own_nonce`, and go to its path, with its nonce, when there is something large
        to send. Once; only with completions."""
    def close(self) -> None:
        """Close at once and release every frame. While another call is under way, the
        connection says that it is closed and is closed when that call ends."""

@final
class Meetings:
    """Where peers of this host come to meet connections of one loop: a socket in a
    directory of its own in `parent`. `best` is the first way to be tried by which
    bodies come (0: the best; 1: read from the peer's memory; 2: by a passed
    descriptor; 3: by the stream)."""

    def __init__(
        self, parent: str, best: int = 0, uses_descriptors: bool = False
    ) -> None: ...
    def fileno(self) -> int: ...
    def path(self) -> str: ...
    def on_readable(self) -> str | None:
        """Let in who has come. Returns why a peer cannot send by the best way, None
        when all is well."""

@final
class Listener:
    """Accepts connections on one numeric address."""

    def __init__(self, host: str, port: int, backlog: int) -> None: ...
    def fileno(self) -> int:
        """The descriptor to watch for reading; another one once it serves. -1 once
        closed."""
    def local(self) -> tuple[str, int]: ...
    def serve(
        self,
        completions: Completions,
        user_timeout_ms: int,
        greeting: bytes,
        greeting_same_host: bytes,
        loopback_congestion: str | None = None,
    ) -> None:
        """Let threads accept, say the greeting (the one frame of a message; another one
        to peers whose address is the one that they connected to; empty for none) and
        begin to receive, however long Python does something else."""
    def accept(
        self,
        user_timeout_ms: int,
        loopback_congestion: str | None = None,
        completions: Completions = ...,
    ) -> Connection | None:
        """The next connection, or None when none waits. A listener that serves made it
        with what `serve` was given. After an error it accepts no more until this is
        called again."""
    def hold_from(self, bytes: int, /) -> None:
        """Let messages of so many bytes, which come while nobody has accepted their
        connection, wait for that, so that `receive_values` is in time for them."""
    def close(self) -> None: ...

def allocate(size: int, /) -> memoryview:
    """Writeable memory from the pool, on a 64-byte boundary. It holds anything."""

def arrow_counts(schema: object, /) -> int:
    """How many counts a shard has of an array of a type of Arrow's.

    Raises
    ------
    SpillwayError
        UNSUPPORTED: a view, a union, run-end encoded. LIMIT_EXCEEDED: types that are
        nested too deeply.
    ValueError
        When it is no type that Arrow had when this was built.
    """

def buffer_offset(view: BufferProtocol, /) -> int:
    """How many bytes into the memory of its owner a view begins.

    Raises
    ------
    ValueError
        When the view does not say whose memory it has.
    """

def checksum(frame: BufferProtocol, /) -> int:
    """XXH3 with 64 bits of a frame, as `FileRange.checksum` has it. Gives up the GIL
    where it is large."""

def decompress(codec: str, frames: list[BufferProtocol]) -> memoryview:
    """Decompress the shards of one buffer side by side into one aligned `Buffer`."""

def figures() -> dict[str, Any]:
    """What this process moved and holds: messages_sent, messages_received,
    bytes_sent, bytes_received, connections_opened, connections_closed,
    connections_failed, connections_tuned (counts and bytes on the wire), copies as
    {reason: {"count", "bytes"}}, regions as {"recycled", "added", "bytes_moved"} (how
    often a buffer's memory was that of an earlier one as it lay, and how often it was
    another range, of which so many bytes were not new), same_host
    as {"meetings", "refusals", "bytes_sent", "by_address", "by_descriptor",
    "by_stream"} (the last three in received bytes), budget as {"held", "queued",
    "in_flight", "pooled", "spilling", "peak", "limit", "refusals",
    "in_flight_limit", "held_back", "shuffled"} in bytes, refusals and held_back in
    counts."""

def join(frames: Iterable[BufferProtocol], /) -> memoryview:
    """Copy frames, one after another and each in C order, into one aligned `Buffer`."""

def limit_in_flight(bytes: int, /) -> None:
    """Let large messages of so many bytes together arrive at once; 0 for no limit.

    Raises
    ------
    ValueError
        When it is negative or more than 2**63 - 1.
    """

def limit_resident(bytes: int, cached_bytes: int, /) -> None:
    """While the process has more memory than that in use, what buffers leave is not
    cached, and otherwise at most so much; 0, as at first, for no such limit."""

def merge(frames: Iterable[BufferProtocol], /) -> memoryview:
    """A view of the bytes of frames that lie side by side in the memory of one owner,
    writeable if every frame is. Frames without bytes are skipped.

    Raises
    ------
    ValueError
        Naming the first frame that does not follow the one before it.
    """

def split(
    columns: Iterable[
        tuple[int, int, Any, BufferProtocol | None] | tuple[object, _Array]
    ],
    row_count: int,
    ids: BufferProtocol,
    numbers: BufferProtocol,
    ends: BufferProtocol,
    /,
) -> tuple[bytes, bytes, list[memoryview | None]]:
    """Put the rows of a table side by side by the partitions that they are of.

    Parameters
    ----------
    columns
        Each (kind, item size, values, data), by `spw_column`: items, or a blob, where
        only that has data; values may be a range. Or (schema, array) of Arrow's.
    ids
        Integers of any width, one a row.
    numbers
        As u32, for each id the number of its partition.
    ends
        As u32, of each group of neighbouring partitions the number behind its last.

    Returns
    -------
    rows, counts
        For each partition its rows, as u32, and for each of its columns that has one a
        count, as u64.
    buffers
        For each group its shards, one after another; None where it has no rows.

    Raises
    ------
    ValueError
        Naming the first row whose id has no number, or the column that makes no sense.
    """

def take_ranges(
    process: int,
    descriptor: int,
    device: int,
    inode: int,
    places: Iterable[tuple[int, int]],
    /,
) -> list[FileRange]:
    """Ranges, by offset and size, of the file that another process of this host has
    open by a descriptor, which lives on here however that process ends.

    Raises
    ------
    SpillwayError
        UNSUPPORTED where the system does not let us, or the process has no such file.
    ValueError
        Where a place is not within the file.
    """

def trim(keep_bytes: int, older_than_ms: int, /) -> int | None:
    """Give back what has been cached for that long, until no more than `keep_bytes`
    are cached. Returns after how many milliseconds to call it again with the same
    arguments at the latest; None when nothing is cached and no buffer lives that could
    leave anything."""

def version() -> str: ...
