"""What types of Arrow's say beside their values."""

import itertools
import pickle
import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from arrow_samples import Tagged
from frame_oracle import assert_arrow_type, check, frame_of
from spillway.arrow_types import PickledType, as_columns, spelled
from spillway.frame_columns import take_apart

N8, T = pa.int8(), pa.string()


def item(name="item", **more):
    return pa.field(name, N8, **more)


KEY = pa.field("key", T, nullable=False)
TYPES = {
    "list": pa.list_(item()),
    "list of no nulls": pa.list_(item(nullable=False)),
    "list of another name": pa.list_(item("x")),
    "list with metadata": pa.list_(item(metadata={"k": "v"})),
    "list with other metadata": pa.list_(item(metadata={"k": "w"})),
    "large list": pa.large_list(item()),
    "fixed list": pa.list_(item(), 2),
    "longer fixed list": pa.list_(item(), 3),
    "struct": pa.struct([item("a")]),
    "struct of another name": pa.struct([item("b")]),
    "struct of no nulls": pa.struct([item("a", nullable=False)]),
    "map": pa.map_(T, N8),
    "sorted map": pa.map_(T, N8, keys_sorted=True),
    "map of other names": pa.map_(pa.field("k", T, nullable=False), item("v")),
    "map with metadata": pa.map_(KEY, pa.field("value", N8, metadata={"k": "v"})),
    "map of sorted maps": pa.map_(T, pa.map_(T, N8, keys_sorted=True)),
    "dictionary": pa.dictionary(N8, T),
    "ordered dictionary": pa.dictionary(N8, T, ordered=True),
    "dictionary of wider codes": pa.dictionary(pa.int16(), T),
    "extension": Tagged(N8),
    "extension with a parameter": Tagged(N8, b"other"),
    "extension over more": Tagged(pa.list_(item(nullable=False))),
    "list of extensions": pa.list_(Tagged(pa.map_(T, N8, keys_sorted=True))),
}


def test_all_are_told_apart():
    for one, other in itertools.combinations(TYPES.values(), 2):
        assert spelled(one) != spelled(other)
    for each in TYPES.values():
        assert hash(spelled(each)) == hash(spelled(each))


@pytest.mark.parametrize("name", TYPES)
def test_pickles_keep_all(name):
    pickled = pickle.dumps(PickledType(TYPES[name]))
    assert_arrow_type(pickle.loads(pickled).arrow_type, TYPES[name])


@pytest.mark.parametrize("name", TYPES)
def test_frames_keep_all(name):
    array = pa.nulls(3, TYPES[name])
    frame = frame_of(pd.Series(pd.arrays.ArrowExtensionArray(array)))
    check(frame, frame[1:])


def test_layouts_keep_all_in_another_process():
    frame = pd.DataFrame(
        {
            name: pd.arrays.ArrowExtensionArray(pa.nulls(2, each))
            for name, each in TYPES.items()
        }
    )
    code = """if True:
        import pickle, sys
        from spillway.frame_columns import put_together, places
        layout = pickle.loads(sys.stdin.buffer.read())
        counts = [0] * sum(type.counts for type in layout.types)
        frame = put_together(layout, 0, places(layout, 0, counts, bytearray))
        sys.stdout.buffer.write(pickle.dumps(layout))
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(take_apart(frame).layout),
        capture_output=True,
        check=True,
        env={"PYTHONPATH": __file__.rpartition("/")[0]},
    )
    assert pickle.loads(done.stdout) == take_apart(frame).layout


def test_types_of_the_same_columns():
    nothing = item(nullable=False), item(metadata={"k": "v"})
    assert as_columns(Tagged(pa.struct(nothing))) == pa.struct([item(), item()])
    assert as_columns(pa.list_(nothing[0])) == pa.list_(item())
    assert as_columns(pa.large_list(nothing[0])) == pa.large_list(item())
    assert as_columns(pa.list_(nothing[0], 3)) == pa.list_(item(), 3)
    for map_type in (pa.map_(T, item(nullable=False)), pa.map_(T, Tagged(N8))):
        assert as_columns(map_type) == pa.map_(T, N8)


def test_large_types():
    def large(arrow_type):
        return as_columns(arrow_type, large=True)

    assert large(T) == pa.large_string()
    assert large(pa.binary()) == pa.large_binary()
    lists = pa.large_list(pa.large_string())
    for same in (N8, pa.dictionary(N8, T), lists, pa.struct([]), pa.binary(3)):
        assert large(same) == same
    assert large(pa.list_(T)) == large(Tagged(pa.list_(T))) == lists
    assert large(pa.list_(T, 3)) == pa.list_(pa.large_string(), 3)
    assert large(pa.struct({"a": T})) == pa.struct({"a": pa.large_string()})
    key = pa.field("key", pa.large_string(), nullable=False)
    entries = pa.field("entries", pa.struct([key, item("value")]), nullable=False)
    assert large(pa.map_(T, N8)) == pa.large_list(entries)
