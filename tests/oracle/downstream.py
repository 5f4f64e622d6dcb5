"""What of a case's topology can change with what a node does: the topics and stores behind it."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracle.programs import Case, build
from topology.graph.nodes import Node, ProcessorNode, SinkNode, SourceNode, StoreSpec, Subtopology

Cause = Callable[[Subtopology, ProcessorNode], bool]


def behind(answer: Case, cause: Cause) -> frozenset[str]:
    """The stores and topics that the nodes of a cause write, and all nodes behind them. Names as differences have them."""
    parts = build(answer).topology.subtopologies
    changed = {(part.number, node.name) for part in parts for node in processors(part) if cause(part, node)}
    written: set[str] = set()
    todo = list(changed)
    while todo:
        number, name = todo.pop()
        part = next(each for each in parts if each.number == number)
        node = part.node(name)
        written |= _written(part, node)
        after = {(number, child) for child in getattr(node, "children", ())}
        # A join's other side reads what this one has put into its store.
        after |= {(number, each.name) for each in processors(part) if written.intersection(each.stores)}
        if isinstance(node, SinkNode):
            after |= {(each.number, source.name) for each in parts for source in _sources(each, node.topic)}
        todo += after - changed
        changed |= after
    return frozenset(written)


def processors(part: Subtopology) -> list[ProcessorNode]:
    return [node for node in part.nodes if isinstance(node, ProcessorNode)]


def stores_of(part: Subtopology, node: ProcessorNode) -> list[StoreSpec]:
    return [spec for spec in part.stores if spec.name in node.stores]


def _sources(part: Subtopology, topic: str | None) -> list[SourceNode]:
    return [node for node in part.nodes if isinstance(node, SourceNode) and topic in node.topics]


def _written(part: Subtopology, node: Node) -> set[str]:
    if isinstance(node, SinkNode):
        return {f"app-{node.topic}" if node.repartition else str(node.topic)}
    if isinstance(node, ProcessorNode):
        stores = stores_of(part, node)
        return {spec.name for spec in stores} | {f"app-{spec.changelog_name}" for spec in stores}
    return set()
