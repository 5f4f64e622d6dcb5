"""Which topics the sources of a task currently read: those that are named, and those that match a pattern.

1. The group coordinator decides how many tasks there are, from the same patterns (in RE2's syntax) and topics. A member
   itself finds the matching topics in the cluster: when a task starts, when the group's epoch has changed, which
   happens when topics are added, grow or are deleted, and at intervals.
2. No pattern matches internal topics, of the broker or of the application.
3. A deleted topic is not read any more; the coordinator reports it if that leaves a source without any topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Mapping

from streamsrt.client.values import TopicInfo, TopicPartition
from streamsrt.tasks.manager.owned_task import OwnedTask
from topology.graph.nodes import SourceNode, Subtopology, internal_topic_name, internal_topic_names

REFRESH_INTERVAL_MS = 60_000


class SourceTopics:
    """The topics of all of an application's sources."""

    def __init__(self, application_id: str, subtopologies: Mapping[str, Subtopology]) -> None:
        every = list(subtopologies.values())
        self._patterns = {
            source.name: re.compile(source.pattern)
            for each in every
            for source in each.sources
            if source.pattern is not None
        }
        self._internal = internal_topic_names(application_id, every)
        self.named = {topic for each in every for topic in each.source_topics} | {
            internal_topic_name(application_id, topic.name)
            for each in every
            for topic in each.repartition_source_topics
        }
        """Those that sources name, and repartition topics."""

    def among(self, find: Callable[[Collection[str] | None], Mapping[str, TopicInfo]]) -> dict[str, TopicInfo]:
        """Returns all existing topics that the application reads, including repartition topics. ``find`` gives topics by
        name, or all of them for None."""
        found = find(None if self._patterns else self.named)
        return {name: topic for name, topic in found.items() if name in self.named or self._is_matched(topic)}

    def _is_matched(self, topic: TopicInfo) -> bool:
        is_internal = topic.name in self._internal or topic.is_internal
        return not is_internal and any(pattern.fullmatch(topic.name) for pattern in self._patterns.values())

    def has_patterns(self, subtopology: Subtopology) -> bool:
        return any(source.name in self._patterns for source in subtopology.sources)

    def may_change(self, owned: OwnedTask) -> bool:
        """Whether the task may have to read other partitions while it runs."""
        return self.has_patterns(owned.subtopology) or len(owned.task.source_partitions) > 1

    def source_of(self, subtopology: Subtopology, topic: str) -> SourceNode | None:
        """Returns the source that reads a topic which its subtopology does not name."""
        for source in subtopology.sources:
            pattern = self._patterns.get(source.name)
            if pattern is not None and pattern.fullmatch(topic):
                return source
        return None

    def match(self, owned: OwnedTask, topics: Mapping[str, TopicInfo]) -> None:
        """Adds the topics to the task that one of its patterns matches."""
        if not self.has_patterns(owned.subtopology):
            return
        known = {topic for topic, _ in owned.task.source_partitions}
        for name in sorted(topics):
            if name in known or name in self._internal or topics[name].is_internal:
                continue
            source = self.source_of(owned.subtopology, name)
            if source is not None:
                owned.task.add_source_topic(source.name, name)


def new_partitions(owned: OwnedTask, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Returns existing partitions that the task should read but does not."""
    return [
        (topic, partition)
        for topic, partition in owned.task.source_partitions
        if (topic, partition) not in owned.inputs and topic in topics and partition < topics[topic].partitions
    ]


def gone_partitions(owned: OwnedTask, topics: Mapping[str, TopicInfo], unless: Container[str]) -> list[TopicPartition]:
    """Returns partitions of deleted topics that the task has processed to the end; ``unless``: topics that it names."""
    return [
        tp
        for tp, buffer in owned.inputs.items()
        if tp[0] not in topics and tp[0] not in unless and buffer.is_empty and not owned.task.buffered_of(*tp)
    ]
