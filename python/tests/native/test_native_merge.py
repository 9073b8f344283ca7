"""merge(), join() and buffer_offset() of the extension: for every kind of exporter, and
with what they keep alive."""

import array
import ctypes
import gc
import itertools
import mmap
import pickle
import sys
import weakref

import pytest
from loopback import budget, transfer
from samples import KIB, MIB, some_bytes, value

from spillway import _native

numpy = pytest.importorskip("numpy")


def address(view):
    return numpy.asarray(view).__array_interface__["data"][0]


def mapped(size):
    memory = mmap.mmap(-1, size)
    memory[:] = some_bytes(size)
    return memory


def read_only_array(size):
    values = numpy.frombuffer(some_bytes(size), "u1").copy()
    values.flags.writeable = False
    return values


def ours(size):
    return _native.join([some_bytes(size)]).obj


SIZE = 4096
OWNERS = {
    "bytes": lambda: some_bytes(SIZE),
    "bytearray": lambda: bytearray(some_bytes(SIZE)),
    "mmap": lambda: mapped(SIZE),
    "array": lambda: array.array("d", range(SIZE // 8)),
    "ctypes array": lambda: (ctypes.c_int32 * (SIZE // 4))(*range(SIZE // 4)),
    "NumPy array": lambda: numpy.arange(SIZE / 8),
    "read-only NumPy array": lambda: read_only_array(SIZE),
    "NumPy records": lambda: numpy.zeros(SIZE // 16, "i8,>f4,u4"),
    "ours": lambda: ours(SIZE),
}


def cut(view, *places):
    """The view in pieces, between these items."""
    return [view[a:b] for a, b in itertools.pairwise((0, *places, len(view)))]


@pytest.mark.parametrize("kind", OWNERS)
def test_parts_of_one_owner_become_one_view_of_its_memory(kind):
    owner = OWNERS[kind]()
    whole = memoryview(owner)
    first, *rest = cut(whole, 3, 4, 50, 50, 51)
    before = _native.figures()["copies"]["merged"]
    merged = _native.merge(rest)
    assert merged == whole.tobytes()[first.nbytes :]
    assert address(merged) == address(whole) + first.nbytes
    assert (merged.format, merged.ndim, merged.itemsize) == ("B", 1, 1)
    assert merged.readonly == whole.readonly
    assert _native.buffer_offset(merged) == first.nbytes
    assert _native.figures()["copies"]["merged"] == before


@pytest.mark.parametrize("kind", OWNERS)
def test_merged_memory_is_the_owners_and_outlives_every_name_of_it(kind):
    merged = _native.merge(cut(memoryview(OWNERS[kind]()), 10))
    gc.collect()
    again = memoryview(OWNERS[kind]())
    assert merged == again.tobytes()
    if not merged.readonly:
        merged[:5] = b"other"
        assert merged[:5] == b"other"


def test_parts_of_other_formats_and_shapes():
    owner = bytearray(some_bytes(960))
    whole = memoryview(owner)
    parts = [
        whole[:96].cast("d"),
        whole[96:192].cast("B").cast("d", [3, 4]),
        whole[192:200].cast("q").cast("B").cast("Q", []),
        numpy.frombuffer(whole, "B")[:0],
        whole[200:],
    ]
    assert _native.merge(parts) == owner
    assert _native.merge(part for part in parts) == owner


def test_a_pickle_buffer_is_a_view_of_what_it_holds():
    owner = bytearray(some_bytes(100))
    left, right = (pickle.PickleBuffer(part) for part in cut(memoryview(owner), 30))
    assert address(_native.merge([left, right])) == address(owner)
    assert address(_native.merge([memoryview(left), memoryview(right)])) == address(
        owner
    )


def test_what_was_merged_can_be_merged_again():
    owner = bytearray(some_bytes(100))
    a, b, c, d = cut(memoryview(owner), 10, 20, 30)
    left, right = _native.merge([a, b]), _native.merge([c, d])
    both = _native.merge([left, right])
    assert address(both) == address(owner)
    assert address(_native.merge([left[5:], c])) == address(owner) + 5
    assert _native.buffer_offset(right[3:]) == 23
    with pytest.raises(
        ValueError, match="part 1 does not follow part 0: it starts 10 "
    ):
        _native.merge([left, d])


def test_views_that_touch_but_have_two_owners_are_not_merged():
    """Whether two allocations touch is up to the allocator; here two owners are made of
    one piece of memory, so that they do for certain."""
    memory = bytearray(some_bytes(100))
    ctypes_parts = [(ctypes.c_char * 50).from_buffer(memory, at) for at in (0, 50)]
    numpy_parts = numpy.split(numpy.frombuffer(memory, "u1"), 2)
    library_parts = [memoryview(memory)[:50], numpy_parts[1]]
    for left, right in (ctypes_parts, numpy_parts, library_parts):
        assert address(right) == address(left) + 50
        for parts in ([left, right], [memoryview(left), memoryview(right)]):
            with pytest.raises(ValueError) as caught:
                _native.merge(parts)
            assert str(caught.value) == (
                "part 1 does not follow part 0: it is in the memory of another owner"
            )
            joined = _native.join(parts)
            assert joined == memory
            assert address(joined) != address(memory)


def test_views_that_do_not_say_whose_memory_they_have_are_not_merged():
    memory = ctypes.create_string_buffer(some_bytes(99))
    make = ctypes.pythonapi.PyMemoryView_FromMemory
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    start = ctypes.addressof(memory)
    left, right = make(start, 50, 0x200), make(start + 50, 50, 0x200)
    assert left.obj is None
    with pytest.raises(ValueError, match="another owner"):
        _native.merge([left, right])
    assert address(_native.merge([left])) == start
    with pytest.raises(ValueError, match="whose memory"):
        _native.buffer_offset(left[5:])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs __buffer__")
def test_memory_of_a_class_with_a_buffer_method():
    class Owner:
        def __init__(self):
            self.memory = bytearray(some_bytes(100))

        def __buffer__(self, flags):
            return memoryview(self.memory)

    owner = Owner()
    whole = memoryview(owner)
    assert address(_native.merge(cut(whole, 30))) == address(owner.memory)
    # Each export may be of other memory.
    with pytest.raises(ValueError, match="another owner"):
        _native.merge([whole[:30], memoryview(owner)[30:]])
    with pytest.raises(ValueError, match="whose memory"):
        _native.buffer_offset(whole[30:])


def test_merged_frames_can_be_sent(pair):
    owner = bytearray(some_bytes(MIB))
    merged = _native.merge(cut(memoryview(owner), 1, 300_000))
    _, received = transfer(*pair, [b"head", merged])
    assert received == owner
    del merged
    owner.append(0)


def test_shards_that_were_received_are_merged_in_their_region(pair):
    sizes = [70_000, 0, 70_000, 10]
    shards = [some_bytes(size) for size in sizes]
    message = transfer(*pair, [b"head", *value(shards)])
    merged = _native.merge(message[2:])
    assert merged == b"".join(shards)
    assert address(merged) % 64 == 0
    assert address(merged) == address(message[2])
    assert not merged.readonly


def test_small_frames_of_one_region_may_come_by_several_views(pair):
    """Buffers that share a region lie on 64-byte boundaries, so those whose size is a
    multiple of that lie side by side; a frame of another region between them has them
    come as views of two Buffer objects."""
    small = [some_bytes(128) for _ in range(40)]
    frames = [b"head"]
    for one in small:
        frames += [one, some_bytes(8 * KIB)]
    message = transfer(*pair, frames)
    views = message[1::2]
    touching = [
        (left, right)
        for left, right in itertools.pairwise(views)
        if address(right) == address(left) + 128 and left.obj is not right.obj
    ]
    for left, right in touching:
        try:
            merged = _native.merge([left, right])
        except ValueError:
            continue  # the end of one region and the start of the next
        assert address(merged) == address(left)
        return
    pytest.fail("no two frames of one region came as views of two objects")


FAULTS = {
    "gap": ((0, 10), (11, 20), 1, "after"),
    "overlap": ((0, 10), (7, 20), 3, "before"),
    "order": ((10, 20), (0, 10), 20, "before"),
    "twice": ((0, 10), (0, 10), 10, "before"),
}
"""Items of two parts, and where the second one starts from the end of the first."""


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", OWNERS)
def test_the_first_part_that_does_not_follow_is_named(kind, fault):
    (a, b), (c, d), items, side = FAULTS[fault]
    whole = memoryview(OWNERS[kind]())
    where = f"it starts {items * whole.itemsize} bytes {side} the end of that one"
    with pytest.raises(ValueError, match=f"^part 1 does not follow part 0: {where}$"):
        _native.merge([whole[a:b], whole[c:d], whole[90:]])
    with pytest.raises(ValueError, match=f"^part 3 does not follow part 0: {where}$"):
        _native.merge([whole[a:b], whole[:0], b"", whole[c:d]])


def test_what_has_strides_is_named_unless_an_earlier_part_is():
    whole = memoryview(bytearray(some_bytes(100)))
    for strided in (
        whole[20:40:2],
        whole[39:19:-1],
        numpy.asfortranarray(numpy.ones((2, 3))),
        numpy.broadcast_to(numpy.uint8(7), 5),
    ):
        with pytest.raises(ValueError, match="part 0 is not contiguous"):
            _native.merge([strided])
        with pytest.raises(ValueError, match="part 2 is not contiguous"):
            _native.merge([whole[:10], whole[10:20], strided, b"other"])
        with pytest.raises(ValueError, match="part 1 does not follow part 0"):
            _native.merge([whole[:10], whole[11:20], strided])


def test_what_has_no_items_has_no_strides_either():
    nothing = memoryview(numpy.ones((2, 0)))
    whole = memoryview(bytearray(b"abc"))
    assert _native.merge([nothing, whole[:1], whole[3:0:-1][:0], whole[1:]]) == b"abc"


@pytest.mark.parametrize("frames", [[], [b""], [b"", bytearray(), memoryview(b"")]])
def test_without_bytes_there_is_an_empty_view(frames):
    for view in (_native.merge(frames), _native.join(frames)):
        assert view.nbytes == 0
        assert (view.format, view.ndim) == ("B", 1)
    assert _native.merge(frames).readonly == bool(frames)


def test_a_part_without_an_address():
    pyarrow = pytest.importorskip("pyarrow")
    null = pyarrow.foreign_buffer(0, 0)
    whole = memoryview(b"abcdef")
    assert _native.merge([null]) == b""
    assert _native.merge([null, whole[:3], null, null, whole[3:], null]) == b"abcdef"
    assert _native.join([null, b"x", null]) == b"x"
    assert _native.buffer_offset(null) == 0


def test_it_is_writeable_if_every_part_is():
    left, right = cut(memoryview(bytearray(b"abcdef")), 3)
    assert not _native.merge([left, right]).readonly
    for parts in (
        [left.toreadonly(), right],
        [left, right.toreadonly()],
        [left, b"", right],
        [b"", left],
    ):
        merged = _native.merge(parts)
        assert merged.readonly
        with pytest.raises(TypeError):
            merged[0] = 1
    assert not _native.join([left.toreadonly(), b"x"]).readonly


def test_an_owner_that_cannot_be_written_any_more_does_not_matter():
    """A view of a NumPy array stays writeable when the array is locked afterwards."""
    values = numpy.arange(10, dtype="u1")
    left, right = cut(memoryview(values), 4)
    values.flags.writeable = False
    merged = _native.merge([left, right])
    merged[0] = 77
    assert values[0] == 77


def test_the_owner_is_locked_as_long_as_the_result_lives():
    owner = bytearray(b"abcdef")
    merged = _native.merge(cut(memoryview(owner), 3))
    part = merged[2:]
    with pytest.raises(BufferError):
        owner.append(0)
    del merged
    with pytest.raises(BufferError):
        owner.append(0)
    del part
    owner.append(0)


def test_a_part_without_bytes_is_let_go_of():
    empty, owner = bytearray(), bytearray(b"abc")
    merged = _native.merge([empty, owner])
    empty.append(0)
    with pytest.raises(BufferError):
        owner.append(0)
    assert merged == b"abc"


def test_a_refusal_lets_go_of_everything():
    left, right = bytearray(b"abc"), bytearray(b"def")
    for bad in (right, numpy.frombuffer(b"abcd", "u1")[::2], 1, "text"):
        with pytest.raises((ValueError, TypeError)):
            _native.merge([left, bad])
        left.append(0)
        right.append(0)
    with pytest.raises(TypeError):
        _native.join([left, None])
    left.append(0)


def test_arguments():
    with pytest.raises(TypeError):
        _native.merge(5)
    with pytest.raises(TypeError):
        _native.merge([b"a", None])
    released = memoryview(b"abc")
    released.release()
    for function in (_native.merge, _native.join):
        with pytest.raises(ValueError, match="released"):
            function([b"abc", released])
    with pytest.raises(ZeroDivisionError):
        _native.merge(1 / i for i in range(3))
    with pytest.raises(TypeError):
        _native.Merged()


def test_more_bytes_than_the_address_space():
    vast = numpy.lib.stride_tricks.as_strided(
        numpy.zeros(1, "u1"), shape=(2**62,), strides=(0,)
    )
    with pytest.raises(OverflowError):
        _native.merge([vast, vast])
    with pytest.raises(MemoryError):
        _native.join([vast])


def test_join_copies_once_to_aligned_memory():
    parts = [
        some_bytes(70_001),
        memoryview(some_bytes(999))[::-3],
        numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
        b"",
        array.array("d", [1, 2, 3]),
        memoryview(numpy.array(3.0)),
    ]
    before, held = _native.figures()["copies"]["merged"], budget()["held"]
    joined = _native.join(iter(parts))
    assert joined == b"".join(memoryview(part).tobytes() for part in parts)
    assert address(joined) % 64 == 0
    assert type(joined.obj) is _native.Buffer
    assert budget()["held"] - held == joined.nbytes
    after = _native.figures()["copies"]["merged"]
    assert after["count"] - before["count"] == 1
    assert after["bytes"] - before["bytes"] == joined.nbytes


def test_nothing_is_counted_where_nothing_is_copied():
    before = _native.figures()["copies"]["merged"]
    _native.join([])
    _native.join([b"", bytearray()])
    assert _native.figures()["copies"]["merged"] == before


def test_many_parts():
    owner = bytearray(some_bytes(MIB))
    whole = memoryview(owner)
    parts = [whole[at : at + 16] for at in range(0, MIB, 16)]
    assert address(_native.merge(parts)) == address(owner)
    parts[40_000] = parts[40_001]
    with pytest.raises(ValueError, match="part 40000 does not follow part 39999"):
        _native.merge(parts)


class Owner(array.array):
    """An exporter that can refer to what was made of it."""


def test_a_cycle_through_a_merged_view_is_collected():
    owner = Owner("B", b"abcdef")
    owner.merged = _native.merge(cut(memoryview(owner), 2))
    owner.part = owner.merged[1:]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def test_a_cycle_that_is_not_garbage_stays():
    owner = Owner("B", b"abcdef")
    owner.merged = _native.merge(cut(memoryview(owner), 2))
    kept = owner.merged[1:]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert kept == b"bcdef"
    del kept
    gc.collect()
    assert gone() is None


def test_the_offset_of_a_view():
    memory = bytearray(some_bytes(800))
    whole = memoryview(memory)
    assert _native.buffer_offset(memory) == 0
    assert _native.buffer_offset(whole) == 0
    assert _native.buffer_offset(whole[17:]) == 17
    assert _native.buffer_offset(whole[17:][3:30].toreadonly()) == 20
    assert _native.buffer_offset(whole.cast("d")[5:]) == 40
    assert _native.buffer_offset(whole.cast("d").cast("B").cast("d", [10, 10])) == 0
    assert _native.buffer_offset(whole[800:]) == 800
    assert _native.buffer_offset(whole[9:9]) == 9
    assert _native.buffer_offset(whole[::-1]) == 799
    assert _native.buffer_offset(whole[10::7]) == 10
    assert _native.buffer_offset(memoryview(pickle.PickleBuffer(whole[5:]))) == 5


def test_the_offset_in_an_owner_with_strides_is_never_negative():
    backward = memoryview(numpy.arange(10, dtype="i4")[::-1])
    assert _native.buffer_offset(backward) == 36
    assert _native.buffer_offset(backward[3:]) == 24
    matrix = memoryview(numpy.ones((3, 5), "i2")[::-1, ::-1])
    assert _native.buffer_offset(matrix) == 28
    assert _native.buffer_offset(memoryview(numpy.ones((0, 4))[::-1])) == 0


def test_the_offset_of_what_is_no_view():
    with pytest.raises(TypeError):
        _native.buffer_offset("text")
