"""The first pass of a build: puts the steps of a plan in order, and makes the nodes of the graph for each step."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from topology.build.plan import (
    GlobalStep,
    OperatorStep,
    PlannedSerde,
    PlannedStore,
    RepartitionStep,
    SinkStep,
    SourceStep,
    SplitStep,
    Step,
    StoreStep,
    StreamJoinStep,
    TableJoinStep,
    TableSourceStep,
    TableStep,
)
from topology.graph.nodes import Node, OpenSerde, ProcessorNode, Side, SinkNode, SourceNode, StoreSpec
from topology.graph.operations import Branch, KeyNotNull, Operation, PassThrough
from topology.spec.errors import CallSite, CycleError, NameInUseError
from topology.spec.row_versions import versioned_values


def in_order(steps: tuple[Step, ...], merged: Mapping[str, str]) -> Iterable[Step]:
    """Parents first; among those whose parents are done, by order. Raises CycleError where that never ends."""
    by_order = {step.order: step for step in steps}
    by_name = {step.name: step for step in steps}
    waiting: dict[int, set[int]] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for step in steps:
        parents = [by_name[merged[parent.name]] if parent.name in merged else parent for parent in step.parents]
        waiting[step.order] = {parent.order for parent in parents}
        for parent in waiting[step.order]:
            children[parent].append(step.order)
    ready = [order for order, parents_left in waiting.items() if not parents_left]
    heapq.heapify(ready)
    while ready:
        order = heapq.heappop(ready)
        yield by_order[order]
        for child in children[order]:
            waiting[child].discard(order)
            if not waiting[child]:
                heapq.heappush(ready, child)
    stuck = next((by_order[order] for order, parents_left in waiting.items() if parents_left), None)
    if stuck is not None:
        raise CycleError(f"the step {stuck.name!r} comes after itself", stuck.site)


class Layout:
    """Nodes as they are added, without their children yet."""

    def __init__(self, merged: Mapping[str, str]) -> None:
        self.merged = merged
        self.nodes: list[Node] = []
        self.stores: dict[str, StoreSpec] = {}
        self.shared: dict[str, bool] = {}
        self._given: dict[str, StoreSpec] = {}
        self._kept_as: dict[str, StoreSpec] = {}
        self.repartitions: dict[str, int | None] = {}
        self.open_serdes: list[OpenSerde] = []

    def add(self, step: Step) -> None:
        parents = tuple(dict.fromkeys(self.merged.get(parent.name, parent.name) for parent in step.parents))
        _ADDERS[type(step)](self, step, parents)

    def _operator(self, step: OperatorStep, parents: tuple[str, ...]) -> None:
        for store in step.own_stores:
            self._store(store)
        operation = step.operation
        if step.serdes:
            # Only operations that have such fields are given serdes.
            known: dict[str, Any] = {f"{side}_serde": planned.serde for side, planned in step.serdes.items()}
            operation = replace(operation, **known)
        for side, planned in step.serdes.items():
            self._open_side(step.name, side, planned, step.site)
        self._processor(step, step.name, operation, parents, step.stores)

    def _global(self, step: GlobalStep) -> None:
        self._source(step, step.source_name)
        self._store(step.store)
        self._processor(step, step.name, step.operation, (step.source_name,), (step.store.name,))

    def _split(self, step: SplitStep, parents: tuple[str, ...]) -> None:
        operation = Branch(predicates=tuple(step.predicates), children=tuple(step.branches))
        self._processor(step, step.name, operation, parents)

    def _table_source(self, step: TableSourceStep) -> None:
        self._source(step, step.source_name)
        self._table(step, (step.source_name,))

    def _sink(self, step: SinkStep, parents: tuple[str, ...]) -> None:
        self.nodes.append(
            SinkNode(
                name=step.name,
                topic=step.topic,
                topic_extractor=step.topic_extractor,
                key_serde=step.key.serde,
                value_serde=step.value.serde,
                partitioner=step.partitioner,
                repartition=step.repartition,
                parents=parents,
                site=step.site,
            )
        )
        self._open(step.name, step.key, step.value, step.site)

    def finished(self) -> tuple[Node, ...]:
        children = children_of(self.nodes)
        return tuple(
            node if isinstance(node, SinkNode) else replace(node, children=tuple(children[node.name]))
            for node in self.nodes
        )

    def _processor(
        self,
        step: Step,
        name: str,
        operation: Operation,
        parents: tuple[str, ...],
        stores: tuple[str, ...] = (),
        sends_old_values: bool = False,
    ) -> None:
        self.nodes.append(
            ProcessorNode(
                name=name,
                operation=operation,
                stores=stores,
                parents=parents,
                sends_old_values=sends_old_values,
                late=step.late if name == step.name else None,
                site=step.site,
            )
        )

    def _source(self, step: SourceStep, name: str) -> None:
        if step.repartition:
            self.repartitions.update(dict.fromkeys(step.topics))
        self.nodes.append(
            SourceNode(
                name=name,
                topics=step.topics,
                pattern=step.pattern,
                key_serde=step.key.serde,
                value_serde=step.value.serde,
                timestamp_extractor=step.timestamp_extractor,
                offset_reset=step.offset_reset,
                repartition=step.repartition,
                is_global=isinstance(step, GlobalStep),
                site=step.site,
            )
        )
        self._open(name, step.key, step.value, step.site)

    def _table(self, step: TableSourceStep | TableStep, parents: tuple[str, ...]) -> None:
        table = step.table
        own: tuple[str, ...] = ()
        used: tuple[str, ...] = ()
        if isinstance(step, TableStep):
            used = step.stores
            for store in step.own_stores:
                self._store(store)
        if table.materialized and table.store is not None:
            self._store(table.store)
            own = (table.store.name,)
        operation = table.make(own[0] if own else None)
        self._processor(step, step.name, operation, parents, own + used, table.sends_old_values)

    def _table_join(self, step: TableJoinStep) -> None:
        left, right = step.parents
        old = step.table.sends_old_values
        self._processor(step, step.this_name, step.this_operation, (left.name,), step.other_stores, old)
        self._processor(step, step.other_name, step.other_operation, (right.name,), step.this_stores, old)
        self._table(step, (step.this_name, step.other_name))

    def _stream_join(self, step: StreamJoinStep) -> None:
        left, right = step.parents
        for store in step.own_stores:
            self._store(store)
        self._processor(step, step.this_name, step.this_operation, (left.name,), step.this_stores)
        self._processor(step, step.other_name, step.other_operation, (right.name,), step.other_stores)
        self._processor(step, step.name, step.merge_operation, (step.this_name, step.other_name))

    def _repartition(self, step: RepartitionStep, parents: tuple[str, ...]) -> None:
        if self.repartitions.setdefault(step.topic, step.partitions) != step.partitions or any(
            node.name == step.sink_name for node in self.nodes
        ):
            raise NameInUseError(
                f"the repartition topic {step.topic!r} already exists: give this operator another name=", step.site
            )
        if step.filter_name is not None:
            self._processor(step, step.filter_name, PassThrough() if step.keeps_null_keys else KeyNotNull(), parents)
            parents = (step.filter_name,)
        self.nodes.append(
            SinkNode(
                name=step.sink_name,
                topic=step.topic,
                key_serde=step.key.serde,
                value_serde=step.value.serde,
                partitioner=step.partitioner,
                repartition=True,
                parents=parents,
                site=step.site,
            )
        )
        self.nodes.append(
            SourceNode(
                name=step.name,
                topics=(step.topic,),
                key_serde=step.key.serde,
                value_serde=step.value.serde,
                repartition=True,
                site=step.site,
            )
        )
        self._open(step.sink_name, step.key, step.value, step.site)
        self._open(step.name, step.key, step.value, step.site)

    def _store(self, store: PlannedStore) -> None:
        spec = store.spec
        other = self._given.setdefault(spec.name, spec)
        if other is spec:
            self._check_kept_as(spec)
            value = _with_versions(spec, store.value)
            self.stores[spec.name] = spec if value is store.value else replace(spec, value_serde=value.serde)
            self._open(spec.name, store.key, value, spec.site, of_store=True)
            self.shared[spec.name] = store.shared
        elif other != spec or not (store.shared and self.shared[spec.name]):
            raise NameInUseError(
                f"another store {spec.name!r} is added at {other.site}: choose another name, or share one Store",
                spec.site,
            )

    def _check_kept_as(self, spec: StoreSpec) -> None:
        """Two stores can't have one changelog."""
        other = self._kept_as.setdefault(spec.kept_as, spec)
        if other is spec:
            return
        renamed, named = (spec, other) if spec.renamed_from is not None else (other, spec)
        what = "is renamed from it too" if named.renamed_from is not None else "has that name"
        raise NameInUseError(
            f"store {renamed.name!r} is renamed from {spec.kept_as!r}, and store {named.name!r} at {named.site} {what}: its "
            "changelog and files belong to one store. Give the other one another name, or leave renamed_from= away there",
            renamed.site,
        )

    def _open(
        self, owner: str, key: PlannedSerde, value: PlannedSerde, site: CallSite | None, *, of_store: bool = False
    ) -> None:
        self._open_side(owner, "key", key, site, of_store=of_store)
        self._open_side(owner, "value", value, site, of_store=of_store)

    def _open_side(
        self, owner: str, side: Side, planned: PlannedSerde, site: CallSite | None, *, of_store: bool = False
    ) -> None:
        if planned.serde is None:
            self.open_serdes.append(
                OpenSerde(
                    owner=owner,
                    of_store=of_store,
                    side=side,
                    changed_by=planned.changed_by,
                    assumed=planned.assumed,
                    wrap=planned.wrap,
                    site=site,
                )
            )


