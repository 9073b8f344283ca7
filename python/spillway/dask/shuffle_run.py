"""One shuffle of a DataFrame on one worker: what Dask's plugin calls a run.

Rows are split once, to their last partition, by the worker that has them
(shuffle_split.py). What is for one worker goes there as one range of bytes
(shuffle_outbox.py) and is kept as it came, in memory or on disk, by the C library
(`_native.Partitions`). A partition is put together from all its shards at once, when
it is asked for, and is gone then; a shuffle of which one is asked for again is
restarted, and keeps them (shuffle_again.py).

Rows that were sent are rows that arrived: before a run's barrier is passed each worker
tells each other what it sent of each input, and a difference fails the run.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from time import thread_time_ns, time
from typing import Any

from spillway import _native, frame_columns, shuffle_figures
from spillway.column_memory import BLOB
from spillway.dask import (
    shuffle_again,
    shuffle_errors,
    shuffle_memory,
    shuffle_pressure,
)
from spillway.dask.shuffle_message import Piece, Pieces, ReadAgain, Sums
from spillway.dask.shuffle_outbox import Outbox
from spillway.dask.shuffle_split import Splitter

logger = logging.getLogger("spillway")


class DataFrameRun:
    """What Dask's `ShuffleRun` is to its callers, for DataFrames."""

    def __init__(
        self,
        spec: Any,
        run_id: int,
        worker_for: dict[int, str],
        span_id: str | None,
        plugin: Any,
    ) -> None:
        worker = plugin.worker
        self.id, self.run_id, self.span_id = spec.id, run_id, span_id
        self.column, self.meta = spec.column, spec.meta
        self.drop_column = spec.drop_column
        self.worker_for = worker_for
        self.local_address = worker.address
        self.start_time = time()
        self.closed = self.transferred = False
        self._worker, self._executor = worker, plugin._executor
        self._loop = asyncio.get_running_loop()
        self._exception: Exception | None = None
        self._closed_event = asyncio.Event()
        self._splitter = Splitter(spec, worker_for)
        self._own = self._splitter.partitions_of.get(self.local_address, [])
        self._others = [
            address
            for address in self._splitter.partitions_of
            if address != self.local_address
        ]
        self._place_of = {partition: i for i, partition in enumerate(self._own)}
        self._lock = threading.Lock()
        """Over what is known of layouts, inputs and sums."""
        self._types: dict[Any, int] = {}
        self._layout_of: dict[int, Any] = {}
        self._layouts: list[Any] = []
        self._layout_numbers: dict[Any, int] = {}
        self._sent: dict[str, dict[int, int]] = {}
        self._rows_of: dict[int, int] = {}
        self._sequences: dict[str, int] = {}
        self._taken: dict[str, set[int]] = {}
        self._told: dict[str, set[int]] = {}
        self._foreign_layouts: dict[str, dict[int, Any]] = {}
        self._received_bytes = 0
        self._read_places: set[int] = set()
        self._again = (
            shuffle_again.KeptFrames(worker.local_directory)
            if shuffle_again.is_noted(self.id)
            else None
        )
        self._outbox = Outbox(
            self._send,
            shuffle_memory.waiting_on(worker),
            limit=shuffle_memory.outbox_bytes(worker, len(self._others)),
            message_bytes=shuffle_memory.MESSAGE_BYTES,
        )
        self._memory_limit = shuffle_memory.memory_bytes(worker, spec)
        self._kept: Any = shuffle_memory.open_partitions(
            worker, len(self._own), self._memory_limit
        )
        shuffle_figures.opened(self, self._kept.figures)
        shuffle_figures.add(runs=1)
        if self._memory_limit:
            shuffle_pressure.watch(worker, self)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: id={self.id!r}, run_id={self.run_id!r}, "
            f"local_address={self.local_address!r}, closed={self.closed!r}, "
            f"transferred={self.transferred!r}>"
        )

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}<{self.id}[{self.run_id}]> on {self.local_address}"
        )

    def __hash__(self) -> int:
        return self.run_id

    @property
    def _partitions(self) -> Any:
        """Where rows are, until this run is over."""
        kept = self._kept
        if kept is None:
            self.raise_if_closed()
        return kept

    # What tasks call, in their threads.

    def add_partition(self, data: Any, partition_id: int) -> int:
        """Split an input and hand out its rows. Waits while too much is on its way.

        Raises
        ------
        TypeError, ValueError
            When it is not what the graph said that it is, or a row has a partition that
            there is not.
        """
        from distributed.metrics import context_meter, thread_time
        from distributed.utils import sync

        self.raise_if_closed()
        if self.transferred:
            raise RuntimeError(f"Cannot add more partitions to {self}")
        self._splitter.check(data)
        with self._saying_why_it_is_over(), self._capture_metrics("foreground"):
            with (
                context_meter.meter("p2p-shard-partition-noncpu"),
                context_meter.meter("p2p-shard-partition-cpu", func=thread_time),
            ):
                pieces = self._split(data, partition_id)
            if self._keep_own(pieces):
                self._make_room()
            if pieces:
                sync(self._worker.loop, self._outbox.put, pieces)
                self.raise_if_closed()
        return self.run_id

    def get_output_partition(
        self, partition_id: int, key: Any, meta: Any = None, **kwargs: Any
    ) -> Any:
        """All rows of a partition, in the order of inputs and their rows.

        Raises
        ------
        RuntimeError
            Before the barrier, and when it is gone and the shuffle cannot be restarted.
        Reschedule
            When it is another worker's; this task will run there. When it is gone; this
            task will run after a restart.
        """
        from distributed.metrics import context_meter, thread_time
        from distributed.utils import sync

        self.raise_if_closed()
        sync(self._worker.loop, self._ensure_output_worker, partition_id, key)
        if not self.transferred:
            raise RuntimeError("`get_output_partition` called before barrier task")
        with (
            self._saying_why_it_is_over(),
            self._capture_metrics("foreground"),
            context_meter.meter("p2p-get-output-noncpu"),
            context_meter.meter("p2p-get-output-cpu", func=thread_time),
        ):
            if self._again is not None:
                return self._again.read(partition_id, self._read_once)
            return self._read_once(partition_id)

    def _read_once(self, partition_id: int) -> Any:
        place = self._place_of[partition_id]
        with self._lock:
            is_gone = place in self._read_places
            self._read_places.add(place)
        if is_gone:
            from distributed.utils import sync

            sync(self._worker.loop, self._start_again, partition_id)
        return self._read(place)

    def _split(self, data: Any, partition_id: int) -> dict[str, Piece]:
        from distributed.metrics import context_meter

        layout, pieces, apart_ns = self._splitter.split(data, partition_id)
        with self._lock:
            number = self._layout_numbers.setdefault(layout, len(self._layouts))
            if number == len(self._layouts):
                self._layouts.append(layout)
            for address, piece in pieces.items():
                piece.layout = number
                self._sent.setdefault(address, {})[partition_id] = piece.rows
        size = sum(piece.nbytes for piece in pieces.values())
        context_meter.digest_metric("p2p-shards", size, "bytes")
        context_meter.digest_metric("p2p-shards", len(pieces), "count")
        own = pieces.get(self.local_address)
        shuffle_figures.add(
            inputs=1,
            rows_in=sum(piece.rows for piece in pieces.values()),
            bytes_in=size,
            kept_bytes=own.nbytes if own is not None else 0,
            opaque_columns=sum(type is BLOB for type in layout.types),
            apart_ns=apart_ns,
        )
        return pieces

    def _keep_own(self, pieces: dict[str, Piece]) -> bool:
        """Keep what is for this worker, of which nobody then has another reference:
        memory is given back only if so. Whether room is to be made."""
        own = pieces.pop(self.local_address, None)
        return own is not None and self._keep(own, self._layouts[own.layout])

    def _keep(self, piece: Piece, layout: Any) -> bool:
        """Put a piece where its partitions are read from. Whether room is to be made.
        Thread: any."""
        with self._lock:
            types = self._types.get(layout)
            if types is None:
                types = self._partitions.add_types(
                    [type.native for type in layout.types]
                )
                self._types[layout] = types
                self._layout_of[types] = layout
            known = self._rows_of.get(piece.input)
            if known is not None and known != piece.rows:
                raise RuntimeError(
                    f"Input {piece.input} of {self} came twice, with {known} rows and "
                    f"with {piece.rows}: what it is computed from is not the same each "
                    "time"
                )
            self._rows_of[piece.input] = piece.rows
        is_new, is_full = self._partitions.put(
            types, piece.input, piece.shards, piece.rows_of, piece.counts_of
        )
        if not is_new:
            shuffle_figures.add(repeats=1)
        return is_full

    def _make_room(self) -> None:
        """Write to disk what is above the limit. Thread: any, it waits for the disk."""
        try:
            self._partitions.write()
        except OSError as error:
            raise shuffle_errors.out_of_disk(error) from error

    def _read(self, place: int) -> Any:
        self._partitions.finish()
        groups = frame_columns.read(
            self._partitions, place, self._layout_of, _native.allocate
        )
        if not groups:
            empty = self.meta.copy()
            return empty.drop(columns=self.column) if self.drop_column else empty
        start = thread_time_ns()
        frames = [frame_columns.put_together(*group) for group in groups]
        frame = frames[0] if len(frames) == 1 else frame_columns.concat(frames)
        frame = self._splitter.as_meta_orders(frame)
        shuffle_figures.add(
            outputs=1,
            rows_out=len(frame),
            together_ns=thread_time_ns() - start,
        )
        return frame

    # What the plugin calls, on the event loop.

    async def receive(self, data: Any) -> dict[str, Any]:
        """Take what another worker sent; the answer says that this one has it."""
        self.raise_if_closed()
        with self._failing():
            if isinstance(data, Sums):
                self._compare(data)
            elif isinstance(data, Pieces):
                await self._take(data)
            elif isinstance(data, ReadAgain):
                shuffle_again.note(self.id)
            else:
                raise RuntimeError(
                    f"{self} got shards of Dask's own shuffle, from a worker without "
                    "Spillway that joined later; start all workers of a cluster with "
                    "Spillway, or with SPILLWAY_DISABLE=shuffle"
                )
        return {"status": "OK"}

    async def inputs_done(self) -> None:
        """Have everything arrive, and see that it has. What it raises fails the run."""
        self.raise_if_closed()
        self.transferred = True
        with self._failing():
            await self._outbox.flush()
            await asyncio.gather(
                *(self._confirm(address) for address in list(self._sent))
            )

    async def barrier(self, run_ids: Any) -> int:
        """Tell the scheduler that all inputs are there."""
        self.raise_if_closed()
        await self._worker.scheduler.shuffle_barrier(
            id=self.id,
            run_id=self.run_id,
            consistent=all(run_id == self.run_id for run_id in run_ids),
        )
        return self.run_id

    def heartbeat(self) -> dict[str, Any]:
        """What the scheduler's dashboard shows of this run."""
        disk, outbox = self._partitions.figures(), self._outbox
        return {
            "disk": {
                "memory": disk["memory_bytes"],
                "total": disk["put_bytes"],
                "buckets": disk["partitions"],
                "written": disk["written_bytes"],
                "read": disk["read_bytes"],
                "avg_size": _mean(disk["written_bytes"], disk["writes"]),
                "avg_duration": _mean(disk["write_ns"] / 1e9, disk["writes"]),
                "memory_limit": self._memory_limit,
            },
            "comm": {
                "memory": outbox.waiting_bytes,
                "total": outbox.waiting_bytes + outbox.sent_bytes,
                "buckets": outbox.waiting_workers,
                "written": outbox.sent_bytes,
                "read": self._received_bytes,
                "avg_size": _mean(outbox.sent_bytes, outbox.messages),
                "avg_duration": _mean(outbox.send_seconds, outbox.messages),
                "memory_limit": outbox.limit,
            },
            "start": self.start_time,
        }

    @property
    def held_bytes(self) -> int:
        """Memory of its rows here."""
        return self._partitions.figures()["held_bytes"]

    def limit_memory(self, nbytes: int | None) -> None:
        """Have it keep no more than this in memory, with all other shuffles, or what
        its buffer says."""
        limit = self._memory_limit
        self._partitions.limit(limit if nbytes is None else min(limit, nbytes))

    async def make_room(self) -> None:
        """Write to disk what is above the limit."""
        with self._capture_metrics("background-disk"):
            await self._offload(self._make_room)

    async def give_up(self, error: Exception) -> None:
        """Let go of all rows, and have whoever still asks for something get this."""
        self.fail(error)
        await self.close()

    def fail(self, exception: Exception) -> None:
        """Have whoever still asks for something get this."""
        if not self.closed:
            self._exception = exception

    async def close(self) -> None:
        """Let go of all rows, and of their files."""
        if self.closed:
            await self._closed_event.wait()
            return
        self.closed = True
        try:
            await self._outbox.close()
        finally:
            last = self._let_go()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, last.clear)
            if self._again is not None:
                await loop.run_in_executor(None, self._again.close)
            self._closed_event.set()

    def close_if_given_up(self) -> None:
        """Let go of all rows if the loop was closed without this run, as that of a
        cluster is that is interrupted. Thread: any."""
        if self._loop.is_closed():
            self.closed = True
            self._let_go()
            if self._again is not None:
                self._again.close()

    def _let_go(self) -> list[Any]:
        """Whoever still has this run does not keep its rows and files. Returns the last
        reference to what had them, if it is still here."""
        with self._lock:
            last, self._kept = [self._kept], None
        if last[0] is None:
            return []
        shuffle_pressure.forget(self._worker, self)
        shuffle_figures.closed(self, last[0].figures())
        last[0].close()
        return last

    def raise_if_closed(self) -> None:
        """Raise why this run is over, if it is."""
        from distributed.shuffle._exceptions import (
            P2PConsistencyError,
            ShuffleClosedError,
        )

        if self.closed:
            if self._exception is not None:
                # Another each time: an error keeps the frames that it came through, and
                # what is in them, and this run would keep the error.
                raise P2PConsistencyError(str(self._exception))
            raise ShuffleClosedError(f"{self} has already been closed")

    async def _take(self, message: Pieces) -> None:
        """Keep the pieces of a message; returns when there is room for the next."""
        taken = self._taken.setdefault(message.sender, set())
        layouts = self._foreign_layouts.setdefault(message.sender, {})
        layouts.update(message.layouts)
        is_full = False
        if message.sequence in taken:
            shuffle_figures.add(repeats=1)
        else:
            size = message.nbytes
            while message.pieces:  # nobody else has another reference then
                piece = message.pieces.pop(0)
                layout = layouts.get(piece.layout)
                if layout is None:
                    raise RuntimeError(
                        f"{self} lacks rows: of input {piece.input} {message.sender} "
                        "sent some of a layout that was in a message that is not here"
                    )
                is_full |= self._keep(piece, layout)
                del piece
            taken.add(message.sequence)
            self._received_bytes += size
            shuffle_figures.add(received_messages=1, received_bytes=size)
        if is_full:
            await self.make_room()

    def _compare(self, sums: Sums) -> None:
        differ = {
            input: (rows, self._rows_of.get(input, 0))
            for input, rows in sums.rows_of.items()
            if self._rows_of.get(input, 0) != rows
        }
        if differ:
            input, (sent, came) = next(iter(differ.items()))
            raise RuntimeError(
                f"{self} lacks rows: {sums.sender} sent {sent} of input {input}, and "
                f"{came} are here ({len(differ)} inputs differ)"
            )

    async def _send(self, address: str, pieces: list[Piece]) -> None:
        """Bring pieces to a worker, however often it takes."""
        sequence = self._sequences.get(address, 0)
        self._sequences[address] = sequence + 1
        told = self._told.setdefault(address, set())
        new = {piece.layout for piece in pieces} - told
        message = Pieces(
            self.local_address,
            sequence,
            pieces,
            {number: self._layouts[number] for number in new},
        )
        with self._capture_metrics("background-comms"):
            await self._call(address, message)
        told |= new
        shuffle_figures.add(sent_messages=1, sent_bytes=message.nbytes)

    async def _confirm(self, address: str) -> None:
        sums = Sums(self.local_address, self._sent[address])
        if address == self.local_address:
            self._compare(sums)
        else:
            await self._call(address, sums)

    async def _call(self, address: str, message: Any) -> None:
        from distributed.protocol import to_serialize
        from distributed.utils_comm import retry

        async def call() -> Any:
            self.raise_if_closed()
            return await self._worker.rpc(address).shuffle_receive(
                data=to_serialize(message), shuffle_id=self.id, run_id=self.run_id
            )

        _raise_error_of(await retry(call, **shuffle_memory.retries()))

    async def _ensure_output_worker(self, partition_id: int, key: Any) -> None:
        from distributed.exceptions import Reschedule

        assigned = self.worker_for[partition_id]
        if assigned == self.local_address:
            self._expect_next(partition_id, key)
            return
        response = await self._worker.scheduler.shuffle_restrict_task(
            id=self.id, run_id=self.run_id, key=key, worker=assigned
        )
        _raise_error_of(response)
        raise Reschedule()

    def _expect_next(self, partition_id: int, key: Any) -> None:
        """Say which partition the next task will ask for, if it is like this one."""
        ready = self._worker.state.ready
        if not ready or not isinstance(key, tuple) or key[-1] != partition_id:
            return
        next_key = ready.peek().key
        if isinstance(next_key, tuple) and next_key[:-1] == key[:-1]:
            place = self._place_of.get(next_key[-1])
            if place is not None:
                self._partitions.expect(place)

    async def _start_again(self, partition_id: int) -> None:
        """Have this shuffle restarted, and its next run keep what is read."""
        from distributed.exceptions import Reschedule

        logger.warning(
            "Partition %d of %s is read again, and is gone: the shuffle is restarted, "
            "and keeps its partitions on disk from then on",
            partition_id,
            self,
        )
        shuffle_again.note(self.id)
        await asyncio.gather(
            *(self._call(other, ReadAgain()) for other in self._others)
        )
        scheduler = self._worker.scheduler
        # Another worker may have been faster; then it is another run by now.
        with contextlib.suppress(KeyError, ValueError):
            await scheduler.shuffle_barrier(
                id=self.id, run_id=self.run_id, consistent=False
            )
        now = await scheduler.shuffle_get(id=self.id, worker=self.local_address)
        if now["status"] == "OK" and now["run_spec"].run_id == self.run_id:
            raise RuntimeError(
                f"Partition {partition_id} of {self} was read before and is gone, and "
                "Dask does not restart a shuffle of which a task has failed; compute "
                "it again when that task is forgotten"
            )
        shuffle_figures.add(restarts=1)
        raise Reschedule()

    @contextlib.contextmanager
    def _saying_why_it_is_over(self) -> Iterator[None]:
        """Have what fails as this run is over meanwhile, since partitions or a file are
        closed, say why it is."""
        try:
            yield
        except (OSError, ValueError):
            self.raise_if_closed()
            raise

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Have what goes wrong within fail this run, for all who ask from now on.

        An OSError fails it as another error that says the same. Whoever called, a
        worker or the scheduler, would take it for a connection that failed, and call
        again, for minutes.
        """
        from distributed.shuffle._exceptions import P2PConsistencyError

        try:
            with self._saying_why_it_is_over():
                yield
        except OSError as error:
            failure = P2PConsistencyError(f"{self} failed: {error}")
            self.fail(self._exception or failure)
            raise failure from error
        except Exception as error:
            self.fail(self._exception or error)
            raise

    async def _offload(self, function: Any) -> Any:
        from distributed.utils import run_in_executor_with_context

        return await run_in_executor_with_context(self._executor, function)

    @contextlib.contextmanager
    def _capture_metrics(self, where: str) -> Iterator[None]:
        """Have what is metered within count for this shuffle, under the names by which
        Dask's dashboard finds it: ("p2p", span, where, label, unit)."""
        from distributed.metrics import context_meter

        # Not self: a connection that is made within keeps the context, and with it this
        # function, for as long as it is open. A run has to go with all that it holds.
        worker, span_id = self._worker, self.span_id

        def note(label: Any, value: float, unit: str) -> None:
            parts = label if isinstance(label, tuple) else (label,)
            if isinstance(parts[0], str):
                parts = (parts[0].removeprefix("p2p-"), *parts[1:])
            worker.digest_metric(("p2p", span_id, where, *parts, unit), value)

        with context_meter.add_callback(note, allow_offload="background" in where):
            yield


def _raise_error_of(response: dict[str, Any]) -> None:
    """Raise what another process answered that it has raised, if so."""
    from distributed.core import clean_exception

    if response["status"] == "error":
        _, error, traceback = clean_exception(**response)
        assert error is not None
        raise error.with_traceback(traceback)


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0
