"""Which topics there are: names, ids, partition counts and settings, durable in an internal log.

1. The registry is the replay of its log: one record per change of a topic, keyed by the topic's name, a tombstone for a
   deletion. A change is written before it is visible.
2. A topic that is deleted and created again has another id; its old id is never answered again.
3. Partition logs are opened when the broker starts and when a topic is made; the registry owns them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from coordinator.broker.config_definitions import (
    TOPIC_CONFIGS,
    InvalidConfigError,
    Value,
    parse_configs,
    topic_defaults,
)
from coordinator.broker.keyed_log import KeyedLog
from coordinator.group.values import TopicImage, TopicsImage
from coordinator.log import Fsync, LogConfig, LogDirectory, PartitionLog, TimestampType
from streamsrt.wire.error_codes import ErrorCode

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, "__transaction_state"})
NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")


class TopicRefusedError(Exception):
    """A request about a topic can't be done. ``error_code`` is the answer's, the message its text."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class IdSource(Protocol):
    """Where new topic ids come from: 16 random bytes."""

    def __call__(self) -> bytes: ...


@dataclass(slots=True)
class Topic:
    """One topic. ``configs`` holds only what was set for it, as text."""

    name: str
    id: bytes
    configs: dict[str, str]
    partitions: list[PartitionLog] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def check_name(name: str) -> None:
    """Raises :class:`TopicRefusedError` for a name that Kafka does not allow."""
    if name in {"", ".", ".."} or len(name) > NAME_LENGTH_MAX or not _LEGAL_NAME.fullmatch(name):
        raise TopicRefusedError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic name {name!r} is illegal: it must have 1 to {NAME_LENGTH_MAX} of the characters "
            "a-z, A-Z, 0-9, '.', '_' and '-', and be neither '.' nor '..'.",
        )


def log_config(values: Mapping[str, Value], fsync: Fsync) -> LogConfig:
    """The settings of a partition's log out of a topic's settings."""

    def number(key: str) -> int:
        value = values[key]
        assert isinstance(value, int)
        return value

    policy = values["cleanup.policy"]
    assert isinstance(policy, tuple)
    return LogConfig(
        segment_bytes=number("segment.bytes"),
        segment_ms=number("segment.ms"),
        retention_bytes=number("retention.bytes"),
        retention_ms=number("retention.ms"),
        index_interval_bytes=number("index.interval.bytes"),
        cleanup_policy=frozenset(policy),
        fsync=fsync,
        message_timestamp_type=TimestampType(values["message.timestamp.type"]),
        max_message_bytes=number("max.message.bytes"),
    )


class TopicRegistry:
    """All topics of the broker and their partition logs."""

    def __init__(
        self,
        directory: LogDirectory,
        broker_configs: Mapping[str, Value],
        *,
        fsync: Fsync,
        new_id: IdSource,
    ) -> None:
        self._directory = directory
        self._defaults = topic_defaults(broker_configs)
        self._fsync = fsync
        self._new_id = new_id
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._rows = KeyedLog(directory, METADATA_TOPIC, fsync=fsync)
        self._image: TopicsImage | None = None
        self.version = 0

    # ------------------------------------------------------------------------------------------------------------ read

    def __iter__(self) -> Iterator[Topic]:
        return iter(sorted(self._topics.values(), key=lambda topic: topic.name))

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def effective_configs(self, topic: Topic) -> dict[str, Value]:
        """Every setting of the topic: its own, else the broker's, else Kafka's default."""
        own = {key: TOPIC_CONFIGS[key].parse(text) for key, text in topic.configs.items()}
        return {**self._defaults, **own}

    @property
    def defaults(self) -> Mapping[str, Value]:
        return self._defaults

    def image(self) -> TopicsImage:
        """The topics as the group machines see them; the same object until something changes."""
        if self._image is None:
            self._image = TopicsImage(
                {
                    topic.name: TopicImage(
                        id=topic.id, name=topic.name, partitions=len(topic.partitions), configs=topic.configs
                    )
                    for topic in self
                }
            )
        return self._image

    # ----------------------------------------------------------------------------------------------------------- change

    def load(self) -> None:
        """Replays the registry's log and opens every partition."""
        for name, value in self._rows.load().items():
            row = orjson.loads(value)
            topic = Topic(name, bytes.fromhex(row["id"]), row["configs"])
            self._open(topic, row["partitions"])

    def check_create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Raises :class:`TopicRefusedError` where :meth:`create` would."""
        check_name(name)
        if name in self._topics:
            raise TopicRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name == METADATA_TOPIC:
            raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is the broker's own.")
        if partitions <= 0:
            raise TopicRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"Number of partitions was set to an invalid non-positive value {partitions}.",
            )
        self.check_configs(configs)

    def check_configs(self, configs: Mapping[str, str]) -> None:
        try:
            parsed = {**self._defaults, **parse_configs(configs, TOPIC_CONFIGS, what="topic")}
            log_config(parsed, self._fsync)
        except ValueError as error:
            raise TopicRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Makes a topic, durably. Raises :class:`TopicRefusedError`, or the log's errors."""
        self.check_create(name, partitions, configs)
        topic = Topic(name, self._new_id(), dict(configs))
        self._write(topic, partitions)
        self._open(topic, partitions)
        return topic

    def delete(self, topic: Topic) -> None:
        """Removes a topic with its records."""
        self._rows.put(topic.name, None)
        del self._topics[topic.name], self._by_id[topic.id]
        self._changed()
        for partition in range(len(topic.partitions)):
            self._directory.delete(topic.name, partition)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Raises the number of partitions to ``count``. Raises :class:`TopicRefusedError`."""
        present = len(topic.partitions)
        if count <= present:
            raise TopicRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase.",
            )
        self._write(topic, count)
        self._open(topic, count)

    def set_configs(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Replaces the topic's own settings. Raises :class:`TopicRefusedError`."""
        self.check_configs(configs)
        before = topic.configs
        topic.configs = dict(configs)
        try:
            self._write(topic, len(topic.partitions))
        except Exception:
            topic.configs = before
            raise
        config = log_config(self.effective_configs(topic), self._fsync)
        for log in topic.partitions:
            log.config = config
        self._changed()

    def close(self) -> None:
        self._topics.clear()
        self._by_id.clear()

    # -------------------------------------------------------------------------------------------------------- internals

    def _open(self, topic: Topic, count: int) -> None:
        config = log_config(self.effective_configs(topic), self._fsync)
        for partition in range(len(topic.partitions), count):
            topic.partitions.append(self._directory.partition(topic.name, partition, config))
        self._topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self._changed()

    def _changed(self) -> None:
        self._image = None
        self.version += 1

    def _write(self, topic: Topic, partitions: int) -> None:
        row = {"id": topic.id.hex(), "partitions": partitions, "configs": topic.configs}
        self._rows.put(topic.name, orjson.dumps(row))


__all__ = ["InvalidConfigError", "Topic", "TopicRefusedError", "TopicRegistry", "check_name", "log_config"]
