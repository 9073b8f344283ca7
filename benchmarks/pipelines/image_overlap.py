"""Images of a microscope: noise filtered, background taken off, spots counted.

A stack of images of 2048 x 2048 pixels, in chunks of 1024 x 1024, goes through a median
of 3 x 3 pixels, loses the mean of the 31 x 31 around each pixel, and is cut by a
threshold, by `map_overlap` each time. The answer, by image: how many spots there are
(regions less holes, which the edges and corners of the pixels tell), how many pixels
they have, and how bright these are together.

Pixels are uint16. Making them (a slope of light, noise and square spots) takes about a
tenth of the work.
"""

import argparse

import dask.array as da
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client
from pipeline import Pipeline

SIDE, CHUNK = 2048, 1024
SPOTS, SPOT = 400, 9
REACH = 15
"""Of the mean, to each side."""
BRIGHT = 150


def images_of(options: argparse.Namespace) -> int:
    return max(1, round(options.gb * 1e9 / 2 / SIDE**2))


def read_image(number: int) -> np.ndarray:
    random = np.random.default_rng(number)
    image = random.integers(0, 256, (SIDE, SIDE), dtype="u2")
    image += np.arange(SIDE, dtype="u2") // 2
    for row, column in random.integers(0, SIDE - SPOT, (SPOTS, 2)):
        image[row : row + SPOT, column : column + SPOT] += 600
    return image[None]


def median(images: np.ndarray) -> np.ndarray:
    """Of 3 x 3 pixels: of each row the least, the middle and the greatest; of these the
    greatest, the middle and the least; of those the middle."""
    padded = np.pad(images, [(0, 0), (0, 0), (1, 1)], "edge")
    low, middle, high = in_order(padded[..., :-2], padded[..., 1:-1], padded[..., 2:])

    def rows(of: np.ndarray) -> list[np.ndarray]:
        of = np.pad(of, [(0, 0), (1, 1), (0, 0)], "edge")
        return [of[:, :-2], of[:, 1:-1], of[:, 2:]]

    return in_order(
        np.maximum.reduce(rows(low)),
        in_order(*rows(middle))[1],
        np.minimum.reduce(rows(high)),
    )[1]


def in_order(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
    a, b = np.minimum(a, b), np.maximum(a, b)
    b, c = np.minimum(b, c), np.maximum(b, c)
    return [np.minimum(a, b), np.maximum(a, b), c]


def less_background(images: np.ndarray) -> np.ndarray:
    """Less the mean of the square around each pixel; nothing where that is brighter."""
    sums = images.astype("i4")
    for axis in (1, 2):
        sums = running_sums(sums, axis)
    mean = sums // (2 * REACH + 1) ** 2
    return np.maximum(images - mean, 0).astype("u2")


def running_sums(images: np.ndarray, axis: int) -> np.ndarray:
    """Of the pixels within reach along an axis; the outermost ones go on and on."""
    widths = [(0, 0)] * 3
    widths[axis] = (REACH + 1, REACH)
    padded = np.pad(images, widths, "edge")
    sums = np.cumsum(np.moveaxis(padded, axis, 0), axis=0, dtype="i4")
    return np.moveaxis(sums[2 * REACH + 1 :] - sums[: -2 * REACH - 1], 0, axis)


def corners(spots: np.ndarray) -> np.ndarray:
    """For each pixel what it adds to the number of regions less holes: pixels, less
    neighbours of two, plus squares of four, each told at its last pixel."""
    spots = np.pad(spots, [(0, 0), (1, 0), (1, 0)]).astype("i1")
    across = spots[:, 1:] & spots[:, :-1]
    return (
        spots[:, 1:, 1:]
        - across[:, :, 1:]
        - (spots[:, 1:, 1:] & spots[:, 1:, :-1])
        + (across[:, :, 1:] & across[:, :, :-1])
    )


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    stack = da.concatenate(
        [
            da.from_delayed(delayed(read_image)(number), (1, SIDE, SIDE), "u2")
            for number in range(images_of(options))
        ]
    ).rechunk((1, CHUNK, CHUNK))
    around = {"boundary": "nearest", "dtype": "u2"}
    clean = stack.map_overlap(median, depth=(0, 1, 1), **around)
    flat = clean.map_overlap(less_background, depth=(0, REACH + 1, REACH + 1), **around)
    spots = flat > BRIGHT
    regions = spots.map_overlap(corners, depth=(0, 1, 1), boundary=False, dtype="i1")
    found = [regions, spots, da.where(spots, flat, 0)]
    return answer(*da.compute(*(each.sum(axis=(1, 2), dtype="i8") for each in found)))


def answer(
    regions: np.ndarray, pixels: np.ndarray, brightness: np.ndarray
) -> pd.DataFrame:
    return pd.DataFrame(
        {"regions": regions, "pixels": pixels, "brightness": brightness}
    )


def expected(options: argparse.Namespace) -> pd.DataFrame:
    """Of whole images."""
    found = []
    for number in range(images_of(options)):
        flat = less_background(median(read_image(number)))
        spots = flat > BRIGHT
        found.append([corners(spots).sum(dtype="i8"), spots.sum(), flat[spots].sum()])
    return answer(*np.array(found, "i8").T)


if __name__ == "__main__":
    Pipeline(__doc__, compute, expected, gb=0.25).main()
