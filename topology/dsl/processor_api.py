"""The Processor API: a topology built from named sources, processors, stores and sinks.

    builder = TopologyBuilder()
    builder.add_source("lines", "input", key=serdes.string, value=serdes.string)
    builder.add_processor("count", Count, parents="lines")
    builder.add_state_store(Store("counts", key=serdes.string, value=serdes.long), "count")
    builder.add_sink("out", "output", parents="count", key=serdes.string, value=serdes.long)
    topology = builder.build()

1. A node may only refer to nodes and stores added before it, so the order of the calls is the order of the nodes.
2. Nothing is repartitioned automatically: to bring the records of a key together, write them to a topic and read it.

Source: org.apache.kafka.streams.Topology.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from topology.build.materialize import added_store, read_only_store
from topology.build.passes import build
from topology.build.plan import OperatorStep, Plan, PlannedSerde, PlannedStore, SinkStep, SourceStep, Step, StoreStep
from topology.dsl.global_tables import add_global_store
from topology.graph.operations import Process
from topology.graph.topology import Topology
from topology.spec.codecs import AnySerde
from topology.spec.errors import NameInUseError, TopologyError, UnknownStoreError, call_site
from topology.spec.functions import (
    NOTHING,
    OF_PARTITIONER,
    OF_TOPIC,
    OffsetReset,
    Partitioner,
    TimestampExtractor,
    TopicExtractor,
    check_function,
    reset_policy,
)
from topology.spec.names import check_name, in_stable_order, pattern_of_topics
from topology.spec.processor_wrapper import ProcessorSupplier
from topology.spec.stores import Store
from topology.spec.timestamps import timestamp_extractor as extractor_of

Names = str | Iterable[str]


class TopologyBuilder:
    """Collects the nodes of a topology. Every method returns the builder. Source: org.apache.kafka.streams.Topology."""

    __slots__ = ("_plan", "_steps", "_stores")

    def __init__(self) -> None:
        self._plan = Plan()
        self._steps: dict[str, Step] = {}
        self._stores: dict[str, PlannedStore] = {}

    def add_source(
        self,
        name: str,
        topics: Names | re.Pattern[str],
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
    ) -> TopologyBuilder:
        """Reads a topic, several topics, or all topics whose full name matches a compiled pattern.

        Options as in :meth:`topology.StreamsBuilder.stream`. A topic can be read by one source only.
        """
        pattern = topics if isinstance(topics, re.Pattern) else None
        names = () if isinstance(topics, re.Pattern) else _names(topics)
        if pattern is None and not names:
            raise TopologyError(f"source {name!r} needs a topic: the list of topics is empty", call_site())
        step = SourceStep(
            name=self._free(name),
            site=call_site(),
            topics=tuple(dict.fromkeys(check_name(topic, "topic") for topic in names)),
            pattern=None if pattern is None else pattern_of_topics(pattern),
            key=PlannedSerde(key),
            value=PlannedSerde(value),
            timestamp_extractor=extractor_of(timestamp_extractor),
            offset_reset=reset_policy(offset_reset),
            is_shared=False,
        )
        self._add(step)
        return self

    def add_processor(
        self,
        name: str,
        supplier: ProcessorSupplier,
        *,
        parents: Names,
        stores: Iterable[str | Store] = (),
    ) -> TopologyBuilder:
        """Runs user code after ``parents``: ``supplier()`` makes one :class:`topology.Processor` for each task.

        ``stores``: names of stores added before, or stores to add.
        """
        check_function(supplier, "add_processor", NOTHING)
        step = OperatorStep(
            name=self._free(name),
            site=call_site(),
            parents=self._parents(name, parents),
            operation=Process(supplier=supplier),
        )
        self._add(step)
        for store in in_stable_order(stores):
            if isinstance(store, Store):
                self.add_state_store(store, name)
            else:
                self.connect(name, store)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor[Any, Any],
        *,
        parents: Names,
        key: AnySerde = None,
        value: AnySerde = None,
        partitioner: Partitioner[Any, Any] | None = None,
    ) -> TopologyBuilder:
        """Writes what ``parents`` forward to ``topic``, or to the topic that ``topic(key, value, context)`` returns.

        ``partitioner(topic, key, value, partitions)`` returns a partition or several (an empty list drops the record);
        None: by the hash of the key's bytes.
        """
        if not isinstance(topic, str):
            check_function(topic, "add_sink", OF_TOPIC)
        if partitioner is not None:
            check_function(partitioner, "add_sink", OF_PARTITIONER)
        step = SinkStep(
            name=self._free(name),
            site=call_site(),
            parents=self._parents(name, parents),
            topic=check_name(topic, "topic") if isinstance(topic, str) else None,
            topic_extractor=None if isinstance(topic, str) else topic,
            key=PlannedSerde(key),
            value=PlannedSerde(value),
            partitioner=partitioner,
        )
        self._add(step)
        return self

    def add_state_store(self, store: Store, processors: Names = ()) -> TopologyBuilder:
        """Adds a store and connects it to the named processors. Adding an equal store again changes nothing."""
        if not isinstance(store, Store):
            raise TopologyError(f"add_state_store() takes a Store, not {store!r}", call_site())
        self._add_store(added_store(store))
        for processor in _names(processors):
            self.connect(processor, added_store(store).name)
        return self

    def add_global_store(
        self,
        store: Store,
        *,
        source: str,
        topic: str,
        processor: str,
        supplier: ProcessorSupplier,
        key: AnySerde = None,
        value: AnySerde = None,
    ) -> TopologyBuilder:
        """Adds a store that every instance fills from all of ``topic``: :meth:`topology.StreamsBuilder.add_global_store`.

        ``source`` and ``processor`` name its two nodes.
        """
        if not isinstance(store, Store):
            raise TopologyError(f"add_global_store() takes a Store, not {store!r}", call_site())
        add_global_store(self._plan, store, topic, supplier, (key, value), self._free(processor), self._free(source))
        return self

    def connect(self, processor: str, stores: Names) -> TopologyBuilder:
        """Connects a processor to stores that were added before (``connectProcessorAndStateStores``)."""
        step = self._steps.get(processor)
        if not isinstance(step, OperatorStep):
            raise TopologyError(f"there is no processor {processor!r} to connect to a store: add it first", call_site())
        for store in _names(stores):
            if store not in self._stores:
                raise UnknownStoreError(f"there is no store {store!r} to connect to: add it first", call_site())
            step.stores = tuple(dict.fromkeys((*step.stores, store)))
        return self

    def add_read_only_store(
        self,
        store: Store,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: ProcessorSupplier,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> TopologyBuilder:
        """Adds a store with the contents of a topic: the processor of ``supplier()`` writes each record into the store.

        The topic is the store's changelog, so the processor must put every record unchanged. Other processors of the
        same subtopology may read the store, and none may write to it (``addReadOnlyStateStore``).
        """
        planned = read_only_store(store, check_name(topic, "topic"))
        self.add_source(source_name, topic, key=key, value=value, timestamp_extractor=timestamp_extractor)
        self.add_processor(processor_name, supplier, parents=source_name)
        self._add_store(planned)
        return self.connect(processor_name, planned.name)

    def build(self, config: Mapping[str, object] | None = None, epoch: int = 0) -> Topology:
        """The topology of everything added. See :meth:`topology.StreamsBuilder.build`."""
        return build(self._plan, config, epoch)

    # ---------------------------------------------------------------------------------------------------- internal

    def _free(self, name: str) -> str:
        other = self._steps.get(check_name(name, "step"))
        if other is not None:
            raise NameInUseError(f"the name {name!r} is taken by the node at {other.site}: choose another", call_site())
        return name

    def _add(self, step: Step) -> None:
        self._steps[step.name] = step
        self._plan.add(step)

    def _parents(self, name: str, parents: Names) -> tuple[Step, ...]:
        found: list[Step] = []
        for parent in _names(parents):
            step = self._steps.get(parent)
            if step is None or isinstance(step, SinkStep):
                what = "is a sink, which forwards nothing" if step is not None else "does not exist: add it first"
                raise TopologyError(f"the parent {parent!r} of {name!r} {what}", call_site())
            found.append(step)
        if not found:
            raise TopologyError(f"{name!r} needs a parent", call_site())
        return tuple(found)

    def _add_store(self, planned: PlannedStore) -> None:
        if planned.name not in self._stores:
            self._stores[planned.name] = planned
            self._plan.add(StoreStep(name=f"store {planned.name}", site=call_site(), store=planned))
        elif self._stores[planned.name] != planned:
            site = self._stores[planned.name].spec.site
            raise NameInUseError(
                f"another store {planned.name!r} is added at {site}: choose another name, or share one Store",
                call_site(),
            )


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else in_stable_order(names)
