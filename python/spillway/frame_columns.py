"""pandas' frames taken apart to columns of memory, and put together again.

This is the Python half of a shuffle. The other half permutes the rows of columns by
partition and joins what several tables have of one (docs/shuffle_layout.md), and knows
nothing of frames. What comes out is what `pandas.concat` of the same rows gives.

Taking apart copies no values, but for columns that are reversed, for a
MultiIndex, and for Arrow's arrays of several chunks.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spillway.array_families import bare, form_of
from spillway.array_form import ArrayForm
from spillway.column_memory import (
    BLOB,
    Allocate,
    Column,
    ItemsType,
    JoinedColumn,
    share_out,
)
from spillway.frame_index import KNOWN, index_of, take_index
from spillway.frame_labels import frozen, label_list, positions
from spillway.frame_layout import (
    FrameLayout,
    OpaqueLayout,
    frame_layout,
    frame_of_blocks,
    opaque_layout,
)
from spillway.numpy_forms import numpy_form
from spillway.opaque_rows import OpaqueRows
from spillway.uniting import concat

__all__ = ["TakenFrame", "concat", "places", "put_together", "read", "take_apart"]

logger = logging.getLogger(__name__)

Layout = FrameLayout | OpaqueLayout


class TakenFrame(NamedTuple):
    """A frame as columns of memory, which belongs to the frame.

    Attributes
    ----------
    layout
        All that rebuilding needs beside the columns: hashable, comparable, picklable.
        Shards of frames with equal layouts may be joined column by column.
    columns
        In the order of `layout.types`.
    rows
        Of the frame, and of each column.
    """

    layout: Layout
    columns: list[Column]
    rows: int


def take_apart(frame: pd.DataFrame, drop: str | None = None) -> TakenFrame:
    """Find the memory of a frame's columns and index.

    Parameters
    ----------
    frame
        Any frame. It must not be changed as long as its columns are used.
    drop
        A label; what columns have it are left out. In a MultiIndex it is the first
        part of labels.

    Raises
    ------
    KeyError
        When no column has that label.
    Exception
        What pickle raises for `attrs`, categories, and frames of classes of their own,
        that cannot be pickled.
    """
    if not (has_blocks(frame) and type(frame.index) in KNOWN):
        if drop is not None:
            frame = frame.drop(columns=drop)
        return TakenFrame(
            opaque_layout(frame), [Column(BLOB, OpaqueRows(frame))], len(frame)
        )
    labels = label_list(frame.columns)
    labels_key = frozen(frame.columns, labels)
    dropped = [] if drop is None else positions(frame.columns, labels, drop)
    forms, taken = take_blocks(frame)
    for position in reversed(dropped):
        del forms[position], taken[position]
    index, index_columns = take_index(frame.index)
    layout = frame_layout(frame, labels_key, dropped, tuple(forms), index)
    columns = [column for at in layout.order for column in taken[at]]
    columns += index_columns
    return TakenFrame(layout, columns, len(frame.index))


def column_values(frame: pd.DataFrame, label: str) -> np.ndarray[Any, Any]:
    """The first column that has this label, as an array of NumPy's.

    Raises
    ------
    ValueError
        When there is none.
    """
    # By place: finding it by its label makes an index of each new frame's labels.
    place = label_list(frame.columns).index(label)
    if not has_blocks(frame):
        return frame.iloc[:, place].to_numpy()
    values = frame._mgr.iget_values(place)  # type: ignore[attr-defined]
    return values if isinstance(values, np.ndarray) else values.to_numpy()


def has_blocks(frame: Any) -> bool:
    """Whether a frame is pandas' own, with its values where they are looked for."""
    return type(frame) is pd.DataFrame and blocks_hold()


