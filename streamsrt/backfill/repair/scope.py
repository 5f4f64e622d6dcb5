"""What a store is computed from, and which stores can't be rebuilt alone.

1. A store is computed by the nodes that write it, by what these descend from, also through repartition topics, and by the
   stores that any of these nodes touch.
2. Whole subtopologies are replayed: that of the store, and those that write its repartition topics.
3. A store is refused if a replay may compute something else than the application did: the other stores and the outputs,
   which stay, would not fit to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.plan import Compared
from streamsrt.operators.offline import AGAIN_AS_OF_NOW, AS_OF_PLAN, ONE_ORDER
from streamsrt.operators.table import NO_STORE, OPERATIONS
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, StoreSpec, Subtopology
from topology.graph.operations.traits import Code, traits_of
from topology.graph.store_kinds import Limit, StoreKind, kind_of, store_traits
from topology.graph.topology import Topology

_INSTEAD = "replace the whole state of the application with a backfill without --store, under another --application-id"


@dataclass(frozen=True, slots=True)
class RepairScope:
    """The store, and what must be replayed for it. ``subtopologies``: by number. ``feeding``: the other stores that it is
    computed from, and how each is compared; those whose changelog is a source topic are not among them. ``fed``: those that
    are computed from it, each behind those that it is computed from itself. ``processors``: steps of the user's code that
    compute it."""

    spec: StoreSpec
    subtopologies: frozenset[int]
    feeding: Mapping[str, Compared]
    fed: tuple[str, ...] = ()
    processors: tuple[str, ...] = ()


def scope_of(topology: Topology, store: str) -> RepairScope:
    """Returns what a repair of a store comprises. Raises PlanError if it can't be rebuilt alone."""
    home, spec = _find(topology, store)
    if not spec.has_own_changelog:
        raise PlanError(
            f"store {store!r} has no changelog of its own, so there is nothing to rebuild: "
            + (
                f"it is restored from topic {spec.source_topic!r}. Delete its files in the state directories"
                if spec.source_topic is not None
                else f"its rows are only in state directories (logging=False). To compute them, {_INSTEAD}"
            )
        )
    closure = _Closure(topology, store)
    for node in closure.nodes:
        _check(node, store)
    feeding = {}
    for name in sorted(closure.stores - {store}):
        fed_by = _find(topology, name)[1]
        if fed_by.source_topic is not None:
            continue
        if not fed_by.logging:
            raise PlanError(
                f"store {store!r} can't be rebuilt alone: it is computed from store {name!r}, which has no changelog "
                f"(logging=False), so nobody can tell what the application had in it. Instead, {_INSTEAD}"
            )
        feeding[name] = _compared(fed_by)
    processors = [f"{node.name} ({node.site})" for node in closure.nodes if _is_the_users(node)]
    parts = frozenset(_upstream(topology, home))
    return RepairScope(spec, parts, feeding, tuple(_fed_by(topology, store)), tuple(processors))


def note_on_global_tables(topology: Topology, scope: RepairScope) -> Iterator[str]:
    """What nobody can know of a store that processors of the user's compute, which may read any global table."""
    if topology.global_subtopologies and scope.processors:
        yield (
            f"store {scope.spec.name} is computed by {', '.join(scope.processors)}: if this code reads a global table, it "
            "sees the rows of now, and not those of the time when the application processed the record"
        )


def _fed_by(topology: Topology, store: str) -> list[str]:
    """The stores that are computed from a store, in an order in which they can be repaired."""
    others = [
        spec.name
        for each in topology.subtopologies
        for spec in each.stores
        if spec.name != store and spec.source_topic is None
    ]
    from_stores = {name: _Closure(topology, name).stores - {name} for name in others}
    found = {name for name in others if store in from_stores[name]}
    # What a store is computed from is computed from fewer.
    return sorted(found, key=lambda name: (len(from_stores[name] & found), name))


def _find(topology: Topology, store: str) -> tuple[Subtopology, StoreSpec]:
    for each in topology.subtopologies:
        for spec in each.stores:
            if spec.name == store:
                return each, spec
    there = sorted(spec.name for each in topology.subtopologies for spec in each.stores)
    raise PlanError(f"the application has no store {store!r}; it has {', '.join(there) or 'none'}. Give one of these")


def _check(node: ProcessorNode, store: str) -> None:
    offline = OPERATIONS[type(node.operation)].offline
    if offline is AGAIN_AS_OF_NOW:
        why = f"it asks what it asks now, and {store!r} would not fit to what the application got when it ran"
    elif offline is ONE_ORDER:
        why = "which records met there depends on the order in which they arrived, and a replay has another one"
    elif offline is AS_OF_PLAN:
        why = "its global table may have had other rows when the application ran, and has those of now in a replay"
    else:
        return
    raise PlanError(
        f"store {store!r} can't be rebuilt alone: it is computed from the results of {node.name} ({node.site}); {why}. "
        f"Instead, {_INSTEAD}"
    )


def _compared(spec: StoreSpec) -> Compared:
    if kind_of(spec) is StoreKind.BUFFER:
        # Rows have offsets in them, which behind a repartition topic are in the order of the replay.
        return "keys"
    return "rows" if store_traits(spec).limit is Limit.NOTHING else "common rows"


def _upstream(topology: Topology, home: Subtopology) -> Iterator[int]:
    """The numbers of a subtopology and of all that write into it, directly or not."""
    found, waiting = set(), [home]
    while waiting:
        part = waiting.pop()
        if part.number in found:
            continue
        found.add(part.number)
        yield part.number
        read = {topic.name for topic in part.repartition_source_topics}
        waiting += [each for each in topology.subtopologies if read & set(each.repartition_sink_topics)]


class _Closure:
    """The nodes by which a store is computed, and the stores that they touch."""

    def __init__(self, topology: Topology, store: str) -> None:
        self._topology = topology
        self._seen: set[tuple[int, str]] = set()
        self.nodes: list[ProcessorNode] = []
        self.stores = {store}
        waiting = [store]
        while waiting:
            before = set(self.stores)
            for part, node in self._writers(waiting.pop()):
                self._add(part, node)
            waiting += sorted(self.stores - before)

    def _writers(self, store: str) -> Iterator[tuple[Subtopology, Node]]:
        for part in self._topology.subtopologies:
            for node in part.nodes:
                if isinstance(node, ProcessorNode) and store in node.stores and _writes(node):
                    yield part, node

    def _add(self, part: Subtopology, node: Node) -> None:
        """Adds a node and everything that it descends from."""
        waiting = [(part, node)]
        while waiting:
            part, node = waiting.pop()
            if (part.number, node.name) in self._seen:
                continue
            self._seen.add((part.number, node.name))
            if isinstance(node, SourceNode):
                waiting += self._sinks_into(node)
                continue
            if isinstance(node, ProcessorNode):
                self.nodes.append(node)
                self.stores.update(node.stores)
            waiting += [(part, part.node(parent)) for parent in node.parents]

    def _sinks_into(self, source: SourceNode) -> list[tuple[Subtopology, Node]]:
        if not source.repartition:
            return []
        return [
            (part, sink)
            for part in self._topology.subtopologies
            for sink in part.sinks
            if isinstance(sink, SinkNode) and sink.repartition and sink.topic in source.topics
        ]


def _writes(node: ProcessorNode) -> bool:
    """Whether a node may write the stores that it touches: a join with a table only reads it."""
    return _is_the_users(node) or OPERATIONS[type(node.operation)].keys is not NO_STORE


def _is_the_users(node: ProcessorNode) -> bool:
    return traits_of(node.operation).code is Code.PROCESSOR
