"""A program that can be computed in slices: a table, totals and windows per key, and the total of each order in a topic."""

from __future__ import annotations

from topology import Store, StreamsBuilder, TimeWindows, serdes

WINDOW_MS = 1_000
TOPICS = ("orders", "customers", "totals")


def priced(order: str, name: str | None) -> str:
    return f"{name or 'nobody'} {order}"


builder = StreamsBuilder()
customers = builder.table("customers", key=serdes.string, value=serdes.string, store="customers")
orders = builder.stream("orders", key=serdes.string, value=serdes.string).filter(lambda key, value: value != "test")
named = orders.left_join(customers, priced)
grouped = named.group_by_key(key=serdes.string, value=serdes.string)
grouped.windowed_by(TimeWindows(WINDOW_MS, grace=500)).count(store="per-second")
totals = grouped.aggregate(
    lambda: 0, lambda key, value, total: total + len(value), store=Store("totals", value=serdes.long)
)
totals.to_stream().to("totals", key=serdes.string, value=serdes.long)
topology = builder.build()
