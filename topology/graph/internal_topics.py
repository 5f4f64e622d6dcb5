"""Topics that the coordinator creates for an application, and their settings.

1. A key-value changelog is compacted. A window changelog is compacted and also deleted, a day after the store's retention;
   one with duplicates can't be compacted. That of a versioned store is not compacted for its history and a day.
2. Records of a repartition topic never expire: the application deletes them itself.
3. ``topic.`` settings of the application override these defaults, except the retention of a window changelog. Settings
   of a single store override everything.

Source: InternalTopicManager, WindowedChangelogTopicConfig, RepartitionTopicConfig and friends of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from topology.graph.nodes import InternalTopic, StoreSpec
from topology.graph.store_kinds import Cleanup, store_traits
from topology.spec.windows import END_OF_TIME_MS

ADDITIONAL_RETENTION_KEY = "windowstore.changelog.additional.retention.ms"
ADDITIONAL_RETENTION_MS = 24 * 60 * 60 * 1000
ADDITIONAL_COMPACTION_LAG_MS = 24 * 60 * 60 * 1000
TOPIC_PREFIX = "topic."

_ALL = {"message.timestamp.type": "CreateTime"}
_CLEANUP_POLICY = {
    Cleanup.COMPACT: "compact",
    Cleanup.COMPACT_DELETE: "compact,delete",
    Cleanup.DELETE: "delete",
    Cleanup.HISTORY: "compact",
}
_REPARTITION = {"cleanup.policy": "delete", "segment.bytes": "52428800", "retention.ms": "-1"}


def changelog_topic(store: StoreSpec, config: Mapping[str, object]) -> InternalTopic:
    """The changelog of a store. ``config``: of the application."""
    cleanup = store_traits(store).cleanup
    settings = {**_ALL, "cleanup.policy": _CLEANUP_POLICY[cleanup], **topic_settings(config)}
    if cleanup in {Cleanup.COMPACT_DELETE, Cleanup.DELETE}:
        additional_ms = int(str(config.get(ADDITIONAL_RETENTION_KEY, ADDITIONAL_RETENTION_MS)))
        settings["retention.ms"] = str(min((store.retention_ms or 0) + additional_ms, END_OF_TIME_MS))
    if cleanup is Cleanup.HISTORY:
        settings["min.compaction.lag.ms"] = str(
            min((store.retention_ms or 0) + ADDITIONAL_COMPACTION_LAG_MS, END_OF_TIME_MS)
        )
    settings |= dict(store.changelog_configs)
    return InternalTopic(
        name=store.changelog_name,
        kind="changelog",
        configs=tuple(sorted(settings.items())),
        is_source=store.source_topic is not None,
    )


def changelog_topics(stores: Iterable[StoreSpec], config: Mapping[str, object]) -> tuple[InternalTopic, ...]:
    """The changelogs of those stores that have one, by name."""
    topics = [changelog_topic(store, config) for store in stores if store.logging or store.source_topic is not None]
    return tuple(sorted(topics, key=lambda topic: topic.name))


def deleted_after_ms(configs: Mapping[str, str | None]) -> int | None:
    """How old records of a topic with these settings are when the broker deletes them; None: their age does not matter."""
    retention_ms = int(configs.get("retention.ms") or -1)
    is_own_time = configs.get("message.timestamp.type") != "LogAppendTime"
    is_deleted = "delete" in (configs.get("cleanup.policy") or "") and is_own_time and retention_ms >= 0
    return retention_ms if is_deleted else None


def repartition_topic(name: str, partitions: int | None, config: Mapping[str, object]) -> InternalTopic:
    """A repartition topic. ``config``: of the application."""
    settings = {**_ALL, **_REPARTITION, **topic_settings(config)}
    return InternalTopic(name=name, kind="repartition", partitions=partitions, configs=tuple(sorted(settings.items())))


def topic_settings(config: Mapping[str, object]) -> dict[str, str]:
    """The settings of the application for all of its internal topics."""
    return {key.removeprefix(TOPIC_PREFIX): str(value) for key, value in config.items() if key.startswith(TOPIC_PREFIX)}
