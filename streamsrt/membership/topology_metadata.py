"""A topology as it is sent to the group coordinator: ``StreamsGroupHeartbeatRequest.Topology``.

1. Equal programs give equal metadata, byte for byte, in every process: everything is sorted by name.
2. Partition counts of source topics and changelogs are not sent; those of repartition topics only if the user set them.
3. Indices of a co-partition group refer to the sorted lists of its own subtopology.
4. Replication factor -1 leaves the choice to the broker, as in Kafka Streams.

Source: KIP-1071, "Initializing and updating topology metadata on the broker"; ``StreamsRebalanceData``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from streamsrt.wire import types
from topology.graph.nodes import InternalTopic, Subtopology, internal_topic_name
from topology.graph.topology import Topology

Metadata = types.StreamsGroupHeartbeatRequest
REPLICATION_FACTOR_OF_BROKER = -1


def topology_metadata(
    topology: Topology,
    application_id: str,
    *,
    subtopology_id: Literal["hash", "number"] = "hash",
    replication_factor: int = REPLICATION_FACTOR_OF_BROKER,
) -> types.StreamsGroupHeartbeatRequest.Topology:
    """Returns the topology for a joining member's heartbeat. ``subtopology_id``: the setting ``subtopology.id``;
    ``replication_factor`` is that of internal topics, -1 for the broker's default."""
    return Metadata.Topology(
        epoch=topology.epoch,
        subtopologies=[
            _subtopology(
                each, application_id, each.id if subtopology_id == "hash" else str(each.number), replication_factor
            )
            for each in topology.subtopologies
        ],
    )


def _subtopology(
    subtopology: Subtopology, application_id: str, name: str, replication_factor: int
) -> types.StreamsGroupHeartbeatRequest.Subtopology:
    repartition = _topics(subtopology.repartition_source_topics, application_id, replication_factor)
    changelogs = (topic for topic in subtopology.changelog_topics if not topic.is_source)
    sources = sorted(subtopology.source_topics)
    patterns = sorted(subtopology.source_topic_patterns)
    return Metadata.Subtopology(
        subtopology_id=name,
        source_topics=sources,
        source_topic_regex=patterns,
        state_changelog_topics=_topics(changelogs, application_id, replication_factor),
        repartition_sink_topics=sorted(_decorated(subtopology.repartition_sink_topics, application_id)),
        repartition_source_topics=repartition,
        copartition_groups=_copartition_groups(
            subtopology, application_id, sources, patterns, [topic.name for topic in repartition]
        ),
    )


def _decorated(names: Iterable[str], application_id: str) -> list[str]:
    return [internal_topic_name(application_id, name) for name in names]


def _topics(
    topics: Iterable[InternalTopic], application_id: str, replication_factor: int
) -> list[types.StreamsGroupHeartbeatRequest.TopicInfo]:
    infos = [
        Metadata.TopicInfo(
            name=internal_topic_name(application_id, topic.name),
            partitions=0 if topic.kind == "changelog" else topic.partitions or 0,
            replication_factor=replication_factor,
            topic_configs=[Metadata.KeyValue(key=key, value=value) for key, value in sorted(topic.configs)],
        )
        for topic in topics
    ]
    return sorted(infos, key=lambda info: info.name)


def _copartition_groups(
    subtopology: Subtopology, application_id: str, sources: list[str], patterns: list[str], repartition: list[str]
) -> list[types.StreamsGroupHeartbeatRequest.CopartitionGroup]:
    internal = {topic.name for topic in subtopology.repartition_source_topics}
    groups = []
    for group in subtopology.copartition_groups:
        decorated = [internal_topic_name(application_id, name) for name in group if name in internal]
        groups.append(
            (
                sorted(sources.index(name) for name in group if name not in internal and name in sources),
                sorted(patterns.index(name) for name in group if name not in internal and name in patterns),
                sorted(repartition.index(name) for name in decorated),
            )
        )
    return [
        Metadata.CopartitionGroup(source_topics=a, source_topic_regex=b, repartition_source_topics=c)
        for a, b, c in sorted(groups)
    ]
