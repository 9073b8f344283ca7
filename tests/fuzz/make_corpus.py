"""Write the corpora of the framing fuzzers, and the table that the message writer is
compared with, from messages that stock Dask makes.

Run it in an environment with distributed, numpy, pandas, lz4, zstandard and
python-snappy, and commit what changes. It writes
    corpus/message_reader/NAME       a message as stock puts it on the wire
    corpus/message_reader/referenced-NAME-N
                                     the same with its frames of N bytes and more by
                                     reference, by address and by descriptor in turn
    corpus/sub_header/NAME-K         sub-header K of that message
    corpus/side_channel/NAME         packets, as the fuzz target takes them
    corpus/segment/NAME              slices, and what a disk makes of them
    corpus/shard/NAME                columns and shards of them, right and wrong
    corpus/partitions/NAME           pieces of partitions, right and wrong
    corpus/arrow_format/NAME         formats of Arrow's types, right and wrong
    corpus/handshake/NAME            what stock says to a listener, in steps that the
                                     fuzz target takes
    ../unit/framing/stock_messages.h frames and first segment of each message
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import struct

import distributed
import msgpack
import numpy as np
import pandas as pd
from distributed.comm import connect
from distributed.comm.tcp import _add_frames_header
from distributed.protocol import Serialize, ToPickle, dumps, loads
from distributed.utils import nbytes

HERE = pathlib.Path(__file__).parent
REFERENCED = ("one_array", "several_sharded", "two_shards", "two_buffers", "dataframe")
TABLE = HERE.parent / "unit" / "framing" / "stock_messages.h"


class Holder:
    """Pickled as one value, so that its arrays share one sub-header."""

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays = arrays

    def __reduce_ex__(self, protocol: int) -> tuple:
        return tuple, (list(self.arrays),)


def array(size: int, start: int = 0) -> np.ndarray:
    """Bytes that do not compress."""
    return np.random.default_rng(start).integers(0, 256, size, dtype="u1")


def make(
    message: object, *, shard: int | None = None, compression: object = False, **options
) -> list:
    context = {"compression": compression}
    return dumps(message, context=context, frame_split_size=shard, **options)


def relay(frames: list) -> list:
    """What a scheduler does: values go through without being looked into."""
    received = [memoryview(bytearray(frame)) for frame in frames]
    return make(loads(received, deserialize=False))


def messages() -> dict[str, list]:
    value = Serialize
    zeros = np.zeros(40_000, dtype="u1")
    task = {"op": "compute-task", "key": ("x", 1), "priority": (0, 1), "who_has": {}}
    frame = pd.DataFrame({"a": np.arange(40), "b": np.arange(40.0), "c": ["x"] * 40})
    made = {
        "small_dict": make({"op": "identity", "reply": True}),
        "batch": make([task, {"op": "free-keys", "keys": ["a", "b"]}] * 5),
        "one_value": make({"x": value(123)}),
        "one_array": make({"x": value(array(600))}),
        "several_arrays": make({i: value(array(100 + i, i)) for i in range(8)}),
        "array_then_values": make(
            {i: value(array(90) if i == 0 else i) for i in range(9)}
        ),
        "sharded": make({"x": value(array(3000))}, shard=1000),
        "sharded_uneven": make({"x": value(array(3001)), "y": 1}, shard=1000),
        "several_sharded": make({i: value(array(900, i)) for i in range(3)}, shard=300),
        # The same lengths, first as one buffer in two shards, then as two buffers.
        "two_shards": make({"x": value(Holder(array(9000)))}, shard=4500),
        "two_buffers": make(
            {"x": value(Holder(array(4500), array(4500, 1)))}, shard=4500
        ),
        "collection": make({"x": value([array(500), {"a": array(70, 1)}, "b"])}),
        "collection_sharded": make({"x": value([array(500), array(70)])}, shard=64),
        "pickled": make({"x": ToPickle({"a": 1})}),
        "pickled_arrays": make({"x": ToPickle([array(300), array(40, 1)])}),
        "pickled_large": make(
            {"x": ToPickle(list(range(4000))), "y": value(array(50))}
        ),
        "dataframe": make({"x": value(frame)}),
        "empty_array": make({"x": value(np.empty(0)), "y": value(array(10))}),
        "empty_bytes": make({"x": value(b"")}),
        "not_serialized": make({"x": value(Holder())}, serializers=("dask",)),
        "broadcast": make({"x": value(np.broadcast_to(np.float64(1), (9, 9)))}),
        "plain_between": make({"a": 1, "x": value(array(99)), "b": ToPickle(array(9))}),
        "bytes_over_negligible": make({"a": "x" * 2100, "x": value(array(3000))}),
        "bytes_at_negligible": make({"a": "x" * 1700, "x": value(array(300))}),
    }
    for name in ("lz4", "zstd", "snappy", "zlib"):
        made[name] = make({"x": value(zeros)}, compression=name)
        made[f"{name}_sharded"] = make(
            {"x": value(zeros), "y": value(array(64))}, shard=20_000, compression=name
        )
    mixed = np.concatenate([zeros[:20_000], array(500)])
    made["partly_compressed"] = make(
        {"x": value(mixed)}, shard=20_000, compression="lz4"
    )
    for name in ("one_array", "sharded", "lz4_sharded", "collection"):
        made[f"{name}_relayed"] = relay(made[name])
    return made


def large_messages() -> dict[str, list]:
    """For the table only, which holds sizes: too large for a corpus."""
    value = Serialize
    return {
        "large_pair": make({i: value(array(70_000, i)) for i in range(2)}, shard=9000),
        "header_is_negligible": make({"a": "x" * 3000, "x": value(array(70_000))}),
        "header_is_not": make({"a": "x" * 3600, "x": value(array(70_000))}),
        "header_is_not_for_a_shard": make(
            {"a": "x" * 3000, "x": value(array(70_000))}, shard=35_000
        ),
    }


def table_row(name: str, frames: list) -> str:
    """Sizes with the number of the buffer that a frame is a part of; 0 for bytes."""
    buffers: list[object] = []
    parts = []
    for frame in frames:
        buffer = frame.obj if isinstance(frame, memoryview) else frame
        if isinstance(buffer, bytes):
            number = 0
        else:
            if not any(buffer is known for known in buffers):
                buffers.append(buffer)
            number = 1 + next(i for i, b in enumerate(buffers) if b is buffer)
        parts.append(f"{{{nbytes(frame)}, {number}}}")
    header = _add_frames_header(frames)[0][0]
    first_segment = int.from_bytes(header[:8], "little")
    return (
        f'    {{"{name}", {first_segment}, {len(frames)}, '
        f"(const stock_frame[]){{{', '.join(parts)}}}}},\n"
    )


def write_sub_headers(name: str, frames: list) -> None:
    at = 1
    while at < len(frames):
        header = bytes(frames[at])
        (HERE / "corpus" / "sub_header" / f"{name}-{at}").write_bytes(header)
        at += 1 + msgpack.loads(header, strict_map_key=False)["num-sub-frames"]


def referenced(frames: list, from_bytes: int) -> bytes:
    """As docs/wire_format.md has it under "Same host"."""
    bodies = [bytes(frame) for frame in frames]
    places, at = [], 0
    for number, body in enumerate(bodies):
        is_remote = len(body) >= from_bytes
        address = 0x7F0000000000 + 4096 * number
        places.append((1 if at % 3 == 2 else address) if is_remote else 0)
        at += is_remote
    prelude = [1 << 63 | 8 + 16 * len(bodies), len(bodies)]
    numbers = prelude + [len(body) for body in bodies] + places
    stream = [body for body, place in zip(bodies, places, strict=True) if place == 0]
    return np.array(numbers, dtype="<u8").tobytes() + b"".join(stream)


def write_referenced(made: dict[str, list]) -> None:
    for name in REFERENCED:
        for from_bytes in (1, 1000):
            target = (
                HERE / "corpus" / "message_reader" / f"referenced-{name}-{from_bytes}"
            )
            target.write_bytes(referenced(made[name], from_bytes))


def packet(kind: int, *numbers: int, behind: bytes = b"", passed: int = 0) -> bytes:
    """As fuzz_side_channel.c reads them; the numbers are epoch, number, place, and the
    way with the errno."""
    numbers += (0,) * (4 - len(numbers))
    head = bytes([kind]) + b"SPWHOST" + np.array(numbers, dtype="<u8").tobytes()
    data = head + behind
    return len(data).to_bytes(2, "little") + bytes([passed]) + data


def side_channels() -> dict[str, bytes]:
    sender, by_descriptor, not_greeted = 1, 2, 4
    way, taken, descriptor, chunk = 2, 3, 4, 5
    bodies = b"".join(
        packet(chunk, 1, number, offset, behind=bytes(350))
        for number in range(3)
        for offset in (0, 350)
    )
    passed = b"".join(packet(descriptor, 1, n, 700, passed=2) for n in range(3))
    mixed = packet(descriptor, 1, 0, 700, passed=2)
    mixed += packet(chunk, 1, 1, 0, behind=bytes(700)) + packet(descriptor, 1, 2, 700)
    heard = packet(taken, 1, 2) + packet(taken, 1, 3) + packet(way, 2, 4, 0, 2)
    hello = packet(1, 1, 0, 4096, behind=bytes(48))
    return {
        "bytes": bytes([by_descriptor]) + bodies,
        "descriptors": bytes([by_descriptor]) + passed,
        "descriptor_lost": bytes([by_descriptor]) + mixed,
        "by_address": bytes([0]) + packet(chunk, 1, 0, 0),
        "hello": bytes([not_greeted | by_descriptor]) + hello + bodies,
        "sender_hears": bytes([sender]) + packet(taken, 1, 0) + heard + heard,
        "sender_steps_down": bytes([sender | by_descriptor])
        + packet(taken, 1, 0)
        + packet(way, 2, 1, 10, 2)
        + packet(taken, 2, 2)
        + packet(way, 3, 2, 0, 3),
        "sender_never_met": bytes([sender | not_greeted]) + packet(way, 1, 0, 0, 3),
        # No packet has nothing but a descriptor: it stayed open.
        "empty_packet_with_descriptor": bytes([0, 0, 0, 1]),
        "empty_hello_with_descriptor": bytes([not_greeted, 0, 0, 1]),
    }


async def heard_from_stock(*messages: object) -> list[bytes]:
    """What a comm of stock says to a server: the handshake, and each message."""
    async with distributed.core.Server({}) as server, contextlib.AsyncExitStack() as on:
        await server.listen("tcp://127.0.0.1:0")
        heard: list[bytes] = []
        is_over = asyncio.Event()

        async def pass_on(reader, writer, keep: bool) -> None:
            while data := await reader.read(1 << 16):
                if keep:
                    heard.append(data)
                writer.write(data)
            writer.close()

        async def relay(reader, writer) -> None:
            host, port = server.address.removeprefix("tcp://").split(":")
            back, on_to = await asyncio.open_connection(host, port)
            await asyncio.gather(
                pass_on(reader, on_to, True), pass_on(back, writer, False)
            )
            is_over.set()

        between = await on.enter_async_context(
            await asyncio.start_server(relay, "127.0.0.1", 0)
        )
        port = between.sockets[0].getsockname()[1]
        comm = await connect(f"tcp://127.0.0.1:{port}")
        for message in messages:
            await comm.write(message)
            await comm.read()
        await comm.close()
        await is_over.wait()
    return split_messages(b"".join(heard))


def split_messages(stream: bytes) -> list[bytes]:
    """Each with the numbers that go before it."""
    found = []
    while stream:
        count = int.from_bytes(stream[8:16], "little")
        lengths = np.frombuffer(stream[16 : 16 + 8 * count], "<u8")
        size = 16 + 8 * count + int(lengths.sum())
        found.append(stream[:size])
        stream = stream[size:]
    return found


def step(kind: int, peer: int = 0, *, at_once: bool = False, afar: bool = False):
    return bytes([kind | peer << 3 | at_once << 5 | afar << 6])


def say(data: bytes, peer: int = 0, pieces: int = 1, **how) -> bytes:
    size = -(-len(data) // pieces)
    return b"".join(
        step(0, peer, **how) + len(part).to_bytes(2, "little") + part
        for part in (data[i : i + size] for i in range(0, len(data), size))
    )


def handshakes() -> dict[str, bytes]:
    """As fuzz_handshake.c reads them."""
    says_nothing, small_inline, limited, nobody_else = (
        bytes([1 << i]) for i in range(4)
    )
    usual = bytes([0])
    connect_, end, reset, take, receive, zeros = 2, 3, 4, 5, 6, 7
    request = {"op": "identity", "reply": True}
    hello, identity, *_ = asyncio.run(heard_from_stock(request))
    array_ = b"".join(
        map(bytes, _add_frames_header(make({"x": Serialize(array(9000))}))[0])
    )
    taken = step(take) + step(receive)
    begun = step(connect_) + say(hello)
    large = np.array([24 + (2 << 20), 1, 2 << 20], "<u8").tobytes()
    two = step(connect_, 0) + step(connect_, 1, afar=True)
    return {
        "hello": usual + begun + taken,
        "hello_alone": nobody_else + begun,
        "in_pieces": usual + step(connect_) + say(hello + identity, pieces=40) + taken,
        "request": small_inline + begun + say(identity) + taken + say(array_) + taken,
        "at_once": usual + step(connect_) + say(hello + identity, at_once=True) + taken,
        "many_requests": usual + begun + say(identity * 30) + taken + step(receive),
        "ends": usual + begun + say(identity[:30]) + step(end) + taken,
        "resets": says_nothing + begun + step(reset) + taken,
        "large_body": limited
        + begun
        + say(large)
        + (step(zeros) + b"\xff\x7f") * 2
        + taken,
        "two_large": limited
        + two
        + say(hello, 0)
        + say(hello, 1)
        + say(large, 0)
        + say(large, 1)
        + (step(zeros, 1) + b"\0\x20")
        + taken
        + step(reset, 0)
        + step(receive),
        "taken_first": small_inline
        + step(connect_)
        + taken
        + say(hello, pieces=3)
        + step(receive)
        + say(array_, pieces=2)
        + step(receive),
        "not_dask": usual + step(connect_) + say(b"GET / HTTP/1.1\r\n\r\n") + taken,
        "nobody": nobody_else + step(connect_) * 12,
    }


def segments() -> dict[str, bytes]:
    """As fuzz_segment.c reads them."""
    made = {"nothing_in_it": bytes([0])}
    for codec, name in enumerate(("plain", "lz4", "zstd")):
        head = bytes([codec + 4 * 2])
        head += b"".join(size.to_bytes(2, "little") for size in (100, 9000, 0))
        spoilt = (130).to_bytes(3, "little") + b"\x55" + (40).to_bytes(3, "little")
        made[name] = head
        made[f"{name}_spoilt"] = head + spoilt + b"\x01"
        made[f"{name}_cut"] = head + b"\x63"
    return made


def filled(part: bytes) -> bytes:
    return part + bytes(-len(part) % 8)


def shards() -> dict[str, bytes]:
    """As fuzz_shard.c reads them; docs/shuffle_layout.md has the bytes of a shard."""
    fixed, bits, binary, blob, a_list, fixed_list, validity = 1, 2, 3, 4, 5, 6, 128

    def columns(*types: tuple[int, ...]) -> bytes:
        return bytes([len(types)]) + b"".join(bytes(one) for one in types)

    def shard(rows: int, sizes: tuple[int, ...], *parts: bytes) -> bytes:
        data = b"".join(map(filled, parts))
        head = rows.to_bytes(4, "little")
        head += b"".join(size.to_bytes(8, "little") for size in sizes)
        return head + len(data).to_bytes(2, "little") + data

    def ends(*numbers: int) -> bytes:
        return np.array(numbers, "<u4").tobytes()

    numbers = columns((fixed | validity, 2))
    strings = columns((binary, 8))
    every = columns((fixed, 3), (bits | validity, 0), (binary | validity, 4))
    three = shard(3, (), b"\x05", bytes(range(6)))
    words = shard(3, (4,), ends(1, 1, 4), b"adef")
    mixed = shard(
        3, (7,), bytes(range(9)), b"\x07", b"\x02", b"\x06", ends(0, 3, 7), b"abcdefg"
    )
    lists = columns((a_list, 8, 1), (fixed, 1), (a_list, 4, 1), (fixed, 1))
    # Ends of both lists stand before what is in them.
    nested = shard(2, (4, 2), ends(1, 4), ends(1, 2), b"abcd", b"vw")
    pairs = columns((fixed_list | validity, 2, 2), (bits, 0), (fixed, 1))
    long = shard(
        70, (70,), bytes(range(210)), *[b"\x55" * 9] * 3, ends(*range(1, 71)), b"x" * 70
    )
    return {
        "no_shards": every + b"\0",
        "no_columns": b"\0\2" + shard(9, ()) + shard(1 << 15, ()),
        "numbers": numbers + b"\3" + three + shard(0, ()) + three,
        "strings": strings + b"\2" + words * 2,
        "every_kind": every + b"\3" + mixed + long + mixed,
        "ends_decrease": strings + b"\1" + shard(3, (4,), ends(2, 1, 4), b"adef"),
        "ends_beyond": strings + b"\1" + shard(3, (4,), ends(1, 9, 4), b"adef"),
        "ends_short": strings + b"\2" + words + shard(3, (5,), ends(1, 1, 4), b"adefg"),
        "many_rows": numbers + b"\1" + shard(2**32 - 1, (), b"\x05", bytes(6)),
        "many_bytes": strings + b"\1" + shard(3, (2**64 - 3,), ends(1, 1, 4), b"a"),
        "bytes_without_rows": strings + b"\1" + shard(0, (4,), b"", b"adef"),
        "cut": every + b"\2" + mixed + long[:300],
        "unknown_kind": columns((0, 8)) + b"\1" + three,
        "blobs": columns((blob, 0), (fixed, 1))
        + b"\2"
        + shard(3, (5,), b"abcde", b"xyz") * 2,
        "lists": lists + b"\2" + nested * 2,
        "list_ends_short": lists
        + b"\1"
        + shard(2, (4, 2), ends(1, 3), b"abcd", ends(1, 2), b"vw"),
        "list_of_too_many": lists + b"\1" + shard(2, (2**32, 2), ends(1, 4)),
        "fixed_lists": pairs + b"\2" + shard(2, (), b"\x03", b"\x05", b"abcd") * 2,
        "fixed_list_of_too_many": pairs + b"\1" + shard(2**31, (), b"\x03", b"abcd"),
        "tree_too_short": columns((a_list, 4, 2), (fixed, 1)) + b"\1" + nested,
        "odd_offsets": columns((binary, 5)) + b"\1" + words,
    }


def partitions() -> dict[str, bytes]:
    """Pieces of partitions, as fuzz_partitions.c takes them."""

    def piece(
        number: int,
        first: int,
        rows: list[int],
        body: bytes,
        counts: list[int] | None = None,
    ) -> bytes:
        out = bytes([number, first, len(rows)])
        for i, count in enumerate(rows):
            out += struct.pack("<H", count)
            if counts is not None:
                out += struct.pack("<H", counts[i])
        return out + struct.pack("<H", len(body)) + body

    def text(ends: list[int], data: bytes) -> bytes:
        parts = (b"".join(struct.pack("<I", end) for end in ends), data)
        return b"".join(part + bytes(-len(part) % 8) for part in parts)

    items, strings, two = bytes([1, 1, 8]), bytes([1, 3, 4]), bytes(range(16))
    good = piece(0, 0, [1, 0, 1], two)
    more = piece(2, 0, [2, 0], two) + piece(1, 3, [2], two)
    return {
        "memory": items + b"\0" + good + more,
        "disk": items + b"\1" + good + more,
        "overlap": items + b"\0" + good + piece(0, 2, [2], two),
        "other_rows": items + b"\0" + good + piece(0, 0, [1, 1, 0], two),
        "too_few_bytes": items + b"\0" + piece(0, 0, [1, 2], two),
        "outside": items + b"\0" + piece(0, 7, [1, 1], two),
        "text_disk": strings
        + b"\1"
        + piece(0, 0, [2, 1], text([1, 3], b"abc") + text([2], b"de"), [3, 2])
        + piece(1, 0, [1], text([2], b"de"), [2]),
        "text_ends_decrease": strings
        + b"\1"
        + piece(0, 0, [2], text([4, 3], b"abc"), [3]),
        "bytes_without_rows": strings + b"\0" + piece(0, 0, [0], text([], b"abc"), [3]),
        "no_columns": b"\0\0" + piece(0, 0, [5, 0, 3], b""),
    }


def arrow_formats() -> dict[str, bytes]:
    """What stands in a schema, and little else."""
    return {
        "boolean": b"b",
        "zone": b"tsu:Europe/Rome",
        "decimal": b"d:38,-4",
        "decimal_of_256": b"d:76,10,256",
        "bytes": b"w:12",
        "no_bytes": b"w:0",
        "text": b"U",
        "list": b"+l",
        "pairs": b"+w:2",
        "struct": b"+s",
        "view": b"vu",
        "union": b"+us:0,1",
        "too_wide": b"w:99999999999999999999",
    }


def main() -> None:
    for corpus in (
        "message_reader",
        "sub_header",
        "side_channel",
        "segment",
        "shard",
        "partitions",
        "arrow_format",
        "handshake",
    ):
        (HERE / "corpus" / corpus).mkdir(parents=True, exist_ok=True)
    made = messages()
    for name, frames in made.items():
        wire = b"".join(bytes(part) for part in _add_frames_header(frames)[0])
        (HERE / "corpus" / "message_reader" / name).write_bytes(wire)
        write_sub_headers(name, frames)
    write_referenced(made)
    for name, packets in side_channels().items():
        (HERE / "corpus" / "side_channel" / name).write_bytes(packets)
    for name, spoilt in segments().items():
        (HERE / "corpus" / "segment" / name).write_bytes(spoilt)
    for name, data in shards().items():
        (HERE / "corpus" / "shard" / name).write_bytes(data)
    for name, data in partitions().items():
        (HERE / "corpus" / "partitions" / name).write_bytes(data)
    for name, data in arrow_formats().items():
        (HERE / "corpus" / "arrow_format" / name).write_bytes(data)
    for name, steps in handshakes().items():
        (HERE / "corpus" / "handshake" / name).write_bytes(steps)
    rows = "".join(table_row(n, f) for n, f in {**made, **large_messages()}.items())
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(
        f"/* Written by tests/fuzz/make_corpus.py with distributed "
        f"{distributed.__version__}: do not edit.\n"
        " * How stock cuts its messages. */\n"
        "/* clang-format off */\n"
        "static const stock_message STOCK_MESSAGES[] = {\n" + rows + "};\n"
    )


if __name__ == "__main__":
    main()
