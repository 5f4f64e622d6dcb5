"""A user's program that must pass mypy and pyright in strict mode: every method of the DSL, types inferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, assert_type

from topology import (
    BranchedKStream,
    Buffer,
    CogroupedKStream,
    Count,
    CountWindowedKStream,
    CountWindows,
    EmitStrategy,
    FailedValue,
    FixedKeyProcessor,
    GlobalKTable,
    JoinWindows,
    KeyValueStore,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    MetricCounter,
    MetricLatency,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serde,
    SessionWindowedKStream,
    SessionWindows,
    SlidingWindows,
    Store,
    StreamsBuilder,
    Sum,
    Suppressed,
    TimeWindowedKStream,
    TimeWindows,
    Topology,
    TopologyBuilder,
    UnlimitedWindows,
    ValueTransformer,
    Windowed,
    agg,
    serdes,
)


@dataclass
class Order:
    customer: str
    cents: int


class Deduplicate(Processor[str, Order, str, Order]):
    def init(self, context: ProcessorContext[str, Order]) -> None:
        self.context = context
        self.seen: KeyValueStore[str, int] = context.get_state_store("seen")
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, self.punctuate)
        context.schedule(
            1000, PunctuationType.WALL_CLOCK_TIME, self.punctuate, start_time=datetime(2024, 1, 1, tzinfo=UTC)
        )

        assert_type(context.state_dir, Path)
        assert_type(context.key_serde, Serde[Any])
        assert_type(context.app_configs_with_prefix("app."), Mapping[str, Any])
        self.dropped = context.metrics.counter("dropped", group="shop", reason="twice")
        assert_type(self.dropped, MetricCounter)
        assert_type(context.metrics.latency("age", description="milliseconds"), MetricLatency)

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
        self.cents: MetricCounter = context.metrics.rate("cents")

    def process(self, record: Record[str, Order]) -> None:
        self.cents.add(record.value.cents)
        self.context.forward(record.with_value(record.value.cents))

    def close(self) -> None:
        pass


def total() -> FixedKeyProcessor[str, Order, int]:
    return Total()


class Greeting:
    """Matches ValueTransformer without inheriting."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        pass

    def transform(self, key: str, value: str | None) -> str | None:
        return None if value is None else f"hello {value}"

    def close(self) -> None:
        pass


def greeting() -> ValueTransformer[str, str, str]:
    return Greeting()


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
hourly.to_stream().to("hours", key=serdes.time_windowed(serdes.string, 5), value=serdes.long)
hourly.to_stream().to("sessions", key=serdes.session_windowed(serdes.string), value=serdes.long)
assert_type(
    builder.stream("past-sessions", key=serdes.session_windowed(serdes.string), value=serdes.long),
    KStream[Windowed[str], int],
)
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


# ------------------------------------------------------------------------------------------------------- more streams

untyped = builder.stream(["a", "b"], value=serdes.json)
assert_type(untyped, KStream[Any, Any])
assert_type(builder.stream("keyed", key=serdes.string), KStream[str, Any])
assert_type(orders.filter_not(lambda key, order: order.cents > 0), KStream[str, Order])
assert_type(orders.peek(lambda key, order: None), KStream[str, Order])
orders.foreach(lambda key, order: None)
assert_type(orders.flat_map(lambda key, order: [(order.cents, key)]), KStream[int, str])
assert_type(orders.to_table(store="latest-orders"), KTable[str, Order])
assert_type(orders.group_by_key(), KGroupedStream[str, Order])
split = orders.split(name="split-")
assert_type(split, BranchedKStream[str, Order])
branches = split.branch(lambda key, order: order.cents > 9, name="dear").default_branch(name="cheap")
assert_type(branches, dict[str, KStream[str, Order]])
orders.split().branch(lambda key, order: order.cents > 9).no_default_branch()

good, bad = orders.try_map_values(lambda order: 1 / order.cents)
assert_type(good, KStream[str, float])
assert_type(bad, KStream[str, FailedValue[Order]])
assert_type(
    orders.deduplicate(lambda key, order: order.cents, timedelta(days=1), serde=serdes.long), KStream[str, Order]
)
assert_type(untyped.map_batches(lambda table: table), KStream[Any, Any])


