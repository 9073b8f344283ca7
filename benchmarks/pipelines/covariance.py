"""What rows of a table have to do with each other: their covariances, but for a factor.

Each row of the matrix loses its mean, to a whole number, and is multiplied with each
other row: `x @ x.T`. The matrix is needed twice, for the means and for the product,
and is larger than what the workers keep in memory. The answer, by strips of the
product's rows: its share of the trace, the sum of its entries, and that of its entries
each times a weight of its column.

The entries are whole numbers in float64, so that every sum is exact. The check
multiplies no matrices: it takes the trace from the squares, and the sums from products
with vectors. Making the matrix takes a twentieth of the work.
"""

import argparse
import math
from collections.abc import Iterator

import dask.array as da
import numpy as np
import pandas as pd
from distributed import Client
from pipeline import Pipeline

CHUNK = 256, 8192
WIDE = 64
"""Columns for each row."""
STRIP = 256
WEIGHTS = 101


def shape_of(options: argparse.Namespace) -> tuple[int, int]:
    """Of whole strips."""
    rows = max(1, round(math.sqrt(options.gb * 1e9 / 8 / WIDE) / STRIP)) * STRIP
    return rows, rows * WIDE


def weights_of(rows: int) -> np.ndarray:
    return np.arange(rows, dtype="f8") % WEIGHTS


def draw(rows: int, columns: int, row: int, column: int) -> np.ndarray:
    """The block that begins there; rows differ by what their entries are about."""
    random = np.random.default_rng([row, column])
    noise = random.integers(-3, 4, (rows, columns), dtype="i1")
    return noise + (np.arange(row, row + rows) % 23.0)[:, None]


def draw_block(block_info: dict) -> np.ndarray:
    block = block_info[None]
    return draw(*block["chunk-shape"], *(start for start, _ in block["array-location"]))


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    shape = shape_of(options)
    chunks = da.core.normalize_chunks(CHUNK, shape)
    matrix = da.map_blocks(draw_block, chunks=chunks, dtype="f8", meta=np.empty((0, 0)))
    centred = matrix - matrix.mean(axis=1, keepdims=True).round()
    product = centred @ centred.T
    weights = da.from_array(weights_of(shape[0]), chunks=CHUNK[0])
    return answer(
        *da.compute(da.diagonal(product), product.sum(axis=1), product @ weights)
    )


def answer(
    diagonal: np.ndarray, sums: np.ndarray, weighted: np.ndarray
) -> pd.DataFrame:
    found = {"trace": diagonal, "sum": sums, "weighted": weighted}
    return pd.DataFrame(
        {
            name: column.reshape(-1, STRIP).sum(axis=1).astype("i8")
            for name, column in found.items()
        }
    )


def panels(rows: int, columns: int) -> Iterator[np.ndarray]:
    """All rows of some columns at a time."""
    for column in range(0, columns, CHUNK[1]):
        size = min(CHUNK[1], columns - column)
        yield np.concatenate(
            [
                draw(min(CHUNK[0], rows - row), size, row, column)
                for row in range(0, rows, CHUNK[0])
            ]
        )


def expected(options: argparse.Namespace) -> pd.DataFrame:
    rows, columns = shape_of(options)
    weights = weights_of(rows)
    mean = sum(panel.sum(axis=1) for panel in panels(rows, columns)) / columns
    diagonal, sums, weighted = np.zeros((3, rows))
    for panel in panels(rows, columns):
        panel -= mean.round()[:, None]
        diagonal += (panel**2).sum(axis=1)
        sums += panel @ panel.sum(axis=0)
        weighted += panel @ (weights @ panel)
    return answer(diagonal, sums, weighted)


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=1.7, memory="1GiB").main()
