"""StreamsBuilder: where a topology begins.

builder = StreamsBuilder()
builder.stream("lines", value=serdes.string).filter(...).to("out")
topology = builder.build()
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, overload

from topology.build.materialize import added_store, as_store, generated_store_name, given_serdes, key_value_store
from topology.build.passes import build
from topology.build.plan import Plan, PlannedSerde, SourceStep, StoreStep, TableSourceStep, TableState
from topology.build.planned import PlannedStream, PlannedTable
from topology.dsl.global_tables import GlobalKTable, add_global_store, add_global_table
from topology.dsl.streams_and_tables import KStream, KTable
from topology.graph.operations import TableSource
from topology.graph.topology import Topology
from topology.spec.codecs import AnySerde, Serde
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import OffsetReset, TimestampExtractor, reset_policy
from topology.spec.names import check_name, in_stable_order, pattern_of_topics
from topology.spec.processor_wrapper import ProcessorSupplier
from topology.spec.stores import Store
from topology.spec.timestamps import timestamp_extractor as extractor_of

K = TypeVar("K")
V = TypeVar("V")

Topics = str | Iterable[str] | re.Pattern[str]


class StreamsBuilder:
    """Collects the steps of a topology. Source: org.apache.kafka.streams.StreamsBuilder."""

    __slots__ = ("_plan",)

    def __init__(self) -> None:
        self._plan = Plan()

    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: Serde[K],
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: Serde[K],
        value: None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: None = None,
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, V]: ...
    @overload
    def stream(
        self,
        topics: Topics,
        *,
        key: None = None,
        value: None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]: ...
    def stream(
        self,
        topics: Topics,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """The records of a topic, of several topics, or of all topics whose full name matches a compiled pattern.

        ``key``, ``value``: serdes; None: the application's default. ``timestamp_extractor``: a name of
        :mod:`topology.spec.timestamps`, or a function ``(record, partition_time_ms)`` that returns epoch milliseconds;
        None: the record's timestamp. ``offset_reset``: where to start without a committed offset; None: as configured
        (``auto.offset.reset``). Streams of the same topics read them once, as the first one says: other serdes,
        extractors or resets are refused.
        """
        site = call_site()
        step = SourceStep(
            name=self._plan.named(None if name is None else check_name(name, "step"), "KSTREAM-SOURCE-"),
            site=site,
            topics=() if isinstance(topics, re.Pattern) else _topics(topics),
            pattern=pattern_of_topics(topics) if isinstance(topics, re.Pattern) else None,
            key=PlannedSerde(key),
            value=PlannedSerde(value),
            timestamp_extractor=extractor_of(timestamp_extractor),
            offset_reset=reset_policy(offset_reset),
        )
        self._plan.add(step)
        return KStream(PlannedStream(self._plan, step, PlannedSerde(key), PlannedSerde(value), frozenset((step.name,))))

    @overload
    def table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Serde[V],
        store: str | Store | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: None = None,
        store: str | Store | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[K, Any]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: None = None,
        value: Serde[V],
        store: str | Store | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[Any, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: None = None,
        value: None = None,
        store: str | Store | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        store: str | Store | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
        offset_reset: OffsetReset | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """A topic as a table: the newest value of each key; a null value deletes, a record without a key is dropped.

        Options as in :meth:`stream`. ``store``: a name or a :class:`Store`; without it the table has a store only if an
        operator needs to read it.
        """
        plan, wanted, site = self._plan, as_store(store), call_site()
        topics = _topics(topic)
        given = None if name is None else check_name(name, "step")
        store_name = wanted.name or generated_store_name(plan, f"{topic}-")
        key, value = given_serdes(wanted, key, value, "table")
        source_name = plan.named(None if given is None else f"{given}-source", "KSTREAM-SOURCE-")
        node = plan.named(given, "KTABLE-SOURCE-")
        own_key, own_value = PlannedSerde(key), PlannedSerde(value)
        table = TableState(
            kind="source",
            name=node,
            store=key_value_store(wanted, store_name, own_key, own_value),
            materialized=wanted.name is not None,
            make=lambda own: TableSource(store=own),
        )
        step = TableSourceStep(
            name=node,
            site=site,
            source_name=source_name,
            table=table,
            topics=topics,
            key=PlannedSerde(key),
            value=PlannedSerde(value),
            timestamp_extractor=extractor_of(timestamp_extractor),
            offset_reset=reset_policy(offset_reset),
        )
        plan.add(step)
        return KTable(PlannedTable(plan, step, table, own_key, own_value, frozenset((source_name,))))

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Serde[V],
        store: str | Store | None = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]: ...
    def global_table(
        self,
        topic: str,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """A topic as a table of which every instance holds a full copy: see :mod:`topology.dsl.global_tables`.

        A null value deletes a row, a record without a key is dropped. The table always has a store, without a
        changelog: if the store is lost the topic is read again, so it should be compacted and its records should not
        expire.
        """
        return GlobalKTable(add_global_table(self._plan, topic, store, key, value, name))

    def add_global_store(
        self,
        store: Store,
        topic: str,
        supplier: ProcessorSupplier,
        *,
        key: AnySerde = None,
        value: AnySerde = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Adds a store that every instance fills from all partitions of ``topic``, with the processor of ``supplier()``.

        Every processor may read it by name, without being connected. The processor may get records again after a restart,
        so its updates must be idempotent. Returns the builder.
        """
        if not isinstance(store, Store):
            raise TopologyError(f"add_global_store() takes a Store, not {store!r}", call_site())
        add_global_store(self._plan, store, topic, supplier, (key, value), name)
        return self

    def add_state_store(self, store: Store) -> StreamsBuilder:
        """Adds a store for processors, which refer to it with ``process(..., stores=[name])``. Returns the builder.

        Adding an equal store again changes nothing.
        """
        if not isinstance(store, Store):
            raise TopologyError(f"add_state_store() takes a Store, not {store!r}", call_site())
        planned = added_store(store)
        self._plan.add(StoreStep(name=f"store {planned.name}", site=call_site(), store=planned))
        return self

    def build(self, config: Mapping[str, object] | None = None, epoch: int = 0) -> Topology:
        """The topology of all steps so far. May be called again.

        ``config``: the application's configuration, for the keys that change a topology (see
        :meth:`Topology.configured`; also ``topology.optimization``, ``ensure.explicit.internal.resource.naming``, and
        ``processor.wrapper.class``, a :class:`topology.ProcessorWrapper`, which may wrap each processor node).
        ``epoch``: the topology epoch of KIP-1071. Raises TopologyError, whose message names the line of the program.
        """
        return build(self._plan, config, epoch)


def _topics(topics: str | Iterable[str]) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) else in_stable_order(topics)
    if not names:
        raise TopologyError("a stream needs a topic: the list of topics is empty", call_site())
    return tuple(dict.fromkeys(check_name(name, "topic") for name in names))
