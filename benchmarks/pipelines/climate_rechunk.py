"""A climate archive cut in time, needed whole in time: what is unusual where, and when.

Temperatures (time, lat, lon) of 16 years come in slabs of 73 days, as from files, and
are rechunked to columns that have all days of a few cells (Dask takes its P2P rechunk).
From each cell goes its mean of the calendar day, over the years, and from each day the
mean of the world, so that the anomalies of all cells are needed twice: they, and the
archive, are larger than the memory of the workers. The answer, by latitude: the
largest departure and how many are large.

Temperatures are whole hundredths of a degree in float32, so that every sum is exact.
Making them (a season, a latitude and noise) takes about a tenth of the work.
"""

import argparse
import math

import dask.array as da
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client
from pipeline import Pipeline

YEARS, DAYS = 16, 365
SLAB_DAYS = 73
COLUMNS = 8
"""In each direction of the map."""
LARGE = 450


def shape_of(options: argparse.Namespace) -> tuple[int, int, int]:
    """Twice as many longitudes as latitudes."""
    time = YEARS * DAYS
    latitudes = max(COLUMNS, round(math.sqrt(options.gb * 1e9 / 4 / time / 2)))
    return time, latitudes, 2 * latitudes


def read_slab(number: int, latitudes: int, longitudes: int) -> np.ndarray:
    days = np.arange(number * SLAB_DAYS, (number + 1) * SLAB_DAYS) % DAYS
    season = np.cos(2 * np.pi * days / DAYS)
    north = np.linspace(-1, 1, latitudes)
    usual = np.rint(2500 - 3000 * north**2 - 1000 * np.outer(season, north))
    noise = np.random.default_rng(number).integers(
        -512, 512, (SLAB_DAYS, latitudes, longitudes), dtype="i2"
    )
    return usual.astype("f4")[:, :, None] + noise


def anomaly(column: np.ndarray) -> np.ndarray:
    """Less each cell's mean of the calendar day."""
    years = column.reshape(YEARS, DAYS, *column.shape[1:])
    return (years - years.mean(axis=0)).reshape(column.shape)


def compute(client: Client, options: argparse.Namespace) -> pd.DataFrame:
    time, *world = shape_of(options)
    slabs = [
        da.from_delayed(delayed(read_slab)(number, *world), (SLAB_DAYS, *world), "f4")
        for number in range(time // SLAB_DAYS)
    ]
    sizes = [math.ceil(cells / COLUMNS) for cells in world]
    columns = da.concatenate(slabs).rechunk((-1, *sizes))
    anomalies = columns.map_blocks(anomaly, dtype="f4")
    of_the_world = anomalies.mean(axis=(1, 2), dtype="f8").astype("f4")
    departures = abs(anomalies - of_the_world[:, None, None])
    largest, large = da.compute(
        departures.max(axis=(0, 2)), (departures > LARGE).sum(axis=(0, 2))
    )
    return answer(largest, large)


def answer(largest: np.ndarray, large: np.ndarray) -> pd.DataFrame:
    latitude = np.arange(len(largest))
    return pd.DataFrame({"latitude": latitude, "largest": largest, "large": large})


def expected(options: argparse.Namespace) -> pd.DataFrame:
    time, *world = shape_of(options)
    cube = np.empty((time, *world), "f4")
    for number, days in enumerate(cube.reshape(-1, SLAB_DAYS, *world)):
        days[:] = read_slab(number, *world)
    usual = sum(cube[year * DAYS :][:DAYS].astype("f8") for year in range(YEARS))
    for year in range(YEARS):
        cube[year * DAYS :][:DAYS] -= usual / YEARS
    largest, large = np.zeros(world[0], "f4"), np.zeros(world[0], int)
    for day in cube:
        departures = abs(day - np.float32(day.sum(dtype="f8") / day.size))
        largest = np.maximum(largest, departures.max(axis=1))
        large += (departures > LARGE).sum(axis=1)
    return answer(largest, large)


if __name__ == "__main__":
    # Of 1 GiB workers are killed: shards that wait to be sent may take as much.
    Pipeline(__doc__, compute, expected, gb=3.3, memory="1.5GiB").main()
