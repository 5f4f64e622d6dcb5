"""Foreign-key joins of tables: the steps on both sides, and the two internal topics between them.

1. Rows of the left table subscribe to rows of the right table: the row's key and the hash of its value are sent to the
   partition of its foreign key, through the registration topic. Subscriptions are stored there by foreign key.
2. Each subscription, and each change of the right row, is answered through the response topic, in the partition of the
   left row. The response is joined with the left row if that row has not changed since it subscribed.
3. Both tables send old values: when a row's foreign key changes, its old subscription must be deleted.

Source: KTableImpl.doJoinOnForeignKey of Kafka Streams (KIP-213).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

from topology.build.materialize import key_value_store, store_spec
from topology.build.plan import (
    OperatorStep,
    Plan,
    PlannedSerde,
    PlannedStore,
    SinkStep,
    SourceStep,
    Step,
    TableState,
    TableStep,
)
from topology.build.planned import PlannedTable
from topology.graph.nodes import Side
from topology.graph.operations import Function, Operation, TableSource
from topology.graph.operations.joins import (
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from topology.graph.partitioned_bytes import to_its_partition
from topology.spec.codecs import bytes_
from topology.spec.errors import CallSite
from topology.spec.stores import Store

_PREFIX = "KTABLE-FK-JOIN-"
_REGISTRATION = f"{_PREFIX}SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = f"{_PREFIX}SUBSCRIPTION-PROCESSOR-"
_RESPONSE = f"{_PREFIX}SUBSCRIPTION-RESPONSE-"
_OUTPUT = f"{_PREFIX}OUTPUT-"
_BYTES = PlannedSerde(bytes_)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin:
    """What the program says of a foreign-key join. ``key``, ``value``: what is known of the result's serdes."""

    foreign_key: Function
    joiner: Function
    left: bool
    name: str | None
    store: Store
    key: PlannedSerde
    value: PlannedSerde
    site: CallSite
    other_partitioner: Function | None = None


def _by_key(partitioner: Function | None) -> Function | None:
    """The program's partitioner, which knows the foreign key only: the value is a subscription."""
    if partitioner is None:
        return None

    def chosen(topic: str, key: Any, value: Any, partitions: int) -> Any:
        return partitioner(topic, key, None, partitions)

    # Messages name the program's function.
    return update_wrapper(chosen, partitioner, assigned=(), updated=())


def add_foreign_key_join(left: PlannedTable, right: PlannedTable, join: ForeignKeyJoin) -> PlannedTable:
    """Adds the steps of a join to the plan of both tables, and gives the result."""
    return _Steps(left, right, join).add()


