"""How a backfill treats each kind of operation, and which ones it refuses.

:data:`OPERATIONS` has an answer for each kind of operation that a processor node may hold:

``as live``     offline up to some record and live from there is, byte for byte, one live run: stores, changelogs, outputs
``again``       as live, and the function is called for every record of the history, with whatever it does
``one order``   as live in one of the orders that a live run may have
``refused``     the plan says why, and what can be done instead
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streamsrt.backfill.errors import PlanError
from topology.graph import operations
from topology.graph.nodes import ProcessorNode
from topology.graph.topology import Topology

Outcome = Literal["as live", "again", "one order", "refused"]


@dataclass(frozen=True, slots=True)
class Offline:
    """The answer for one kind of operation."""

    outcome: Outcome
    note: str = ""


_AS_LIVE = Offline("as live")
_HELD = (
    "in the changelog of what is held back, records have the time at which the plan was made, where a live run writes the "
    "current time; nothing is computed from it"
)
_STREAMS = Offline(
    "one order",
    "what waits for a match may be shown earlier after the hand-over, as after a restart; a record without a value takes no "
    "sequence number",
)
_FOREIGN = Offline(
    "refused",
    "the two sides of a foreign-key join ask and answer each other through topics, so neither can be computed before the "
    "other. Key one table by what they are joined on (group_by and reduce) and join the two by key, or let the application "
    "read its topics from the beginning without a backfill",
)
_GLOBAL = Offline(
    "refused",
    "what a global table or store held when a record was processed depends on when that was, so no replay can find it "
    "again. Join with a table of the same partitions (builder.table), which is replayed by time, or let the application "
    "read its topics from the beginning without a backfill",
)

OPERATIONS: dict[type, Offline] = {
    operations.Filter: _AS_LIVE,
    operations.KeyNotNull: _AS_LIVE,
    operations.Map: _AS_LIVE,
    operations.SelectKey: _AS_LIVE,
    operations.MapValues: _AS_LIVE,
    operations.FlatMap: _AS_LIVE,
    operations.FlatMapValues: _AS_LIVE,
    operations.PassThrough: _AS_LIVE,
    operations.Branch: _AS_LIVE,
    operations.Peek: Offline("again"),
    operations.ForEach: Offline("again"),
    operations.MapBatches: _AS_LIVE,
    operations.MapAsync: Offline("again", "it asks what it asks now, not what was true at the time of the record"),
    operations.JoinLookup: Offline("again", "it asks what it asks now, not what was true at the time of the record"),
    operations.Process: Offline(
        "as live", "punctuations by stream time run as live; the wall clock stands still, so those by it don't run"
    ),
    operations.TableSource: _AS_LIVE,
    operations.TableFilter: _AS_LIVE,
    operations.TableMapValues: _AS_LIVE,
    operations.TableToStream: _AS_LIVE,
    operations.TableTransformValues: _AS_LIVE,
    operations.TableMerge: _AS_LIVE,
    operations.GroupTable: _AS_LIVE,
    operations.TableAggregate: _AS_LIVE,
    operations.Aggregate: _AS_LIVE,
    operations.SlidingAggregate: _AS_LIVE,
    operations.CountWindowAggregate: _AS_LIVE,
    operations.SessionAggregate: _AS_LIVE,
    operations.Suppress: Offline(
        "as live",
        f"{_HELD}; behind a repartition topic, records that are held back have offsets in the order of the backfill",
    ),
    operations.TableTableJoin: _AS_LIVE,
    operations.TableJoinMerge: _AS_LIVE,
    operations.StreamTableJoin: _AS_LIVE,
    operations.StreamTableGraceJoin: Offline("as live", _HELD),
    operations.AsofJoin: _AS_LIVE,
    operations.AsofKeep: _AS_LIVE,
    operations.StreamJoinWindow: _STREAMS,
    operations.StreamStreamJoin: _STREAMS,
    operations.StreamSelfJoin: _STREAMS,
    operations.SubscriptionSend: _FOREIGN,
    operations.SubscriptionReceive: _FOREIGN,
    operations.SubscriptionJoin: _FOREIGN,
    operations.ForeignTableJoin: _FOREIGN,
    operations.ResponseJoin: _FOREIGN,
    operations.StreamGlobalTableJoin: _GLOBAL,
}


def check_topology(topology: Topology) -> None:
    """Raises PlanError for what can't be computed offline."""
    patterns = [pattern for each in topology.subtopologies for pattern in each.source_topic_patterns]
    if patterns:
        raise PlanError(
            f"source topics by pattern ({', '.join(patterns)}) can't be backfilled: what matches may change. Name "
            "the topics"
        )
    for node, offline in _offline(topology):
        if offline.outcome == "refused":
            raise PlanError(f"{node.name} ({node.site}) can't be backfilled: {offline.note}")
    shared = [source.topics[0] for each in topology.global_subtopologies for source in each.sources]
    if shared:
        raise PlanError(f"global tables and stores (of {', '.join(shared)}) can't be backfilled: {_GLOBAL.note}")


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
                yield node, OPERATIONS[type(node.operation)]
