"""Source topics by pattern: the topics that the patterns of a topology match.

1. A pattern never matches an internal topic, of the broker or of the group itself, nor a topic that the member whose
   heartbeat it is resolved for may not describe.
2. A topic belongs to one subtopology. If patterns of two subtopologies match it, or a pattern of one and a topic name
   of another, this is an error: two tasks would read one partition.
3. New topics change what a topology reads: this changes the metadata hash, which raises the group epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from streamsrt.assignment.topic_pattern import matching
from streamsrt.assignment.topics import TopicsImage
from streamsrt.assignment.topology import Subtopology, Topology

TOPICS_OF_THE_BROKER = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class Resolution:
    """``topology`` with the names in place of the patterns; ``unmatched`` patterns; ``contested``: the first topic with two
    owners, and these."""

    topology: Topology
    unmatched: tuple[str, ...] = ()
    contested: tuple[str, str, str] | None = None


def resolve(topology: Topology, image: TopicsImage, is_visible: Callable[[str], bool] | None = None) -> Resolution:
    if not any(part.source_patterns for part in topology.subtopologies):
        return Resolution(topology)
    internal = set(TOPICS_OF_THE_BROKER)
    internal |= {topic.name for part in topology.subtopologies for topic in part.repartition_sources + part.changelogs}
    internal.update(*(part.repartition_sinks for part in topology.subtopologies))
    candidates = [name for name in image if name not in internal and (is_visible is None or is_visible(name))]
    meanings = {
        pattern: matching(pattern, candidates) for part in topology.subtopologies for pattern in part.source_patterns
    }
    resolved = Topology(topology.epoch, tuple(_resolved(part, meanings) for part in topology.subtopologies))
    unmatched = tuple(sorted(pattern for pattern, names in meanings.items() if not names))
    return Resolution(resolved, unmatched, _contested(resolved))


def _resolved(part: Subtopology, meanings: dict[str, frozenset[str]]) -> Subtopology:
    if not part.source_patterns:
        return part
    matched: set[str] = set().union(*(meanings[pattern] for pattern in part.source_patterns))
    groups = (
        {name for entry in group for name in meanings.get(entry, (entry,))} if set(group) & meanings.keys() else group
        for group in part.copartition_groups
    )
    return replace(
        part,
        source_topics=tuple(sorted(matched.union(part.source_topics))),
        copartition_groups=tuple(sorted(tuple(sorted(group)) for group in groups)),
    )


def _contested(topology: Topology) -> tuple[str, str, str] | None:
    owners: dict[str, str] = {}
    for part in topology.subtopologies:
        for name in part.source_topics:
            if name in owners:
                return name, owners[name], part.id
            owners[name] = part.id
    return None
