"""A user's program that must pass mypy in strict mode: inference through the DSL's operators, without annotations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from topology import (
    FixedKeyProcessor,
    KGroupedStream,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Store,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
    serdes,
)


@dataclass
class Order:
    customer: str
    cents: int


class Deduplicate(Processor[str, Order, str, Order]):
    def init(self, context: ProcessorContext[str, Order]) -> None:
        self.context = context
        self.seen = context.get_state_store("seen")
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, self.punctuate)

    def punctuate(self, timestamp: int) -> None:
        self.context.commit()

    def process(self, record: Record[str, Order]) -> None:
        if self.seen.get(record.key) is None:
            self.seen.put(record.key, record.timestamp)
            self.context.forward(record)


class Total:
    """Matches FixedKeyProcessor without inheriting."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, Order]) -> None:
        self.context.forward(record.with_value(record.value.cents))

    def close(self) -> None:
        pass


def total() -> FixedKeyProcessor[str, Order, int]:
    return Total()


def join_names(order: Order, name: str | None) -> str:
    return f"{name}: {order.cents}"


builder = StreamsBuilder()
builder.add_state_store(Store("seen", key=serdes.string, value=serdes.long))

orders = builder.stream("orders", key=serdes.string, value=serdes.json(Order))
assert_type(orders, KStream[str, Order])
names = builder.table("names", key=serdes.string, value=serdes.string)
assert_type(names, KTable[str, str])

assert_type(orders.filter(lambda key, order: order.cents > 0), KStream[str, Order])
assert_type(orders.map_values(lambda order: order.cents), KStream[str, int])
assert_type(orders.map_values(lambda key, order: (key, order.cents), with_key=True), KStream[str, tuple[str, int]])
assert_type(orders.flat_map_values(lambda order: [order.cents]), KStream[str, int])
assert_type(orders.select_key(lambda key, order: order.cents), KStream[int, Order])
assert_type(orders.map(lambda key, order: (order.cents, key)), KStream[int, str])

grouped = orders.group_by(lambda key, order: order.customer, key=serdes.string)
assert_type(grouped, KGroupedStream[str, Order])
assert_type(grouped.count(store="orders-per-customer"), KTable[str, int])
totals = grouped.aggregate(lambda: 0, lambda customer, order, cents: cents + order.cents, value=serdes.long)
assert_type(totals, KTable[str, int])
hourly = grouped.windowed_by(TimeWindows(timedelta(hours=1), grace=timedelta(minutes=5))).count()
assert_type(hourly, KTable[Windowed[str], int])
assert_type(hourly.to_stream(), KStream[Windowed[str], int])
assert_type(hourly.to_stream(lambda window, count: window.key), KStream[str, int])

assert_type(orders.left_join(names, join_names), KStream[str, str])
assert_type(
    orders.join(names, lambda key, order, name: (key, order, name), with_key=True), KStream[str, tuple[str, Order, str]]
)

deduplicated = orders.process(Deduplicate, stores=["seen"])
assert_type(deduplicated, KStream[str, Order])
assert_type(orders.process_values(total), KStream[str, int])

small, large = orders.branch(lambda key, order: order.cents < 100, default=True)
small.merge(large).repartition(partitions=4).to("all")
names.filter(lambda key, name: name != "").to_stream().to(lambda key, name, context: context.topic)

topology: Topology = builder.build()
