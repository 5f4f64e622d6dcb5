"""Subtopologies written as lines: ``0: source=a,b pattern=p.* sink=r repartition=r:7 changelog=c together=a+r``."""

from __future__ import annotations

from streamsrt.wire.types import StreamsGroupHeartbeatRequest as Heartbeat

INTERNAL_CONFIGS = {"changelog": {"cleanup.policy": "compact"}, "repartition": {"cleanup.policy": "delete"}}


def subtopology(line: str) -> Heartbeat.Subtopology:
    name, _, rest = line.partition(":")
    part = Heartbeat.Subtopology(subtopology_id=name)
    groups = []
    for word in rest.split():
        key, _, value = word.partition("=")
        for item in value.split(","):
            if key == "source":
                part.source_topics.append(item)
            elif key == "pattern":
                part.source_topic_regex.append(item)
            elif key == "sink":
                part.repartition_sink_topics.append(item)
            elif key == "together":
                groups.append(item.split("+"))
            else:
                topic, _, count = item.partition(":")
                configs = [Heartbeat.KeyValue(key=k, value=v) for k, v in INTERNAL_CONFIGS[key].items()]
                info = Heartbeat.TopicInfo(
                    name=topic, partitions=int(count or 0), replication_factor=-1, topic_configs=configs
                )
                (part.state_changelog_topics if key == "changelog" else part.repartition_source_topics).append(info)
    repartitions = [info.name for info in part.repartition_source_topics]
    for group in groups:
        part.copartition_groups.append(
            Heartbeat.CopartitionGroup(
                source_topics=[part.source_topics.index(n) for n in group if n in part.source_topics],
                source_topic_regex=[part.source_topic_regex.index(n) for n in group if n in part.source_topic_regex],
                repartition_source_topics=[repartitions.index(n) for n in group if n in repartitions],
            )
        )
    return part
