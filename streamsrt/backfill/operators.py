"""What a backfill refuses, and what it notes about the operations of a topology.

How each kind of operation is treated stands in its row of :data:`streamsrt.operators.table.OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamsrt.backfill.errors import PlanError
from streamsrt.operators.offline import Offline
from streamsrt.operators.table import OPERATIONS
from topology.graph.nodes import ProcessorNode
from topology.graph.topology import Topology


def check_sources(topology: Topology) -> None:
    """Raises PlanError for sources that are not known for good."""
    patterns = [pattern for each in topology.subtopologies for pattern in each.source_topic_patterns]
    if patterns:
        raise PlanError(
            f"source topics by pattern ({', '.join(patterns)}) can't be backfilled: what matches may change. Name "
            "the topics"
        )


def check_topology(topology: Topology) -> None:
    """Raises PlanError for what can't be computed offline."""
    check_sources(topology)
    for node, offline in _offline(topology):
        if offline.outcome == "refused":
            raise PlanError(f"{node.name} ({node.site}) can't be backfilled: {offline.note}")


def notes(topology: Topology) -> Iterator[str]:
    """Notes about surprising behaviour of operations in a backfill, each once, with the nodes that it applies to."""
    nodes_by_note: dict[str, dict[str, list[str]]] = {}
    for node, offline in _offline(topology):
        again = "its function is called for every record of the history" if offline.outcome == "again" else ""
        for text in filter(None, (again, offline.note)):
            nodes_by_note.setdefault(text, {}).setdefault(str(node.site), []).append(node.name)
    for text, by_site in nodes_by_note.items():
        nodes = ", ".join(f"{', '.join(names)} ({site})" for site, names in by_site.items())
        yield f"{nodes}: {text}"


def _offline(topology: Topology) -> Iterator[tuple[ProcessorNode, Offline]]:
    for each in topology.subtopologies:
        for node in each.nodes:
            if isinstance(node, ProcessorNode):
                yield node, OPERATIONS[type(node.operation)].offline
