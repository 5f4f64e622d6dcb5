"""A program with stores of several kinds, behind a repartition topic of two partitions or of five."""

from __future__ import annotations

from typing import Any

from topology import SessionWindows, StreamsBuilder, TimeWindows, serdes
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
WINDOW_MS = 60_000
ORDERS = "taken-orders"
PRICES = "taken-prices"


def _shop(partitions: int, prices: str = PRICES) -> Topology:
    builder = StreamsBuilder()
    builder.table(prices, **TEXT, store="prices")
    orders = builder.stream(ORDERS, **TEXT).repartition(name="by-item", partitions=partitions, **TEXT).group_by_key()
    orders.count(store="counts")
    orders.windowed_by(TimeWindows(WINDOW_MS)).count(store="per-minute")
    orders.windowed_by(SessionWindows(WINDOW_MS)).count(store="sessions")
    return builder.build()


two, five = _shop(2), _shop(5)
other_prices = _shop(2, "taken-other-prices")


def _numbers(value: Any) -> Topology:
    builder = StreamsBuilder()
    builder.table(PRICES, key=serdes.string, value=value, store="prices")
    return builder.build()


as_numbers = _numbers(serdes.long)
