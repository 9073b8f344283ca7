"""Rows that only Python can describe: each shard has its own, as one pickle.

What a shard's rows become is one object: an array of them. The pickles of a column's
shards may be written one after another, since a pickle says itself where it ends.
"""

import io
import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from spillway.buffer_protocol import Buffer

PROTOCOL = 5

Dumps = Callable[[Any], bytes]


def dumps(rows: Any) -> bytes:
    return pickle.dumps(rows, PROTOCOL)


class Takes(Protocol):
    """What NumPy's arrays, pandas' arrays and frames have in common."""

    def take(self, indices: Any, /) -> Any: ...


class OpaqueRows:
    """The rows of a column, which go into shards by `take` and by pickle."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Takes) -> None:
        self._rows = rows

    def pickle(
        self,
        order: npt.NDArray[np.int64],
        begins: npt.NDArray[np.integer[Any]],
        dumps: Dumps = dumps,
    ) -> tuple[bytearray, npt.NDArray[np.uint64]]:
        """Pickle the rows of each partition.

        Within a partition an object that is in several rows is pickled once, and is one
        object again afterwards.

        Parameters
        ----------
        order
            The rows by partition, in the order of the table within each.
        begins
            One more than partitions: of partition p are the rows
            `order[begins[p]:begins[p + 1]]`.
        dumps
            What pickles, into bytes that `pickle.load` reads.

        Returns
        -------
        data, offsets
            The pickles one after another, and where they begin and end; a partition
            without rows has no bytes.

        Raises
        ------
        Exception
            Whatever `dumps` raises for what it cannot pickle.
        """
        data = bytearray()
        offsets = np.zeros(len(begins), np.uint64)
        bounds = begins.tolist()
        for partition, (begin, end) in enumerate(itertools.pairwise(bounds)):
            if begin != end:
                # A slice of the rows in order would do, but pickles of slices of some
                # arrays have all of the memory that these are slices of.
                data += dumps(self._rows.take(order[begin:end]))
            offsets[partition + 1] = len(data)
        return data, offsets


def unpickle_all(data: Buffer) -> Iterator[Any]:
    """The objects whose pickles are one after another in data.

    Raises
    ------
    Exception
        Whatever `pickle.load` raises for what is no pickle, or not a whole one.
    """
    stream = io.BytesIO(data)
    size = stream.getbuffer().nbytes
    while stream.tell() < size:
        yield pickle.load(stream)
