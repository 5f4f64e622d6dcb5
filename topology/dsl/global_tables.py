"""Global tables: topics that every instance reads completely, for lookups by any key.

1. A global table belongs to no task: each instance reads all partitions before its tasks start, and then keeps the
   table up to date, independently of the tasks' progress.
2. A stream can therefore be joined with it by any key, without a repartition topic and with any partition count.

Source: org.apache.kafka.streams.kstream.GlobalKTable.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from topology.build.materialize import (
    added_store,
    as_store,
    generated_store_name,
    given_serdes,
    global_store,
    key_value_store,
)
from topology.build.plan import GlobalStep, Plan, PlannedSerde, PlannedStore
from topology.build.planned import PlannedGlobalTable
from topology.graph.operations import Operation, Process, TableSource
from topology.spec.codecs import AnySerde
from topology.spec.errors import call_site
from topology.spec.functions import NOTHING, check_function
from topology.spec.names import check_name
from topology.spec.processor_wrapper import ProcessorSupplier
from topology.spec.stores import Store

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Generic[K, V]):
    """A global table with keys of type ``K`` and values of type ``V``."""

    __slots__ = ("_planned",)

    def __init__(self, planned: PlannedGlobalTable) -> None:
        self._planned = planned

    @property
    def queryable_store_name(self) -> str:
        """The name of the store for queries."""
        return self._planned.store


def add_global_table(
    plan: Plan,
    topic: str,
    store: str | Store | None,
    key: AnySerde,
    value: AnySerde,
    name: str | None,
) -> PlannedGlobalTable:
    """Adds the step of a global table."""
    wanted = as_store(store)
    store_name = wanted.name or generated_store_name(plan, f"{topic}-")
    key, value = given_serdes(wanted, key, value, "global_table")
    planned = global_store(key_value_store(wanted, store_name, PlannedSerde(key), PlannedSerde(value)))
    _add(plan, topic, planned, TableSource(store=store_name), (key, value), name)
    return PlannedGlobalTable(plan, store_name)


def add_global_store(
    plan: Plan,
    store: Store,
    topic: str,
    supplier: ProcessorSupplier,
    serdes: tuple[AnySerde, AnySerde],
    name: str | None,
    source_name: str | None = None,
) -> None:
    """Adds the step of a global store that a processor of the program's fills."""
    check_function(supplier, "add_global_store", NOTHING)
    _add(plan, topic, global_store(added_store(store)), Process(supplier=supplier), serdes, name, source_name)


def _add(
    plan: Plan,
    topic: str,
    planned: PlannedStore,
    operation: Operation,
    serdes: tuple[AnySerde, AnySerde],
    name: str | None,
    source_name: str | None = None,
) -> None:
    given = None if name is None else check_name(name, "step")
    if source_name is None:
        source_name = plan.named(None if given is None else f"{given}-source", "KSTREAM-SOURCE-")
        given = plan.named(given, "KTABLE-SOURCE-")
    assert given is not None
    step = GlobalStep(
        name=given,
        site=call_site(),
        source_name=source_name,
        operation=operation,
        store=planned,
        topics=(check_name(topic, "topic"),),
        key=PlannedSerde(serdes[0]),
        value=PlannedSerde(serdes[1]),
    )
    plan.add(step)
