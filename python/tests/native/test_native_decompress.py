"""decompress(): every codec of stock peers, from frames made by hand, so that no codec
package is needed and each corner of the formats can be reached."""

import struct
import zlib

import pytest
from loopback import budget

from spillway import _native


def plain(size):
    return bytes(i * 7 % 251 for i in range(size))


def lz4_frame(data):
    """A size, then one block that is all literals."""
    token, rest = min(len(data), 15), len(data) - 15
    lengths = b"" if rest < 0 else b"\xff" * (rest // 255) + bytes([rest % 255])
    return struct.pack("<I", len(data)) + bytes([token << 4]) + lengths + data


def snappy_frame(data):
    """A size, then literals of at most 60 bytes."""
    size, head = len(data), b""
    while size >= 128:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    parts = [data[i : i + 60] for i in range(0, len(data), 60)]
    literals = b"".join(bytes([len(part) - 1 << 2]) + part for part in parts)
    return head + bytes([size]) + literals


def zstd_frame(data, says_size=True):
    """A frame of one raw block."""
    magic, block = b"\x28\xb5\x2f\xfd", struct.pack("<I", len(data) << 3 | 1)[:3]
    if says_size:
        return magic + b"\xa0" + struct.pack("<I", len(data)) + block + data
    return magic + b"\x00\x38" + block + data


def zstd_frame_without_size(data):
    return zstd_frame(data, says_size=False)


CODECS = [
    pytest.param("lz4", lz4_frame, id="lz4"),
    pytest.param("snappy", snappy_frame, id="snappy"),
    pytest.param("zstd", zstd_frame, id="zstd"),
    pytest.param("zstd", zstd_frame_without_size, id="zstd without size"),
    pytest.param("zlib", zlib.compress, id="zlib"),
]


@pytest.mark.parametrize("codec, compress", CODECS)
@pytest.mark.parametrize("sizes", [[1000], [1000, 3, 70_000], [5, 0, 7], [0], []])
def test_shards_come_back_side_by_side(codec, compress, sizes):
    shards = [plain(size) for size in sizes]
    held = budget()["held"]
    view = _native.decompress(codec, [compress(shard) for shard in shards])
    assert view == b"".join(shards)
    assert type(view.obj) is _native.Buffer
    assert not view.readonly
    assert budget()["held"] - held == len(view)


@pytest.mark.parametrize("codec, compress", CODECS)
def test_frames_of_any_exporter(codec, compress):
    frames = [bytearray(compress(b"left")), memoryview(compress(b"right"))]
    assert _native.decompress(codec=codec, frames=frames) == b"leftright"
    frames[0].append(0)


@pytest.mark.parametrize("codec, compress", CODECS)
def test_corrupt_shards_fail_and_leave_nothing(codec, compress):
    good, frame = compress(plain(5000)), compress(plain(900))
    for bad in (frame[:-1], frame[: len(frame) // 2], b"", frame[:3]):
        first = bytearray(good)
        with pytest.raises(_native.SpillwayError) as caught:
            _native.decompress(codec, [first, bad])
        assert caught.value.status == "CORRUPT"
        assert caught.value.errno == 0
        first.append(0)


def test_a_size_that_the_frame_cannot_hold_is_not_believed():
    frame = struct.pack("<I", 2_000_000_000) + b"\x10a"
    with pytest.raises(_native.SpillwayError) as caught:
        _native.decompress("lz4", [frame])
    assert caught.value.status == "CORRUPT"


def test_decompressed_bytes_are_counted():
    def copied():
        return _native.figures()["copies"]["decompressed"]["bytes"]

    before = copied()
    _native.decompress("lz4", [lz4_frame(plain(1000)), lz4_frame(plain(50))])
    assert copied() - before == 1050
    before = copied()
    _native.decompress("zlib", [zlib.compress(plain(1000))])
    assert copied() - before == 1000


def test_arguments():
    with pytest.raises(ValueError, match="'lzma'"):
        _native.decompress("lzma", [])
    with pytest.raises(TypeError):
        _native.decompress("lz4", (b"",))
    good = bytearray(lz4_frame(b"x"))
    with pytest.raises(TypeError):
        _native.decompress("lz4", [good, None])
    good.append(0)
    with pytest.raises(BufferError):
        _native.decompress("lz4", [memoryview(bytes(10))[::2]])
