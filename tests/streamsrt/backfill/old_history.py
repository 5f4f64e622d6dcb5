"""Windows and versions of departures, whose changelogs brokers don't keep for ever."""

from __future__ import annotations

from datetime import timedelta

from examples import flights
from topology import Store, StreamsBuilder, TimeWindows, serdes

builder = StreamsBuilder()
flown = builder.stream(flights.DEPARTURES, key=serdes.string, value=serdes.string).group_by_key()
flown.windowed_by(TimeWindows(timedelta(hours=1))).count(store="per-hour")
flown.reduce(lambda _, new: new, store=Store("latest", kind="versioned", retention=timedelta(minutes=1)))
topology = builder.build()
