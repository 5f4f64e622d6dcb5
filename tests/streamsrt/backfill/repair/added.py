"""A program whose second version has two stores more, of windows and behind a repartition topic."""

from __future__ import annotations

from topology import Store, StreamsBuilder, TimeWindows, serdes
from topology.graph.topology import Topology

WINDOW_MS = 60_000
GRACE_MS = 30_000


def _version(number: int) -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("added-orders", key=serdes.string, value=serdes.string)
    orders.group_by_key().count(store="counts")
    if number > 1:
        windowed = orders.group_by_key().windowed_by(TimeWindows(WINDOW_MS, grace=GRACE_MS))
        windowed.count(store=Store("per-minute", retention=24 * 60 * WINDOW_MS))
        orders.group_by(lambda _, item: item, name="by-item", key=serdes.string, value=serdes.string).count(
            store="items"
        )
    return builder.build()


first, second = _version(1), _version(2)
