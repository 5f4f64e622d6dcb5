"""Which sides of a join its stores and internal topics belong to.

1. A store of a join keeps what came from one side, for records of the other one. Both sides feed the step's results, so
   the topics behind a join do not tell whose rows its stores have.
2. The first side is the one whose records are kept; for a store or topic with records of both, the left one.
3. The table of a stream-table join is a side, too: its own store has the rows that the stream is joined with. Two tables
   that are joined keep their stores, whichever is the left one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from topology.graph.nodes import ProcessorNode, SinkNode, Subtopology
from topology.graph.operations import Operation
from topology.graph.operations.basic import StreamTableJoin
from topology.graph.operations.joins import (
    AsofJoin,
    AsofKeep,
    ForeignTableJoin,
    StreamJoinWindow,
    StreamStreamJoin,
    StreamTableGraceJoin,
    SubscriptionReceive,
)
from topology.graph.operations.traits import own_store

T = TypeVar("T")
_KEPT, _MET = 0, 1


def sides_of_stores(subtopologies: Iterable[Subtopology]) -> dict[str, tuple[str, str]]:
    """By store: the step through which its records come, and the step or table that they meet."""
    found: dict[str, dict[int, str]] = {}
    for subtopology in subtopologies:
        for node in _processors(subtopology):
            for store, side in _used_by(node.operation):
                found.setdefault(store, {})[side] = node.name
        for node in _processors(subtopology):
            if isinstance(node.operation, AsofJoin) and node.operation.waiting is not None:
                found[node.operation.waiting][_MET] = found[node.operation.store][_KEPT]
            elif isinstance(node.operation, StreamTableGraceJoin):
                found[node.operation.buffer][_MET] = node.operation.table
            if isinstance(node.operation, StreamTableJoin | StreamTableGraceJoin):
                table = subtopology.node(node.operation.table)
                store_of_table = own_store(table.operation) if isinstance(table, ProcessorNode) else None
                if store_of_table is not None:
                    found.setdefault(store_of_table, {_KEPT: table.name, _MET: node.name})
    return {store: (sides[_KEPT], sides[_MET]) for store, sides in found.items() if len(sides) == 2}


def _used_by(operation: Operation) -> Sequence[tuple[str, int]]:
    """The stores of a join that a step uses, and on which of their sides it is."""
    match operation:
        case StreamJoinWindow() | AsofKeep() | SubscriptionReceive():
            return [(operation.store, _KEPT)]
        case StreamStreamJoin():
            shared = [] if operation.shared is None else [(operation.shared, _side_of(operation))]
            return [(operation.store, _MET), *shared]
        case AsofJoin():
            waiting = [] if operation.waiting is None else [(operation.waiting, _KEPT)]
            return [(operation.store, _MET), *waiting]
        case ForeignTableJoin():
            return [(operation.store, _MET)]
        case StreamTableGraceJoin():
            return [(operation.buffer, _KEPT)]
        case _:
            return []


def _side_of(operation: StreamStreamJoin) -> int:
    return _KEPT if operation.side == "left" else _MET


def is_sided(operation: Operation) -> bool:
    """Whether it is the step of one side of a join, and what comes from that side is above it."""
    return isinstance(operation, StreamTableJoin) or bool(_used_by(operation))


def stores_of_topics(subtopologies: Iterable[Subtopology]) -> dict[str, str]:
    """The internal topics of foreign-key joins, each with the store of the subscriptions."""
    found: dict[str, str] = {}
    for subtopology in subtopologies:
        for node in _processors(subtopology):
            if isinstance(node.operation, SubscriptionReceive):
                sources = [source for source in subtopology.sources if source.name in node.parents]
                found.update((topic, node.operation.store) for source in sources for topic in source.topics)
            elif isinstance(node.operation, ForeignTableJoin):
                sinks = [subtopology.node(child) for child in node.children]
                topics = [sink.topic for sink in sinks if isinstance(sink, SinkNode) and sink.repartition]
                found.update((topic, node.operation.store) for topic in topics if topic is not None)
    return found


def changed_places(before: Sequence[T], after: Sequence[T], likenesses: Iterable[Callable[[T, T], bool]]) -> bool:
    """Whether each of two things is now where the other one was. The first likeness that says either counts."""
    (mine, other), (now, other_now) = before, after
    for alike in likenesses:
        if alike(mine, now) and alike(other, other_now):
            return False
        if alike(mine, other_now) and alike(other, now):
            return True
    return False


def sides_changed(before: Sequence[T], after: Sequence[T], likenesses: Sequence[Callable[[T, T], bool]]) -> bool:
    """Whether the sides of a join have changed places, also if one of them has become another stream."""
    if len(before) != 2 or len(after) != 2:
        return False
    (mine, other), (now, other_now), widest = before, after, likenesses[-1]
    if changed_places(before, after, likenesses):
        return True
    stayed = widest(mine, now) or widest(other, other_now)
    return not stayed and (widest(mine, other_now) or widest(other, now))


def _processors(subtopology: Subtopology) -> Iterator[ProcessorNode]:
    return (node for node in subtopology.nodes if isinstance(node, ProcessorNode))
