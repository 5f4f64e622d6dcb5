"""A program that passes JSON on beside a window by count, which runs on processor nodes as a whole, and not in slices."""

from __future__ import annotations

from topology import CountWindows, Store, StreamsBuilder, serdes

TOPICS = ("orders", "customers", "passed-on", "joined", "counted")

builder = StreamsBuilder()
customers = builder.table("customers", key=serdes.string, value=serdes.json, store="customers")
orders = builder.stream("orders", key=serdes.string, value=serdes.json)
orders.filter(lambda key, _: key != "test").to("passed-on", key=serdes.string, value=serdes.json)
orders.left_join(customers, lambda order, row: [order, row]).to("joined", key=serdes.string, value=serdes.json)
counted = orders.group_by_key().windowed_by(CountWindows(4, 2))
counted.aggregate(lambda: 0, lambda _key, _order, count: count + 1, store=Store("counted", value=serdes.json)).to(
    "counted", key=serdes.string, value=serdes.json
)
topology = builder.build()
