"""Arrow's types with values, at random."""

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st


class Tagged(pa.ExtensionType):
    """An extension of any type, of which every process knows only by this class."""

    def __init__(self, storage: pa.DataType, tag: bytes = b"t") -> None:
        self.tag = tag
        super().__init__(storage, "spillway.tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return self.tag

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, tag: bytes) -> "Tagged":
        return cls(storage, tag)


_LEAVES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=4),
    pa.large_string(): st.text(max_size=4),
    pa.binary(): st.binary(max_size=4),
    pa.large_binary(): st.binary(max_size=4),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(7, 2): st.decimals(-9999, 9999, places=2),
    pa.timestamp("us", "Asia/Tokyo"): st.integers(0, 2**50),
    pa.null(): st.none(),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["u", "v", "w", ""]),
    pa.dictionary(pa.uint16(), pa.int64(), ordered=True): st.integers(0, 9),
}


@st.composite
def _fields(draw, types, name):
    arrow_type, values = draw(types)
    nullable = draw(st.booleans()) or arrow_type == pa.null()
    metadata = draw(st.sampled_from([None, {"k": "v"}]))
    field = pa.field(name, arrow_type, nullable=nullable, metadata=metadata)
    return field, st.one_of(st.none(), values) if nullable else values


@st.composite
def _lists(draw, types):
    field, items = draw(_fields(types, draw(st.sampled_from(["item", "x"]))))
    make = draw(st.sampled_from([pa.list_, pa.large_list]))
    return make(field), st.lists(items, max_size=3)


@st.composite
def _fixed_lists(draw, types):
    field, items = draw(_fields(types, "item"))
    size = draw(st.integers(0, 3))
    return pa.list_(field, size), st.lists(items, min_size=size, max_size=size)


@st.composite
def _structs(draw, types):
    names = draw(st.sampled_from([(), ("a",), ("b", "a"), ("a", "b", "c")]))
    fields = [draw(_fields(types, name)) for name in names]
    values = st.fixed_dictionaries({field.name: some for field, some in fields})
    return pa.struct([field for field, _ in fields]), values


@st.composite
def _maps(draw, types):
    field, items = draw(_fields(types, draw(st.sampled_from(["value", "v"]))))
    arrow_type = pa.map_(
        pa.field("key", pa.string(), nullable=False),
        field,
        keys_sorted=draw(st.booleans()),
    )
    entries = st.lists(st.tuples(st.text(max_size=2), items), max_size=3)
    return arrow_type, entries


def types() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy]]:
    """Types, and values of each, none of them missing."""
    leaves = st.sampled_from(list(_LEAVES.items()))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            _lists(inner), _fixed_lists(inner), _structs(inner), _maps(inner)
        ),
        max_leaves=5,
    )


@st.composite
def arrays(draw, arrow_type, values, rows):
    """An array of one or two chunks, each a slice of more."""
    some = [None, *draw(st.lists(values, min_size=1, max_size=6))]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    chunks = []
    for size in draw(st.sampled_from([[rows], [rows // 2, rows - rows // 2]])):
        before, behind = rng.integers(0, 10, 2)
        items = [some[n] for n in rng.integers(0, len(some), before + size + behind)]
        chunks.append(pa.array(items, arrow_type).slice(before, size))
    return pa.chunked_array(chunks)  # older ones do not keep all that a type says