async def price(order: Order) -> float:
    return order.cents / 100


assert_type(orders.map_async(price, concurrency=4), KStream[str, float])

# ----------------------------------------------------------------------------------------------------- aggregations

cents = orders.map_values(lambda order: order.cents)
assert_type(cents.group_by_key(value=serdes.long).reduce(lambda total, more: total + more), KTable[str, int])
tumbling = grouped.windowed_by(TimeWindows(timedelta(hours=1)))
assert_type(tumbling, TimeWindowedKStream[str, Order])
assert_type(
    tumbling.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).aggregate(
        lambda: 0, lambda key, order, total: total + order.cents, value=serdes.long
    ),
    KTable[Windowed[str], int],
)
assert_type(grouped.windowed_by(SlidingWindows(1_000)).count(), KTable[Windowed[str], int])
assert_type(grouped.windowed_by(UnlimitedWindows()).reduce(lambda one, other: other), KTable[Windowed[str], Order])
sessions = grouped.windowed_by(SessionWindows(timedelta(minutes=5)))
assert_type(sessions, SessionWindowedKStream[str, Order])
assert_type(
    sessions.emit_strategy(EmitStrategy.ON_WINDOW_UPDATE).aggregate(
        lambda: 0,
        lambda key, order, total: total + order.cents,
        lambda key, one, other: one + other,
        value=serdes.long,
    ),
    KTable[Windowed[str], int],
)
assert_type(sessions.count(), KTable[Windowed[str], int])
assert_type(sessions.reduce(lambda one, other: other), KTable[Windowed[str], Order])
named = agg(orders=Count(), cents=Sum("cents"))
grouped.aggregate(named, named.add, value=serdes.json)


def add_cents(customer: str, order: Order, total: int) -> int:
    return total + order.cents


def add_length(customer: str, name: str, total: int) -> int:
    return total + len(name)


def no_cents() -> int:
    return 0


together = grouped.cogroup(add_cents).cogroup(names.to_stream().group_by_key(), add_length)
assert_type(together, CogroupedKStream[str, int])
assert_type(together.aggregate(no_cents, value=serdes.long), KTable[str, int])
assert_type(together.windowed_by(TimeWindows(1_000)).aggregate(no_cents, value=serdes.long), KTable[Windowed[str], int])
assert_type(
    together.windowed_by(SessionWindows(1_000)).aggregate(
        no_cents, lambda key, one, other: one + other, value=serdes.long
    ),
    KTable[Windowed[str], int],
)

# ------------------------------------------------------------------------------------------------------------ tables

assert_type(names.filter_not(lambda key, name: name == ""), KTable[str, str])
assert_type(names.map_values(len), KTable[str, int])
assert_type(names.map_values(lambda key, name: len(key + name), with_key=True), KTable[str, int])
assert_type(names.transform_values(greeting), KTable[str, str])
by_name = names.group_by(lambda key, name: (name, 1), key=serdes.string, value=serdes.long)
assert_type(by_name, KGroupedTable[str, int])
assert_type(by_name.count(), KTable[str, int])
assert_type(by_name.reduce(lambda total, one: total + one, lambda total, one: total - one), KTable[str, int])
assert_type(
    by_name.aggregate(
        lambda: 0.0, lambda key, one, total: total + one, lambda key, one, total: total - one, value=serdes.double
    ),
    KTable[str, float],
)
assert_type(hourly.suppress(Suppressed.until_window_closes()), KTable[Windowed[str], int])
assert_type(names.suppress(Suppressed.until_time_limit(1_000, Buffer(max_records=10))), KTable[str, str])
name_of_store: str | None = names.queryable_store_name

# ------------------------------------------------------------------------------------------------------------- joins