class _Steps:
    def __init__(self, left: PlannedTable, right: PlannedTable, join: ForeignKeyJoin) -> None:
        self.plan: Plan = left.plan
        self.left, self.right, self.join = left, right, join

    def add(self) -> PlannedTable:
        left, right, join, plan = self.left, self.right, self.join, self.plan
        right.table.send_old_values(force=True)
        left.table.send_old_values(force=True)
        source = self._registration()
        plan.copartitioned.append((right.sources | {source.name}, join.site))
        joined, foreign = self._subscriptions(source)
        response = self._response(joined, foreign)
        sources = left.sources | {response.name}
        plan.copartitioned.append((sources, join.site))
        resolver = self._operator(
            self._named("-subscription-response-resolver", f"{_PREFIX}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"),
            (response,),
            ResponseJoin(table=left.table.name, joiner=join.joiner, left=join.left),
            stores=left.table.materialize(),
            serdes={"value": left.value, "other_value": right.value},
        )
        step, table = self._result(resolver)
        return PlannedTable(plan, step, table, join.key, join.value, sources)

    def _named(self, suffix: str, prefix: str) -> str:
        return self.plan.suffixed(self.join.name, suffix, prefix)

    def _registration(self) -> SourceStep:
        left, right = self.left, self.right
        topic = self._named("-subscription-registration", _REGISTRATION) + "-topic"
        send = self._operator(
            self._named("-subscription-registration-processor", _REGISTRATION),
            (left.step,),
            SubscriptionSend(foreign_key=self.join.foreign_key, left=self.join.left),
            serdes={"key": left.key, "value": left.value},
        )
        sink = self._sink(
            self._named("-subscription-registration-sink", "KTABLE-SINK-"),
            (send,),
            topic,
            right.key,
            _by_key(self.join.other_partitioner),
        )
        return self._source(self._named("-subscription-registration-source", "KTABLE-SOURCE-"), sink, topic, right.key)

    def _subscriptions(self, source: SourceStep) -> tuple[OperatorStep, OperatorStep]:
        right = self.right
        name = self._named("-subscription-store", f"{_PREFIX}SUBSCRIPTION-STATE-STORE-")
        spec = store_spec(Store(name, caching=False), name, bytes_, bytes_)
        receive = self._operator(
            self._named("-subscription-receive", _PROCESSOR),
            (source,),
            SubscriptionReceive(store=name),
            stores=(name,),
            own_stores=(PlannedStore(spec, _BYTES, _BYTES),),
        )
        joined = self._operator(
            self._named("-subscription-join-foreign", _PROCESSOR),
            (receive,),
            SubscriptionJoin(table=right.table.name),
            stores=right.table.materialize(),
            serdes={"value": right.value},
        )
        foreign = self._operator(
            self._named("-foreign-join-subscription", _PROCESSOR),
            (right.step,),
            ForeignTableJoin(store=name),
            stores=(name,),
            serdes={"key": right.key, "value": right.value},
        )
        return joined, foreign

    def _response(self, joined: Step, foreign: Step) -> SourceStep:
        topic = self._named("-subscription-response", _RESPONSE) + "-topic"
        sink = self._sink(
            self._named("-subscription-response-sink", "KTABLE-SINK-"),
            (joined, foreign),
            topic,
            _BYTES,
            to_its_partition,
        )
        return self._source(self._named("-subscription-response-source", "KTABLE-SOURCE-"), sink, topic, self.left.key)

    def _result(self, resolver: Step) -> tuple[TableStep, TableState]:
        join, plan = self.join, self.plan
        node = self._named("-result", _OUTPUT)
        name = join.store.name or plan.number(f"{_OUTPUT}STATE-STORE-")
        table = TableState(
            kind="source",
            name=node,
            store=key_value_store(join.store, name, join.key, join.value),
            materialized=join.store.name is not None,
            make=lambda own: TableSource(store=own),
        )
        step = TableStep(name=node, site=join.site, parents=(resolver,), table=table)
        plan.add(step)
        return step, table

    # --------------------------------------------------------------------------------------------------------- steps

    def _operator(
        self,
        name: str,
        parents: tuple[Step, ...],
        operation: Operation,
        *,
        stores: tuple[str, ...] = (),
        own_stores: tuple[PlannedStore, ...] = (),
        serdes: dict[Side, PlannedSerde] | None = None,
    ) -> OperatorStep:
        step = OperatorStep(
            name=name,
            site=self.join.site,
            parents=parents,
            operation=operation,
            stores=stores,
            own_stores=own_stores,
            serdes=serdes or {},
        )
        self.plan.add(step)
        return step

    def _sink(
        self,
        name: str,
        parents: tuple[Step, ...],
        topic: str,
        key: PlannedSerde,
        partitioner: Function | None = None,
    ) -> SinkStep:
        step = SinkStep(
            name=name,
            site=self.join.site,
            parents=parents,
            topic=topic,
            key=key,
            value=_BYTES,
            partitioner=partitioner,
            repartition=True,
        )
        self.plan.add(step)
        return step

    def _source(self, name: str, sink: SinkStep, topic: str, key: PlannedSerde) -> SourceStep:
        step = SourceStep(
            name=name,
            site=self.join.site,
            parents=(sink,),
            topics=(topic,),
            key=key,
            value=_BYTES,
            repartition=True,
            is_shared=False,
        )
        self.plan.add(step)
        return step