_ADDERS: dict[type[Step], Callable[[Layout, Any, tuple[str, ...]], None]] = {
    SourceStep: lambda layout, step, parents: layout._source(step, step.name),
    TableSourceStep: lambda layout, step, parents: layout._table_source(step),
    GlobalStep: lambda layout, step, parents: layout._global(step),
    TableStep: Layout._table,
    TableJoinStep: lambda layout, step, parents: layout._table_join(step),
    OperatorStep: Layout._operator,
    StreamJoinStep: lambda layout, step, parents: layout._stream_join(step),
    SplitStep: Layout._split,
    RepartitionStep: Layout._repartition,
    SinkStep: Layout._sink,
    StoreStep: lambda layout, step, parents: layout._store(step.store),
}
"""What makes the nodes of a step."""


def _with_versions(spec: StoreSpec, value: PlannedSerde) -> PlannedSerde:
    """What is known of the serde of a store's values when its rows have versions."""
    if spec.version == 1:
        return value
    version, upcasts, name = spec.version, spec.upcasts, spec.name
    return value.wrapped(lambda serde: versioned_values(serde, version, upcasts, name))


def children_of(nodes: Iterable[Node]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        for parent in () if isinstance(node, SourceNode) else node.parents:
            children[parent].append(node.name)
    return children
