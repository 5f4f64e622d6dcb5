"""A program that holds changes back and keeps versions."""

from __future__ import annotations

from topology import Store, StreamsBuilder, Suppressed, TimeWindows, serdes

WINDOW_MS = 100
TEXT = {"key": serdes.string, "value": serdes.string}

builder = StreamsBuilder()
lines = builder.stream("held-lines", **TEXT)
(
    lines.group_by_key()
    .windowed_by(TimeWindows(WINDOW_MS, grace=30))
    .count(store="counts")
    .suppress(Suppressed.until_window_closes())
    .to_stream()
    .to("held-counts", key=serdes.time_windowed(serdes.string, WINDOW_MS), value=serdes.long)
)
names = builder.table("held-names", store=Store("names", kind="versioned", retention=500, **TEXT), **TEXT)
lines.left_join(names, lambda line, name: f"{line} {name}").to("held-named", **TEXT)
topology = builder.build()