minute = JoinWindows(timedelta(minutes=1))
assert_type(
    orders.join(cents, lambda order, other: order.cents + other, minute, value=serdes.json(Order), store="joined"),
    KStream[str, int],
)
assert_type(
    orders.left_join(cents, lambda key, order, other: (key, other), minute, with_key=True),
    KStream[str, tuple[str, int | None]],
)
assert_type(
    orders.outer_join(cents, lambda order, other: (order, other), minute), KStream[str, tuple[Order | None, int | None]]
)
assert_type(orders.join_asof(cents, lambda order, latest: latest, timedelta(hours=1)), KStream[str, int])
in_time = orders.join_asof(cents, lambda order, latest: latest, 60_000, how="left", grace=1_000)
assert_type(in_time, KStream[str, int | None])
assert_type(in_time.late("right", value=serdes.long), KStream[str, int])
assert_type(hourly.late(key=serdes.string, value=serdes.json(Order)), KStream[str, Order])


threes = orders.group_by_key().windowed_by(CountWindows(3))
assert_type(threes, CountWindowedKStream[str, Order])
assert_type(threes.reduce(lambda one, other: other, close_when=lambda key, order: order.cents > 5), KStream[str, Order])
assert_type(
    threes.aggregate(int, lambda key, order, total: total + order.cents, close_when=lambda key, total: total > 5),
    KStream[str, int],
)


def names_of(cents: list[int]) -> dict[int, str]:
    return {each: str(each) for each in cents}


async def names_later(cents: list[int]) -> dict[int, str]:
    return names_of(cents)


assert_type(
    orders.join_lookup(names_of, lambda order, name: name, on=lambda key, order: order.cents), KStream[str, str]
)
assert_type(
    orders.join_lookup(names_later, lambda order, name: name, on=lambda key, order: order.cents, how="left", retries=2),
    KStream[str, str | None],
)
orders.print("orders", mapper=lambda key, order: f"{key} {order.cents}", every=100)
orders.print_table(5, by_key=True)
customers = builder.global_table("customers", key=serdes.long, value=serdes.string)
assert_type(customers, GlobalKTable[int, str])
assert_type(
    orders.join(customers, lambda order, customer: customer, on=lambda key, order: order.cents), KStream[str, str]
)
assert_type(
    orders.left_join(customers, lambda order, customer: customer, on=lambda key, order: order.cents),
    KStream[str, str | None],
)
totals_by_customer = totals.filter(lambda customer, cents: cents > 0)
assert_type(names.join(totals, lambda name, cents: (name, cents)), KTable[str, tuple[str, int]])
assert_type(names.left_join(totals, lambda name, cents: cents), KTable[str, int | None])
assert_type(names.outer_join(totals, lambda name, cents: (name, cents)), KTable[str, tuple[str | None, int | None]])
people = builder.table("people", key=serdes.long, value=serdes.json(Order))
assert_type(people.join(names, lambda person, name: name, foreign_key=lambda person: person.customer), KTable[int, str])
assert_type(
    people.left_join(names, lambda person, name: name, foreign_key=lambda person: person.customer),
    KTable[int, str | None],
)


def keep_largest() -> Processor[int, Order, Any, Any]:
    return KeepLargest()


class KeepLargest(Processor[int, Order, Any, Any]):
    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self.store: KeyValueStore[int, Order] = context.get_state_store("largest")

    def process(self, record: Record[int, Order]) -> None:
        self.store.put(record.key, record.value)


largest = Store("largest", key=serdes.long, value=serdes.json(Order), logging=False)
builder.add_global_store(largest, "large-orders", keep_largest, key=serdes.long, value=serdes.json(Order))

topology: Topology = builder.build()

# ----------------------------------------------------------------------------------------------------- processor API

by_hand: Topology = (
    TopologyBuilder()
    .add_source("source", "orders", key=serdes.string, value=serdes.json(Order))
    .add_processor("process", Deduplicate, parents="source")
    .add_state_store(Store("seen", key=serdes.string, value=serdes.long))
    .connect("process", "seen")
    .add_read_only_store(
        largest, "large", "large-orders", "keep", keep_largest, key=serdes.long, value=serdes.json(Order)
    )
    .add_sink("sink", "out", parents="process", key=serdes.string, value=serdes.json(Order))
    .build()
)