def take_blocks(frame: pd.DataFrame) -> tuple[list[ArrayForm], list[list[Column]]]:
    """The form of each of a frame's columns, and what columns of memory it has."""
    width = frame.shape[1]
    forms: list[Any] = [None] * width
    taken: list[Any] = [None] * width
    for block in frame._mgr.blocks:  # type: ignore[attr-defined]
        values, at_all = block.values, block.mgr_locs.as_array.tolist()
        numpy = isinstance(values, np.ndarray)
        form: ArrayForm = numpy_form(values.dtype) if numpy else form_of(values)
        if values.ndim == 1:
            forms[at_all[0]], taken[at_all[0]] = form, form.columns(values)
            continue
        if form.in_blocks:
            several = form.block_columns(bare(form, values))
        else:
            several = [form.columns(row) for row in values]
        for at, columns in zip(at_all, several, strict=True):
            forms[at] = form
            taken[at] = columns
    return forms, taken


@functools.cache
def blocks_hold() -> bool:
    """Whether this pandas has a frame's values where they are looked for, and makes
    frames of blocks. If not, frames are pickled by rows."""
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, 4], "c": [3, 5], "d": ["e", "f"]})
    try:
        _, taken = take_blocks(frame)
        blocks = [
            (block.values, block.mgr_locs.as_array) for block in frame._mgr.blocks
        ]
        again = frame_of_blocks(blocks, index_of(np.arange(2)), frame.columns)
        expected = [[1, 2], [0.5, 4], [3, 5]]
        values = [taken[at][0].values.tolist() for at in range(3)]
        found = [frame._mgr.iget_values(at).tolist() for at in range(3)]  # type: ignore[attr-defined]
        return values == found == expected and again.equals(frame)
    except Exception:
        logger.warning("frames are pickled by rows", exc_info=True)
        return False


def places(
    layout: Layout, rows: int, counts: Sequence[int], allocate: Allocate
) -> list[JoinedColumn]:
    """Memory for joined columns, laid out as pandas wants it.

    Columns that pandas has in one block lie side by side in one allocation.

    Parameters
    ----------
    layout
        Of all shards.
    rows
        Of all shards together.
    counts
        Of each column that has some, in order, as the C library counts them.
    allocate
        Gives a writeable buffer of so many bytes, or more; it is asked for one or more.

    Returns
    -------
    list
        A column for each of `layout.types`, all of its memory still to be written.

    Raises
    ------
    ValueError
        When there are not as many counts as such columns have.
    """
    counts_of = share_out(layout.types, counts)
    joined: list[JoinedColumn] = []
    for width in layout.widths:
        at = len(joined)
        type = layout.types[at]
        if width > 1 and isinstance(type, ItemsType):
            joined += type.block_places(width, rows, allocate)
        else:
            joined += [
                layout.types[each].place(rows, counts_of[each], allocate)
                for each in range(at, at + width)
            ]
    return joined


class Group(NamedTuple):
    """Rows of a partition whose inputs have the same layout."""

    layout: Layout
    rows: int
    columns: list[JoinedColumn]


def read(
    partitions: Any, number: int, layouts: Mapping[int, Layout], allocate: Allocate
) -> list[Group]:
    """Read a partition from `_native.Partitions`, where it is gone then.

    Parameters
    ----------
    layouts
        By the numbers that their types have there.

    Returns
    -------
    list
        Its groups, in the order of inputs; none where there are no rows.

    Raises
    ------
    SpillwayError
        As `Partitions.read`.
    """
    measured = partitions.measure(number)
    groups = [
        Group(layouts[types], rows, places(layouts[types], rows, counts, allocate))
        for types, rows, counts in measured
    ]
    partitions.read(
        number,
        [
            (types, rows, tuple(column.memory for column in group.columns))
            for (types, rows, _), group in zip(measured, groups, strict=True)
        ],
    )
    return groups


def put_together(
    layout: Layout, rows: int, columns: Sequence[JoinedColumn]
) -> pd.DataFrame:
    """A frame in the memory of joined columns, which it keeps and may write.

    Parameters
    ----------
    layout
        Of all shards that were joined.
    rows
        Of all of them together.
    columns
        One for each of `layout.types`, such as `places` gives, and filled. Columns of a
        block that are not in one allocation are copied into one.

    Raises
    ------
    ValueError
        When there are not as many columns as types, or a blob has not as many rows.
    Exception
        What unpickling a blob raises.
    """
    if len(columns) != len(layout.types):
        raise ValueError(f"{len(columns)} columns for {len(layout.types)} types")
    return layout.frame(rows, columns)
