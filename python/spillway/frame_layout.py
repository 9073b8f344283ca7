"""What a frame is beside its rows: its labels, and the forms of columns and index."""

import pickle
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas._libs.internals import BlockPlacement
from pandas.core.internals.blocks import new_block
from pandas.core.internals.managers import BlockManager

from spillway.array_form import ArrayForm, Interned
from spillway.column_memory import BLOB, ColumnType, JoinedColumn
from spillway.frame_index import IndexForm
from spillway.frame_labels import frozen, label_list
from spillway.opaque_rows import unpickle_all

_KEPT = 128
"""Layouts that are kept though nobody has them: the same frames come again."""


class Group:
    """Columns of one form, which pandas has in one block if the form says so.

    Attributes
    ----------
    form
        Of each of them.
    positions
        Of each of them in the frame.
    """

    __slots__ = ("form", "positions", "width")

    def __init__(self, form: ArrayForm, positions: Sequence[int]) -> None:
        self.form = form
        self.positions = np.array(positions, np.intp)
        self.width = len(positions)


class FrameLayout(Interned):
    """All that rebuilding a frame needs beside the bytes of its columns.

    Layouts are equal if their frames' rows may be joined column by column, and then
    they are one object. One has few bytes, and those of categories.

    Attributes
    ----------
    types
        Of all columns of memory: those of the frame's columns, by group, then those of
        the index.
    labels
        The frame's columns.
    order
        Positions in the frame, by group.
    widths
        How many neighbours of types belong together: side by side if they are
        items.
    """

    __slots__ = (
        "attrs",
        "groups",
        "index",
        "labels",
        "order",
        "types",
        "unique_only",
        "widths",
    )

    def __init__(
        self,
        labels: pd.Index,
        forms: tuple[ArrayForm, ...],
        index: IndexForm,
        attrs: bytes | None,
        unique_only: bool,
    ) -> None:
        self.labels = labels
        self.index = index
        self.attrs = attrs
        self.unique_only = unique_only
        together: dict[Hashable, list[int]] = {}
        for position, form in enumerate(forms):
            alone = None if form.in_blocks else position
            together.setdefault((form, alone), []).append(position)
        self.groups = [
            Group(forms[positions[0]], positions) for positions in together.values()
        ]
        self.order = [at for group in self.groups for at in group.positions.tolist()]
        types = [type for at in self.order for type in forms[at].types]
        self.types = (*types, *index.types)
        self.widths = [
            width
            for group in self.groups
            for width in (
                [group.width] if group.form.in_blocks else [1] * len(group.form.types)
            )
        ] + [1] * len(index.types)

    def frame(self, rows: int, columns: Sequence[JoinedColumn]) -> pd.DataFrame:
        blocks, at = [], 0
        for group in self.groups:
            end = at + len(group.form.types) * group.width
            some = columns[at:end]
            make = group.form.block if group.form.in_blocks else group.form.array
            blocks.append((make(rows, some), group.positions))
            at = end
        index = self.index.index(rows, columns[at:])
        frame = frame_of_blocks(blocks, index, self.labels.view())
        if self.attrs is not None:
            frame.attrs = pickle.loads(self.attrs)
        if self.unique_only:
            frame.flags.allows_duplicate_labels = False
        return frame


class OpaqueLayout(Interned):
    """The layout of a frame of which only its class knows what it is: all its rows are
    one column of pickles.

    Attributes
    ----------
    empty
        The frame without its rows, pickled.
    """

    __slots__ = ("empty", "types", "widths")

    def __init__(self, empty: bytes) -> None:
        self.empty = empty
        self.types: tuple[ColumnType, ...] = (BLOB,)
        self.widths = [1]

    def frame(self, rows: int, columns: Sequence[JoinedColumn]) -> pd.DataFrame:
        pieces = list(unpickle_all(columns[0].memory))
        frame = pd.concat(pieces) if pieces else pickle.loads(self.empty)
        if len(frame) != rows:
            raise ValueError(f"{len(frame)} rows were pickled where {rows} are wanted")
        return frame


_kept: OrderedDict[Hashable, FrameLayout] = OrderedDict()


def frame_layout(
    frame: pd.DataFrame,
    labels_key: Hashable,
    dropped: list[int],
    forms: tuple[ArrayForm, ...],
    index: IndexForm,
) -> FrameLayout:
    """The layout of a frame; forms has one for each column that is not dropped."""
    attrs = pickle.dumps(frame.attrs, 5) if frame.attrs else None
    unique_only = not frame.flags.allows_duplicate_labels
    key = (labels_key, tuple(dropped), forms, index, attrs, unique_only)
    layout = _kept.get(key)
    if layout is None:
        # A view of its own, since a frame's owner can give its columns another name.
        labels = frame.columns.delete(dropped) if dropped else frame.columns.view()
        layout = FrameLayout.of(
            (frozen(labels, label_list(labels)), forms, index, attrs, unique_only),
            labels,
            forms,
            index,
            attrs,
            unique_only,
        )
        _kept[key] = layout
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return layout


def opaque_layout(frame: pd.DataFrame) -> OpaqueLayout:
    empty = pickle.dumps(frame.take(np.empty(0, np.intp)), 5)
    return OpaqueLayout.of(empty, empty)


def frame_of_blocks(
    blocks: list[tuple[Any, np.ndarray[Any, Any]]], index: pd.Index, labels: pd.Index
) -> pd.DataFrame:
    """A frame whose blocks are these arrays, at these positions, without a copy.

    What pandas.api.internals has for that from pandas 3 on takes twice the time, for
    checks of what is known here.
    """
    made = [
        new_block(values, BlockPlacement(positions), ndim=2)
        for values, positions in blocks
    ]
    manager = BlockManager(tuple(made), [labels, index], verify_integrity=False)
    return pd.DataFrame._from_mgr(manager, manager.axes)  # type: ignore[attr-defined]
