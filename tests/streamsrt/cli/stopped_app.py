"""An application with stores of three kinds, one that is renamed and one that is global, whose instance the tests look at
when it has stopped."""

from __future__ import annotations

from topology import SessionWindows, Store, StreamsBuilder, TimeWindows, serdes

builder = StreamsBuilder()
by_key = builder.stream("stopped-events", key=serdes.integer, value=serdes.string).group_by_key()
by_key.count(store="counts")
by_key.windowed_by(TimeWindows(60_000)).count(store="per-minute")
by_key.windowed_by(SessionWindows(5_000)).count(store="sessions")
by_key.count(store=Store("totals", renamed_from="first-totals"))
builder.global_table("stopped-known", key=serdes.integer, value=serdes.string, store="known")
topology = builder.build()
