"""Whether the tasks of a subtopology are the same tasks in two versions: then an upgrade moves none of them.

1. The rule is that of the group (``streamsrt.assignment.versions``): the id, what it reads and its changelogs are the same,
   it writes no repartition topic that the newer version does not have, and none that is new and feeds what the older one
   has as well. Its steps don't count.
2. So it is known of a version that only a group describes, which has neither digests nor patterns.
"""

from __future__ import annotations

from topology.graph.outline import SubtopologyOutline, TopologyOutline
from topology.graph.patterns import matches


def have_same_tasks(
    before: SubtopologyOutline, old: TopologyOutline, after: SubtopologyOutline, new: TopologyOutline
) -> bool:
    """Whether a subtopology of ``old`` has the same tasks as one of ``new``."""
    if before.id != after.id or _changelogs(before, old) != _changelogs(after, new):
        return False
    if set(before.repartition_source_topics) != set(after.repartition_source_topics):
        return False
    gone = old.repartition_topics.keys() - new.repartition_topics.keys()
    if gone.intersection(before.repartition_sink_topics) or _coming(old, new).intersection(
        after.repartition_sink_topics
    ):
        return False
    return _read_the_same(before, after)


def _coming(old: TopologyOutline, new: TopologyOutline) -> set[str]:
    """Repartition topics of ``new`` alone whose reader has the id, an input or a changelog of a subtopology of ``old``."""
    added = new.repartition_topics.keys() - old.repartition_topics.keys()
    names = {name for part in old.subtopologies for name in _names(part, old)}
    return {
        topic
        for part in new.subtopologies
        for topic in added.intersection(part.repartition_source_topics)
        if not names.isdisjoint(_names(part, new))
    }


def _names(part: SubtopologyOutline, version: TopologyOutline) -> set[str]:
    return {part.id, *part.source_topics, *part.repartition_source_topics, *_changelogs(part, version)}


def is_described(part: SubtopologyOutline) -> bool:
    """Whether it is known from a group alone."""
    return not part.digest


def _read_the_same(before: SubtopologyOutline, after: SubtopologyOutline) -> bool:
    topics, now = set(before.source_topics), set(after.source_topics)
    if is_described(before) and after.source_topic_patterns:
        return now <= topics and all(matches(after.source_topic_patterns, topic) for topic in topics - now)
    return topics == now and set(before.source_topic_patterns) == set(after.source_topic_patterns)


def _changelogs(part: SubtopologyOutline, version: TopologyOutline) -> set[str]:
    """Of stores with one of their own: what others have is a source topic."""
    return {
        store.own_changelog
        for store in version.stores
        if store.name in part.stores and store.changelog == store.own_changelog
    }
