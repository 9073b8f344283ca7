"""Recycled memory: what buffers leave is used again, given back when asked, and never
seen by the next owner."""

import gc
import lzma
import threading
import zlib

import pytest
from loopback import drive, transfer, with_raw_peer
from samples import KIB, MIB, prelude, some_bytes, value

from spillway import _native

SECRET = b"\xa5secret\xa5"
SIZES = [5 * KIB, 64 * KIB, MIB, 4 * MIB]


def pooled():
    gc.collect()
    return _native.figures()["budget"]["pooled"]


def idle():
    """What is pooled though nothing is cached: what earlier tests have left alive is
    rounded up."""
    gc.collect()
    _native.trim(0, 0)
    return pooled()


def leave_secrets(near, far):
    """Have the pool full of what nobody may see, in regions of every size."""
    _native.trim(0, 0)
    frames = [b"head"]
    for size in SIZES:
        secret = (SECRET * (size // len(SECRET) + 1))[:size]
        frames += value(*[[secret]] * 4)
    frames += value(*[[SECRET * 100]] * 200)  # these share regions
    message = transfer(near, far, frames)
    assert bytes(message[2][: len(SECRET)]) == SECRET
    del message
    assert pooled() >= sum(SIZES)


def whole_buffers(frames):
    """All that whoever has a frame can come by: the buffer that it is a view of."""
    return [bytes(frame.obj) for frame in frames if isinstance(frame, memoryview)]


def test_memory_is_recycled_and_given_back(pair):
    near, far = pair
    left = idle()
    frames = [b"head", *value([some_bytes(4 * MIB)], [some_bytes(64 * KIB)])]
    transfer(near, far, frames)
    assert pooled() >= 4 * MIB + 64 * KIB
    before = _native.figures()["regions"]
    message = transfer(near, far, frames)
    after = _native.figures()["regions"]
    assert after["recycled"] >= before["recycled"] + 2
    assert after["added"] == before["added"]
    assert 0 < _native.trim(0, 60_000) <= 60_000
    assert [bytes(frame) for frame in message[1:]] == frames[1:]
    del message
    assert pooled() >= 4 * MIB + 64 * KIB
    _native.trim(0, 0)
    assert pooled() <= left


def test_nothing_is_cached_in_a_process_over_its_limit(pair):
    near, far = pair
    left = idle()
    frames = [b"head", *value([bytes(48 * MIB)])]
    try:
        _native.limit_resident(1, 0)
        transfer(near, far, frames)
        assert pooled() - left < MIB
        _native.limit_resident(0, 0)
        transfer(near, far, frames)
        assert pooled() >= 48 * MIB
    finally:
        _native.limit_resident(0, 0)
        _native.trim(0, 0)


@pytest.mark.parametrize(
    "arguments",
    [(), (1,), (-1, 0), (0, -1), (2**63, 0), (0, 2**32), ("1", 0), (1.5, 0)],
)
def test_arguments_that_do_not_fit_are_refused(arguments):
    with pytest.raises((TypeError, ValueError)):
        _native.trim(*arguments)


@pytest.mark.parametrize("limit", [-1, 2**63, None, 1.5])
def test_a_limit_that_is_none_is_refused(limit):
    for limits in ((limit, 0), (0, limit)):
        with pytest.raises((TypeError, ValueError)):
            _native.limit_resident(*limits)


def test_no_more_is_cached_than_may_be(pair):
    near, far = pair
    left = idle()
    try:
        _native.limit_resident(0, 40 * MIB)
        transfer(near, far, [b"head", *value([bytes(48 * MIB)])])
        assert pooled() - left < MIB
        transfer(near, far, [b"head", *value([bytes(36 * MIB)])])
        assert pooled() - left >= 36 * MIB
    finally:
        _native.limit_resident(0, 0)
        _native.trim(0, 0)


def test_no_frame_shows_what_was_there_before(pair):
    near, far = pair
    leave_secrets(near, far)
    # Sizes that leave gaps, in regions of their own and in shared ones.
    odd = [[b"x" * (size - 100)] for size in SIZES]
    tiny = [[b"y" * (1 + 37 * i % 4000)] for i in range(200)]
    before = _native.figures()["regions"]["recycled"]
    message = transfer(near, far, [b"head", *value(*odd), *value(*tiny), b"", b"z"])
    assert _native.figures()["regions"]["recycled"] > before
    for whole in whole_buffers(message):
        assert SECRET not in whole


def test_a_message_cut_short_shows_nothing(pair):
    near, far = pair
    for cut in (1, 5 * KIB, MIB, 4 * MIB - 1):
        leave_secrets(near, far)
        end, peer = with_raw_peer()

        def send_and_close(peer=peer, cut=cut):
            with peer:
                peer.sendall(prelude(4, 4 * MIB) + b"head" + b"x" * cut)

        sender = threading.Thread(target=send_and_close)
        sender.start()
        drive([end], lambda end=end: end.error)
        sender.join()
        assert end.error.status == "TRUNCATED"
        assert end.messages == []
        with pytest.raises(_native.SpillwayError):
            end.connection.receive()


@pytest.mark.parametrize("size", SIZES)
def test_decompression_shows_nothing(pair, size):
    near, far = pair
    leave_secrets(near, far)
    plain = b"x" * (size - 100)
    view = _native.decompress("zlib", [zlib.compress(plain)])
    assert bytes(view.obj) == plain
    leave_secrets(near, far)
    del view
    # Frames that are cut, damaged, or hold less than they say.
    packed = zlib.compress(some_bytes(size))
    for bad in (packed[:-1], packed[: size // 2], lzma.compress(b"x")):
        with pytest.raises(_native.SpillwayError):
            _native.decompress("zlib", [bad])


def test_compressed_frames_that_hold_less_than_they_say_show_nothing(pair):
    zstd = pytest.importorskip("zstandard")
    lz4 = pytest.importorskip("lz4.block")
    near, far = pair
    leave_secrets(near, far)
    whole = zstd.compress(b"x" * MIB)
    less = zstd.ZstdCompressor(write_content_size=False).compress(b"x" * 100)
    # The header of a frame of 1 MiB, and the block of one of 100 bytes.
    header = zstd.frame_header_size(whole)
    with pytest.raises(_native.SpillwayError):
        _native.decompress(
            "zstd", [whole[:header] + less[zstd.frame_header_size(less) :]]
        )
    packed = lz4.compress(b"x" * 70_000)
    with pytest.raises(_native.SpillwayError):
        _native.decompress("lz4", [(71_000).to_bytes(4, "little") + packed[4:]])
