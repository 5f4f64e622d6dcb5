"""A program that joins orders with a global table, and looks into a global store that a processor of its own fills."""

from __future__ import annotations

from typing import Any

from topology import Processor, ProcessorContext, Record, Store, StreamsBuilder, serdes

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}
ORDERS, COUNTRIES, RATES, PRICED = "world-orders", "world-countries", "world-rates", "world-priced"


class Summed(Processor[str, str, None, None]):
    """Adds up: what it has depends on each record, and not only on the last one of a key."""

    def init(self, context: ProcessorContext[None, None]) -> None:
        self.rates = context.get_state_store("rates")

    def process(self, record: Record[str, str]) -> None:
        before = self.rates.get(record.key) or "0"
        self.rates.put(record.key, str(int(before) + int(record.value)))


class Priced(Processor[str, str, str, str]):
    def init(self, context: ProcessorContext[str, str]) -> None:
        self.context = context
        self.rates = context.get_state_store("rates")

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(f"{record.value} at {self.rates.get(record.value[:2])}"))


def latest(before: str, now: str) -> str:
    return now


builder = StreamsBuilder()
countries = builder.global_table(COUNTRIES, store="countries", **TEXT)
builder.add_global_store(Store("rates", logging=False, **TEXT), RATES, Summed, **TEXT)
named = builder.stream(ORDERS, **TEXT).join(countries, "{} to {}".format, on=lambda key, order: order[:2])
named.group_by_key().count(store="per-customer")
priced = named.process_values(Priced)
priced.group_by_key().reduce(latest, store=Store("last-price", **TEXT))
priced.to(PRICED, **TEXT)
topology = builder.build()
