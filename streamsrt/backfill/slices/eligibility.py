"""Which subtopologies can be computed in slices of their keys, and what prevents it in others.

What an operation allows stands in its row of :data:`streamsrt.operators.table.OPERATIONS`, what a kind of store allows in
:data:`STORES`. What is left concerns operations together:

1. Behind a cache nothing may depend on when it is flushed: no store, and no order of records of several keys.
2. The stream time that an operation observes must be known in every slice: between it and its sources no state may decide
   which records come through (:class:`TimedNode`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from streamsrt.operators.engine.handlers import fail
from streamsrt.operators.engine.plan import ResolvedSubtopology, same_bytes
from streamsrt.operators.key_slices import Reach, always, either
from streamsrt.operators.table import OPERATIONS
from streamsrt.tasks.task_config import TaskConfig
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode
from topology.graph.operations.traits import has_sessions, own_store, stream_time_store, traits_of
from topology.graph.store_kinds import StoreKind, kind_of
from topology.spec.codecs import ProgramSerde

STORES: Mapping[StoreKind, str | None] = MappingProxyType(
    {
        StoreKind.KEY_VALUE: None,
        StoreKind.LRU: "keeps the entries used last, of all keys together. Without max_entries= it can be sliced",
        StoreKind.EXPIRING: "drops entries by the times of records of all keys. Without ttl= it can be sliced",
        StoreKind.WINDOW: None,
        StoreKind.DUPLICATES: "numbers the records of all keys",
        StoreKind.SESSION: None,
        StoreKind.VERSIONED: "drops versions by the times of all keys. A table that is not versioned can be sliced",
        StoreKind.BUFFER: None,
    }
)
"""Why a kind of store does not allow slices; None if it does."""


@dataclass(frozen=True, slots=True)
class TimedNode:
    """A node whose operation observes a stream time. ``reaches``: by source, which of its records come to the node;
    ``slack_ms``: how far a record may be behind without a difference; -1: not even as far as to be of the same time."""

    node: str
    reaches: Mapping[str, Reach]
    slack_ms: int


class _StateDecides(Exception):
    def __init__(self, node: ProcessorNode) -> None:
        super().__init__(node.name)
        self.node = node


def obstacle(plan: ResolvedSubtopology, config: TaskConfig) -> str | None:
    """What prevents that a subtopology is computed in slices, as a sentence with what can be done; None if it can be."""
    return next(_obstacles(plan, config), None)


def timed_nodes(plan: ResolvedSubtopology) -> list[TimedNode]:
    """The nodes whose stream times a slice must move on, of a subtopology without an obstacle."""
    return [_timed(plan, node) for node in _processors(plan) if _is_timed(node)]


def _obstacles(plan: ResolvedSubtopology, config: TaskConfig) -> Iterator[str]:
    for source in plan.subtopology.sources:
        if source.timestamp_extractor or config.default_timestamp_extractor:
            yield (
                f"{_where(source)} has a timestamp extractor, which would be asked in other processes than that of the "
                "record. Records with times of their own can be sliced"
            )
    for node in _processors(plan):
        if node.wrapped_by is not None:
            yield f"{_where(node)} is wrapped by a processor (processor.wrapper.class)"
        refusal = OPERATIONS[type(node.operation)].slices.refused(node.operation)
        if refusal is not None:
            yield f"{_where(node)} {refusal}"
    for sink in plan.subtopology.sinks:
        if sink.repartition:
            yield (
                f"{_where(sink)} writes a repartition topic: what is computed behind it depends on the order of records of "
                "all keys. The subtopology behind it can be sliced"
            )
    for spec in plan.subtopology.stores:
        reason = (
            STORES[kind_of(spec)] if spec.supplier is None else "is a store of the program's own, which knows all keys"
        )
        if reason is not None:
            yield f"store {spec.name} {reason}"
    yield from _of_serdes(plan)
    yield from _behind_caches(plan)
    yield from _of_times(plan)


def _of_serdes(plan: ResolvedSubtopology) -> Iterator[str]:
    """A key has one slice by its bytes: each step must know it by the same bytes."""
    first, *others = plan.subtopology.sources
    serde = plan.key_serde(first)
    for source in others:
        if not same_bytes(plan.key_serde(source), serde):
            yield f"{_where(source)} reads keys with another serde than {_where(first)}: give both the same one"
    for node in _processors(plan):
        for name in node.stores:
            spec = plan.specs.get(name)
            if spec is not None and name != getattr(node.operation, "closed", None):
                found = plan.key_serde(spec)
                if not same_bytes(_unwindowed(found), serde):
                    yield (
                        f"store {name} of {_where(node)} has its keys by another serde than {_where(first)}: give both the "
                        "same one"
                    )


def _unwindowed(serde: ProgramSerde) -> ProgramSerde:
    inner: ProgramSerde = getattr(serde, "inner", serde)
    return inner


def _behind_caches(plan: ResolvedSubtopology) -> Iterator[str]:
    for node in _processors(plan):
        store = own_store(node.operation)
        if store is None or not plan.is_cached(store):
            continue
        for each in _behind(plan, node):
            if isinstance(each, ProcessorNode) and each.stores:
                yield (
                    f"{_where(each)} gets what the cache of store {store} holds back, which depends on when it is flushed: "
                    "plan with --config statestore.cache.max.bytes=0, or give that store caching=False"
                )


def _behind(plan: ResolvedSubtopology, node: ProcessorNode) -> Iterator[Node]:
    waiting, seen = list(node.result_children), set(node.result_children)
    while waiting:
        each = plan.node(waiting.pop())
        yield each
        if not isinstance(each, SinkNode):
            waiting += [child for child in each.children if child not in seen]
            seen.update(each.children)


def _of_times(plan: ResolvedSubtopology) -> Iterator[str]:
    timed = [node for node in _processors(plan) if _is_timed(node)]
    handlers = plan.handlers
    if timed and not all(each is fail for each in (handlers.deserialization, handlers.processing, handlers.production)):
        yield (
            f"{_where(timed[0])} observes a stream time, which a record that an exception handler skips may move on or not. "
            "Without such a handler it can be sliced"
        )
    for node in timed:
        try:
            _timed(plan, node)
        except _StateDecides as decides:
            yield (
                f"{_where(decides.node)} lets records through by what it knows of their keys, and they move the stream time "
                f"of {node.name} on, which no slice would know"
            )


def _processors(plan: ResolvedSubtopology) -> list[ProcessorNode]:
    return [node for node in plan.subtopology.nodes if isinstance(node, ProcessorNode)]


def _is_timed(node: ProcessorNode) -> bool:
    return stream_time_store(node.operation) is not None


def _where(node: Node) -> str:
    return f"{node.name} ({node.site})" if node.site is not None else node.name


def _timed(plan: ResolvedSubtopology, node: ProcessorNode) -> TimedNode:
    """Raises _StateDecides."""
    known: dict[str, Reach | None] = {}
    reaches = {
        source.name: reach
        for source in plan.subtopology.sources
        if (reach := _reach(plan, source.name, node.name, known)) is not None
    }
    return TimedNode(node.name, reaches, _slack_ms(plan, node))


def _slack_ms(plan: ResolvedSubtopology, node: ProcessorNode) -> int:
    if traits_of(node.operation).holds_back and any(has_sessions(each.operation) for each in _processors(plan)):
        # A session that is let go at some time may be continued at that time.
        return -1
    slack_ms = OPERATIONS[type(node.operation)].slices.slack_ms
    assert slack_ms is not None, "such an operation allows no slices"
    return slack_ms(node.operation)


def _reach(plan: ResolvedSubtopology, name: str, target: str, known: dict[str, Reach | None]) -> Reach | None:
    """Which records that come to a node come to the target; None if there is no way. Raises _StateDecides."""
    if name == target:
        return always
    if name not in known:
        known[name] = _reach_below(plan, plan.node(name), target, known)
    return known[name]


def _reach_below(plan: ResolvedSubtopology, node: Node, target: str, known: dict[str, Reach | None]) -> Reach | None:
    if isinstance(node, SinkNode):
        return None
    reaches = {child: reach for child in node.children if (reach := _reach(plan, child, target, known)) is not None}
    if not reaches:
        return None
    if isinstance(node, SourceNode):
        return either(reaches)
    through = OPERATIONS[type(node.operation)].slices.through
    reach = None if through is None or node.late in reaches else through(node.operation, reaches)
    if reach is None:
        raise _StateDecides(node)
    return reach
