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
from topology.graph.operations.sides import SideOfJoin, SideTopics, join_side, named
from topology.graph.operations.traits import own_store

T = TypeVar("T")
_KEPT, _MET = 0, 1


def sides_of_stores(subtopologies: Iterable[Subtopology]) -> dict[str, tuple[str, str]]:
    """By store: the step through which its records come, and the step or table that they meet."""
    found: dict[str, dict[int, str]] = {}
    for subtopology in subtopologies:
        for node, side in _sided(subtopology):
            for store, place in _used_by(node.operation, side):
                found.setdefault(store, {})[place] = node.name
        for node, side in _sided(subtopology):
            kept, met = named(node.operation, side.keeps), named(node.operation, side.meets)
            table = named(node.operation, side.table)
            if kept is not None and met is not None:
                found[kept][_MET] = found[met][_KEPT]
            elif kept is not None and table is not None:
                found[kept][_MET] = table
            store_of_table = None if table is None else _store_of(subtopology, table)
            if table is not None and store_of_table is not None:
                found.setdefault(store_of_table, {_KEPT: table, _MET: node.name})
    return {store: (sides[_KEPT], sides[_MET]) for store, sides in found.items() if len(sides) == 2}


def _used_by(operation: Operation, side: SideOfJoin) -> Iterator[tuple[str, int]]:
    """The stores of a join that a step uses, and on which of their sides it is."""
    of_shared = _KEPT if getattr(operation, "side", None) == "left" else _MET
    for field, place in ((side.keeps, _KEPT), (side.meets, _MET), (side.shared, of_shared)):
        store = named(operation, field)
        if store is not None:
            yield store, place


def _store_of(subtopology: Subtopology, table: str) -> str | None:
    node = subtopology.node(table)
    return own_store(node.operation) if isinstance(node, ProcessorNode) else None


def stores_of_topics(subtopologies: Iterable[Subtopology]) -> dict[str, str]:
    """The internal topics of foreign-key joins, each with the store of the subscriptions."""
    found: dict[str, str] = {}
    for subtopology in subtopologies:
        for node, side in _sided(subtopology):
            store = named(node.operation, side.keeps or side.meets)
            if store is not None:
                found.update((topic, store) for topic in _topics_of(subtopology, node, side.topics))
    return found


def topics_of_other_side(subtopology: Subtopology, store: str) -> set[str]:
    """The internal topics through which what the store has for the other side of a join is sent there."""
    return {
        topic
        for node, side in _sided(subtopology)
        if side.topics is SideTopics.WRITTEN and named(node.operation, side.meets) == store
        for topic in _topics_of(subtopology, node, side.topics)
    }


def _topics_of(subtopology: Subtopology, node: ProcessorNode, which: SideTopics) -> Iterator[str]:
    match which:
        case SideTopics.READ:
            for source in subtopology.sources:
                if source.name in node.parents:
                    yield from source.topics
        case SideTopics.WRITTEN:
            for child in node.children:
                sink = subtopology.node(child)
                if isinstance(sink, SinkNode) and sink.repartition and sink.topic is not None:
                    yield sink.topic


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


def _sided(subtopology: Subtopology) -> Iterator[tuple[ProcessorNode, SideOfJoin]]:
    for node in subtopology.nodes:
        side = join_side(node.operation) if isinstance(node, ProcessorNode) else None
        if isinstance(node, ProcessorNode) and side is not None:
            yield node, side
