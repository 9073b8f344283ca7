"""spillway.merge() against plain joining, for any cuts of any memory."""

import array
import itertools
import mmap

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest

import spillway
from spillway import buffer_offset, merge

SIZE = 240


def content(seed):
    return bytes((i * seed + i // 7) % 251 for i in range(SIZE))


def mapped(data):
    memory = mmap.mmap(-1, len(data))
    memory[:] = data
    return memory


def read_only(data):
    values = numpy.frombuffer(data, "i2").copy()
    values.flags.writeable = False
    return values


OWNERS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "mmap": mapped,
    "array": lambda data: array.array("d", data),
    "read-only NumPy array": read_only,
    "NumPy records": lambda data: numpy.frombuffer(data, "i4,>f4").copy(),
    "ours": lambda data: merge([bytearray(data), bytearray(1)], "if_needed")[:SIZE],
}
FORMATS = {"B": 1, "b": 1, "h": 2, "f": 4, "q": 8, "d": 8}


def as_bytes(view):
    """The memory of a contiguous view, whatever its format, to cut by bytes."""
    return merge([view])


@st.composite
def owned_views(draw):
    """Views of memory, each with the number of its owner and its place in there: such
    that some follow each other and some do not."""
    owners = [
        as_bytes(OWNERS[draw(st.sampled_from(sorted(OWNERS)))](content(seed)))
        for seed in (3, 5)
    ]
    parts, at, number = [], draw(st.integers(0, 40)), 0
    for _ in range(draw(st.integers(0, 8))):
        move = draw(st.sampled_from(["follow"] * 6 + ["jump", "other"]))
        if move == "jump":
            at = draw(st.integers(0, SIZE))
        elif move == "other":
            number = 1 - number
        at = min(at, SIZE)
        size = draw(st.sampled_from([0, 0, 1, 3, 8, 16, 24])) % (SIZE - at + 1)
        view = owners[number][at : at + size]
        kind = draw(st.sampled_from(sorted(FORMATS)))
        if size % FORMATS[kind] == 0:
            view = view.cast(kind)
        if draw(st.integers(0, 9)) == 0:
            view = view.toreadonly()
        parts.append((number, at, view))
        at += size
    return parts


def lie_side_by_side(parts):
    """By the places that the parts were cut from."""
    filled = [(number, at, view) for number, at, view in parts if view.nbytes]
    return all(
        number == other and at + view.nbytes == next_at
        for (number, at, view), (other, next_at, _) in itertools.pairwise(filled)
    )


@hypothesis.settings(max_examples=400, deadline=None)
@hypothesis.given(owned_views())
def test_it_is_plain_joining(parts):
    views = [view for _, _, view in parts]
    joined = b"".join(view.tobytes() for view in views)
    is_one = lie_side_by_side(parts)
    copies = spillway.stats()["copies"]["merged"]
    if is_one:
        merged = merge(views)
        assert merged == joined
        assert merged.readonly == any(view.readonly for view in views)
    else:
        with pytest.raises(ValueError, match=r"^part \d+ does not follow part \d+: "):
            merge(views)
    merged = merge(views, copy="if_needed")
    assert merged == joined
    assert (merged.format, merged.ndim) == ("B", 1)
    assert merged.readonly == any(view.readonly for view in views)
    after = spillway.stats()["copies"]["merged"]
    assert after["count"] - copies["count"] == (not is_one)
    assert after["bytes"] - copies["bytes"] == (0 if is_one else len(joined))
    filled = [view for view in views if view.nbytes]
    if not is_one:
        assert address(merged) % 64 == 0
    elif filled:
        assert address(merged) == address(filled[0])
        assert buffer_offset(merged) == buffer_offset(filled[0])


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(
    st.lists(st.integers(0, SIZE), max_size=6).map(sorted), st.integers(0, 20)
)
def test_cutting_and_merging_gives_back_what_was_cut(places, prefix):
    owner = bytearray(prefix) + content(7)
    whole = memoryview(owner)[prefix:]
    places = [0, *places, SIZE]
    parts = [whole[a:b] for a, b in itertools.pairwise(places)]
    merged = merge(parts)
    assert merged == whole
    assert buffer_offset(merged) == prefix
    merged[0] = 250
    assert owner[prefix] == 250
    if len([part for part in parts if part.nbytes]) > 1:
        with pytest.raises(ValueError):
            merge(parts[::-1])
    assert bytes(merge(parts[::-1], "if_needed")) == b"".join(parts[::-1])


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(
            st.integers(-3, 3).filter(bool), st.integers(0, 9), st.sampled_from("Bhd")
        ),
        min_size=1,
        max_size=5,
    )
)
def test_what_has_strides_is_copied_in_c_order(shapes):
    views = [
        memoryview(numpy.arange(40, dtype=kind)[:count].repeat(2)[::step])
        for step, count, kind in shapes
    ]
    joined = b"".join(view.tobytes() for view in views)
    assert merge(views, copy="if_needed") == joined
    matrix = numpy.asfortranarray(numpy.arange(12.0).reshape(3, 4))
    assert merge([*views, matrix], "if_needed") == joined + matrix.tobytes()


def address(view):
    return numpy.asarray(view).__array_interface__["data"][0]


def test_a_copy_is_writeable_if_every_part_is():
    left, right = bytearray(b"abc"), bytearray(b"def")
    merged = merge([left, right], copy="if_needed")
    merged[0] = 0
    assert left == b"abc"
    for parts in (
        [left, b"", right],
        [left, b"def"],
        [memoryview(left).toreadonly()] * 2,
    ):
        assert merge(parts, copy="if_needed").readonly


def test_a_copy_keeps_nothing_of_the_parts():
    left, right = bytearray(b"abc"), bytearray(b"def")
    merged = merge([left, right], copy="if_needed")
    left.append(0)
    right.append(0)
    assert merged == b"abcdef"


def test_frames_may_come_from_anywhere():
    assert merge(iter([b"abc"])) == b"abc"
    assert merge({b"abc": 1, b"def": 2}, copy="if_needed") == b"abcdef"
    assert merge(frames=[], copy="never") == b""


def test_only_never_copies_nothing():
    with pytest.raises(ValueError, match="part 1 does not follow part 0"):
        merge([b"abc", b"def"])
    with pytest.raises(ValueError, match="part 1 does not follow part 0"):
        merge([b"abc", b"def"], copy="never")


@pytest.mark.parametrize("copy", ["always", None, True, 1])
def test_an_unknown_choice(copy):
    with pytest.raises(ValueError, match="copy must be"):
        merge([b"abc"], copy=copy)


def test_what_is_no_buffer_is_refused_whatever_the_choice():
    for copy in ("never", "if_needed"):
        with pytest.raises(TypeError):
            merge([b"abc", None], copy=copy)
        with pytest.raises(TypeError):
            merge(5, copy=copy)
        released = memoryview(b"abc")
        released.release()
        with pytest.raises(ValueError, match="released"):
            merge([released, b"abc"], copy=copy)
