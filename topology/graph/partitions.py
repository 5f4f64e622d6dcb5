"""How many partitions the topics of a topology need, as far as is known of its sources.

The rules are those of the group coordinator: a subtopology has a task for each partition of its largest input; a repartition
topic without a count gets the largest count among the inputs of the subtopologies that write it, and is then raised to its
co-partition group; a changelog has as many partitions as its subtopology tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topology.graph.outline import SubtopologyOutline, TopologyOutline


@dataclass(frozen=True, slots=True)
class Partitions:
    """``tasks``: by subtopology id; ``repartition``: by topic. What is not known is not there."""

    tasks: Mapping[str, int]
    repartition: Mapping[str, int]


def partitions_needed(topology: TopologyOutline, sources: Mapping[str, int]) -> Partitions:
    """What a topology needs where its source topics have so many partitions. Unknown ones may be missing."""
    parts = topology.subtopologies
    fixed = {name: count for name, count in topology.repartition_topics.items() if count}
    counts = dict(fixed)
    for _ in topology.repartition_topics:
        for name in topology.repartition_topics.keys() - counts.keys():
            writers = [each for each in parts if name in each.repartition_sink_topics]
            inputs = [_largest(each, counts, sources) for each in writers]
            known = [each for each in inputs if each is not None]
            if known and len(known) == len(inputs):
                counts[name] = max(known)
    for each in parts:
        for group in each.copartition_groups or ():
            _copartition(each, group, counts, fixed, sources)
    tasks = {each.id: _largest(each, counts, sources) for each in parts}
    return Partitions({id_: count for id_, count in tasks.items() if count is not None}, counts)


def _count(part: SubtopologyOutline, topic: str, counts: Mapping[str, int], sources: Mapping[str, int]) -> int | None:
    return counts.get(topic) if topic in part.repartition_source_topics else sources.get(topic)


def _largest(part: SubtopologyOutline, counts: Mapping[str, int], sources: Mapping[str, int]) -> int | None:
    """The count of the largest input; None where one is not known."""
    if part.source_topic_patterns:
        return None
    found = [_count(part, topic, counts, sources) for topic in (*part.source_topics, *part.repartition_source_topics)]
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


def _copartition(
    part: SubtopologyOutline,
    group: Iterable[str],
    counts: dict[str, int],
    fixed: Mapping[str, int],
    sources: Mapping[str, int],
) -> None:
    names = list(group)
    flexible = [name for name in names if name in part.repartition_source_topics and name not in fixed]
    known = {name: _count(part, name, counts, sources) for name in names}
    given = [count for name, count in known.items() if name not in flexible]
    wanted = given or list(known.values())
    if None not in wanted:
        counts.update(dict.fromkeys(flexible, max(count for count in wanted if count is not None)))
        return
    for name in flexible:
        # The one that is not known, such as topics by pattern, may be larger.
        counts.pop(name, None)
