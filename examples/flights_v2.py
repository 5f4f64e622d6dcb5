"""The next version of ``examples.flights``, which adds the weather per airport and day.

    streamsrt topology diff examples.flights:topology examples.flights_v2:topology
    streamsrt run examples.flights_v2:topology --application-id flights

It has one more subtopology, before the existing one, and one more store. It reads ``weather`` (airport -> one hour's
observations) and writes ``weather-days`` (airport and day -> :class:`WeatherDay`). Its topology epoch is one above that
of the previous version, so that it can replace running members one at a time.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple, TypedDict

from examples import flights
from topology import StreamsBuilder, TimeWindows, serdes

WEATHER, WEATHER_DAYS = "weather", "weather-days"
DAY = timedelta(days=1)


class Observation(TypedDict):
    """One hour at an airport. ``wind`` in mph, ``visibility`` in miles; None where nothing was measured."""

    wind: float | None
    visibility: float | None


class WeatherDay(TypedDict):
    """One day (UTC) at an airport."""

    hours: int
    strongest_wind: float | None
    lowest_visibility: float | None


def no_weather() -> WeatherDay:
    return WeatherDay(hours=0, strongest_wind=None, lowest_visibility=None)


def add_observation(_airport: str, observation: Observation, day: WeatherDay) -> WeatherDay:
    winds = [wind for wind in (day["strongest_wind"], observation["wind"]) if wind is not None]
    sights = [sight for sight in (day["lowest_visibility"], observation["visibility"]) if sight is not None]
    return WeatherDay(
        hours=day["hours"] + 1,
        strongest_wind=max(winds, default=None),
        lowest_visibility=min(sights, default=None),
    )


builder = StreamsBuilder()
(
    builder.stream(WEATHER, key=serdes.string, value=serdes.json)
    .group_by_key(key=serdes.string, value=serdes.json)
    .windowed_by(TimeWindows(DAY, grace=timedelta(days=2)))
    .aggregate(no_weather, add_observation, store="weather-per-day", value=serdes.json)
    .to_stream()
    .to(WEATHER_DAYS, key=serdes.time_windowed(serdes.string, DAY), value=serdes.json)
)
flights.add_delays_per_hour(builder)
topology = builder.build(epoch=flights.topology.epoch + 1)


# --------------------------------------------------------------------------------------------------------- the input


class Row(NamedTuple):
    """A record of the input."""

    key: str
    value: Observation
    timestamp_ms: int


def read_weather() -> Iterator[Row]:
    """Every observation at the three airports, hour by hour."""
    with (flights.data_folder() / "weather.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in sorted(rows, key=lambda row: row["time_hour"]):
        observed_ms = round(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)
        observation = Observation(wind=_number(row["wind_speed"]), visibility=_number(row["visib"]))
        yield Row(row["origin"], observation, observed_ms)


def _number(text: str) -> float | None:
    return None if text in {"", "NA"} else float(text)
