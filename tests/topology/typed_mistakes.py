"""Mistakes that mypy and pyright find; in every line that ends with "wrong", and in no other."""

from __future__ import annotations

from dataclasses import dataclass

from topology import (
    CountWindows,
    FixedKeyProcessor,
    JoinWindows,
    KStream,
    KTable,
    Processor,
    ProcessorContext,
    Record,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)


@dataclass
class Order:
    customer: str
    cents: int


class Prices(Processor[str, Order, str, int]):
    def init(self, context: ProcessorContext[str, int]) -> None:
        self.context = context

    def process(self, record: Record[str, Order]) -> None:
        self.context.forward(record.with_value(record.value.cents))
        self.context.forward(record)  # wrong


def prices() -> Processor[str, Order, str, int]:
    return Prices()


def lengths() -> FixedKeyProcessor[str, str, int]:
    raise LookupError


def both(order: Order, name: str) -> str:
    return order.customer + name


def add_cents(customer: str, order: Order, total: int) -> int:
    return total + order.cents


def no_text() -> str:
    return ""


def cents_of(order: Order) -> int:
    return order.cents


def customer_of(order: Order) -> str:
    return order.customer


def of_string(key: str, order: Order) -> str:
    return key


def names_of(keys: list[int]) -> dict[int, str]:
    return dict.fromkeys(keys, "")


async def names_later(keys: list[int]) -> dict[int, str]:
    return dict.fromkeys(keys, "")


def with_name(order: Order, name: str) -> str:
    return order.customer + name


def is_full(key: int, total: int) -> bool:
    return total > key


builder = StreamsBuilder()
orders = builder.stream("orders", key=serdes.string, value=serdes.json(Order))
names = builder.table("names", key=serdes.string, value=serdes.string)
by_number = builder.table("by-number", key=serdes.long, value=serdes.string)
numbers = builder.stream("numbers", key=serdes.long, value=serdes.json(Order))
texts = builder.stream("texts", key=serdes.string, value=serdes.string)
world = builder.global_table("world", key=serdes.long, value=serdes.string)
minute = JoinWindows(60_000)

# A key of another type on the other side of a join.
orders.join(by_number, both)  # wrong
orders.left_join(by_number, lambda order, name: name)  # wrong
orders.join(numbers, lambda order, other: 0, minute)  # wrong
orders.join_asof(numbers, lambda order, other: 0, 60_000)  # wrong
names.join(by_number, lambda one, other: one)  # wrong
names.outer_join(by_number, lambda one, other: one)  # wrong
orders.merge(numbers)  # wrong
orders.merge(texts)  # wrong
# A value of another type than the joiner takes; a value that may be None.
texts.join(names, both)  # wrong
orders.left_join(names, both)  # wrong
# A key that the table does not have.
orders.join(world, both, on=of_string)  # wrong
people = builder.table("people", key=serdes.string, value=serdes.json(Order))
people.join(names, both, foreign_key=cents_of)  # wrong
# A stream without windows, a table with.
orders.join(texts, both)  # wrong
orders.join(names, both, minute)  # wrong
# Serdes of another type than what is written with them.
orders.group_by(lambda key, order: order.customer, key=serdes.long)  # wrong
orders.group_by_key().aggregate(lambda: 0, add_cents, value=serdes.string)  # wrong
orders.group_by_key().aggregate(no_text, add_cents)  # wrong
orders.join(names, both, key=serdes.long)  # wrong
orders.join(texts, both, minute, value=serdes.long)  # wrong
orders.group_by_key().count(value=serdes.string)  # wrong
names.map_values(len, value=serdes.string)  # wrong
# What is no value of the stream.
orders.map_values(lambda order: order.missing)  # wrong
orders.filter(lambda order: True)  # wrong
orders.to(7)  # wrong
orders.process(prices).map_values(customer_of)  # wrong
orders.process_values(lengths)  # wrong
orders.group_by_key().windowed_by(60_000)  # wrong
names.suppress(minute)  # wrong
windowed = orders.group_by_key().windowed_by(TimeWindows(60_000)).count()
plain: KTable[str, int] = windowed  # wrong
words: KStream[str, str] = orders  # wrong
windowed.suppress(Suppressed.until_window_closes()).to_stream().map_values(customer_of)  # wrong
# A lookup of other keys than those that are asked for; a joiner of other values; what is found is no number.
orders.join_lookup(names_of, with_name, on=of_string)  # wrong
orders.join_lookup(names_later, with_name, on=of_string)  # wrong
texts.join_lookup(names_of, with_name, on=lambda key, text: 1)  # wrong
orders.join_lookup(names_of, add_cents, on=lambda key, order: 1)  # wrong
orders.join_lookup(names_of, with_name, on=lambda key, order: order.cents, how="left")  # wrong
orders.join_lookup(names_of, with_name, on=lambda key, order: order.cents, how="outer")  # wrong
looked_up: KStream[str, int] = orders.join_lookup(names_of, with_name, on=lambda key, order: 1)  # wrong
# Count windows.
threes = orders.group_by_key().windowed_by(CountWindows(3))
threes.aggregate(lambda: 0, add_cents, value=serdes.string)  # wrong
threes.aggregate(no_text, add_cents)  # wrong
threes.aggregate(lambda: 0, add_cents, close_when=is_full)  # wrong
threes.reduce(both)  # wrong
totals: KTable[str, int] = threes.aggregate(lambda: 0, add_cents)  # wrong
orders.group_by_key().windowed_by(CountWindows("3"))  # wrong
