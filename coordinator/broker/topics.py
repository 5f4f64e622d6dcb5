"""The existing topics: names, ids, partition counts and settings, durable in an internal log.

1. The registry is the replay of its log: one record per change of a topic, keyed by the topic's name, a tombstone for a
   deletion. A change is written before it is visible.
2. A topic that is deleted and created again has another id; its old id is never answered again, and its records never
   come back: what an interrupted deletion left is removed at the next start, and before the name is used again.
3. Partition logs are opened when the broker starts and when a topic is made; the registry owns them. The directories of
   a new partition are made before its record is written: a failure leaves neither.
4. Creating or deleting thousands of partitions takes long: it is done in steps, and other clients are served in between.
   A request that needs a topic which is being changed (its name, its partition count) finishes the change first: changes
   are seen in order.
5. Records of a topic that the registry's log has never heard of are set aside at a start, not deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import orjson

from coordinator.broker.config_definitions import TOPIC_CONFIGS, Value, parse_configs, topic_defaults
from coordinator.broker.keyed_log import KeyedLog
from coordinator.broker.slices import whole
from coordinator.group.settings import InvalidConfigError
from coordinator.log import (
    Fsync,
    LogClosedError,
    LogConfig,
    LogDirectory,
    LogError,
    LogStorageError,
    PartitionLog,
    TimestampType,
)
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire.compression import Compression
from streamsrt.wire.error_codes import ErrorCode

logger = logging.getLogger("coordinator.broker")

METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
BROKER_LOG = "__broker"
_COMPRESSIONS = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
"""The values of ``compression.type``."""
_COMPACTION_LAGS = {"min.compaction.lag.ms", "max.compaction.lag.ms"}
GROUP_CONFIGS_LOG = "__group_configs"
PRODUCER_IDS_LOG = "__producer_ids"
INTERNAL_LOGS = frozenset({METADATA_TOPIC, BROKER_LOG, GROUP_CONFIGS_LOG, PRODUCER_IDS_LOG})
"""Logs in the data directory that are no topics; no topic can have such a name."""

PARTITIONS_PER_REQUEST_MAX = 10_000
PARTITIONS_PER_STEP = 4
NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")


Steps: TypeAlias = "Generator[None, None, None]"


class TopicRefusedError(Exception):
    """A request about a topic is refused. ``error_code`` and the message are those of the response."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


class IdSource(Protocol):
    """Returns a new topic id: 16 random bytes."""

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
            f"Topic name {name[:NAME_LENGTH_MAX]!r} is illegal: it must have 1 to {NAME_LENGTH_MAX} of the characters "
            "a-z, A-Z, 0-9, '.', '_' and '-', and be neither '.' nor '..'.",
        )


def log_config(values: Mapping[str, Value], fsync: Fsync, unpacked_bytes_max: int) -> LogConfig:
    """Returns the settings of a partition's log, from the topic's settings and those that only the broker has."""

    def number(key: str) -> int:
        value = values[key]
        assert isinstance(value, int)
        return value

    policy, dirty_ratio = values["cleanup.policy"], values["min.cleanable.dirty.ratio"]
    assert isinstance(policy, tuple)
    assert isinstance(dirty_ratio, int | float)
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
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        delete_retention_ms=number("delete.retention.ms"),
        min_cleanable_dirty_ratio=dirty_ratio,
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        compression=_COMPRESSIONS[str(values["compression.type"])],
        unpacked_bytes_max=unpacked_bytes_max,
    )


class _Change:
    """A change of one topic, in steps. ``error``: why it failed."""

    def __init__(self, name: str, steps: Steps) -> None:
        self._name = name
        self._steps = steps
        self.is_over = False
        self.error: BaseException | None = None

    def step(self) -> None:
        """Does nothing when the change is over."""
        if self.is_over:
            return
        try:
            next(self._steps)
        except StopIteration:
            self.is_over = True
        except LogError as error:
            self.is_over, self.error = True, error
        except BaseException as error:
            # Whoever needs the topic may be the one that makes the step: the originator has to hear of it, too.
            self.is_over, self.error = True, error
            raise

    def end(self) -> None:
        """Undoes an incomplete change."""
        self._steps.close()
        if not self.is_over:
            self.is_over, self.error = True, LogClosedError(f"topic {self._name} was not changed: the broker stops")


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
        self._unpacked_bytes_max = int(str(broker_configs["message.max.unpacked.bytes"]))
        self._new_id = new_id
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._rows = KeyedLog(directory, METADATA_TOPIC, fsync=fsync)
        self._image: TopicsImage | None = None
        self._unfinished: dict[str, _Change] = {}

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

    def _log_config(self, values: Mapping[str, Value]) -> LogConfig:
        return log_config(values, self._fsync, self._unpacked_bytes_max)

    @property
    def log(self) -> PartitionLog:
        """The registry's own log."""
        return self._rows.log

    @property
    def defaults(self) -> Mapping[str, Value]:
        return self._defaults

    def image(self) -> TopicsImage:
        """Returns the topics as the group machines see them: the same object until something changes."""
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

    def renew_image(self) -> None:
        """Makes the next image a new object: the topics are the same, but what may be seen of them has changed."""
        self._image = None

    # ----------------------------------------------------------------------------------------------------------- change

    def load(self) -> None:
        """Replays the registry's log and opens every partition."""
        rows = {name: orjson.loads(value) for name, value in self._rows.load().items()}
        self._remove_strays({name: row["partitions"] for name, row in rows.items()})
        for name, row in rows.items():
            topic = Topic(name, bytes.fromhex(row["id"]), row["configs"])
            config = self._log_config(self.effective_configs(topic))
            topic.partitions += [self._directory.partition(name, i, config) for i in range(row["partitions"])]
            self._publish(topic)

    def check_create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Raises :class:`TopicRefusedError` where :meth:`create` would."""
        check_name(name)
        self._finish(name)
        if name in self._topics:
            raise TopicRefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if name in INTERNAL_LOGS:
            raise TopicRefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is the broker's own.")
        self._check_collision(name)
        if partitions <= 0:
            raise TopicRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"Number of partitions was set to an invalid non-positive value {partitions}.",
            )
        self.check_configs(configs)

    def _check_collision(self, name: str) -> None:
        """Checks Kafka's rule for metric names: '.' and '_' count as the same character."""
        if "." not in name and "_" not in name:
            return
        folded = name.replace(".", "_")
        for other in (*self._topics, *self._unfinished):
            if other.replace(".", "_") == folded:
                raise TopicRefusedError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def check_configs(self, configs: Mapping[str, str]) -> None:
        try:
            parsed = {**self._defaults, **parse_configs(configs, TOPIC_CONFIGS, what="topic")}
            config = self._log_config(parsed)
        except ValueError as error:
            raise TopicRefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms and configs.keys() & _COMPACTION_LAGS:
            raise TopicRefusedError(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
            )

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Makes a topic, durably. Raises :class:`TopicRefusedError`, or the log's errors."""
        return whole(self.creating(name, partitions, configs))

    def creating(self, name: str, partitions: int, configs: Mapping[str, str]) -> Generator[None, None, Topic]:
        """As :meth:`create`, in steps."""
        self.check_create(name, partitions, configs)
        topic = Topic(name, self._new_id(), dict(configs))
        yield from self._change(name, self._grow(topic, partitions))
        return topic

    def _change(self, name: str, steps: Steps) -> Steps:
        change = self._unfinished[name] = _Change(name, steps)
        try:
            while True:
                change.step()
                if change.is_over:
                    break
                yield
        finally:
            self._unfinished.pop(name, None)
            change.end()
        if change.error is not None:
            raise change.error

    def is_changing(self, name: str | None) -> bool:
        """Whether a change of this topic is under way."""
        return name in self._unfinished

    def _finish(self, name: str) -> None:
        """Completes a change that is under way; its originator gets the result."""
        change = self._unfinished.get(name)
        while change is not None and not change.is_over:
            change.step()

    def delete(self, topic: Topic) -> None:
        """Removes a topic with its records."""
        whole(self.deleting(topic))

    def deleting(self, topic: Topic) -> Steps:
        """As :meth:`delete`, in steps: the topic is gone after the first."""
        self._finish(topic.name)
        self._rows.put(topic.name, None)
        del self._topics[topic.name], self._by_id[topic.id]
        self._changed()
        with contextlib.suppress(LogClosedError):  # The next start removes what is left.
            yield from self._change(topic.name, self._remove(topic))

    def _remove(self, topic: Topic) -> Steps:
        for partition in range(len(topic.partitions)):
            if partition and not partition % PARTITIONS_PER_STEP:
                yield
            try:
                self._directory.delete(topic.name, partition)
            except OSError as error:
                logger.warning(
                    "%s-%d could not be deleted; the next start deletes it: %s", topic.name, partition, error
                )

    def check_growth(self, topic: Topic, count: int) -> None:
        """Raises :class:`TopicRefusedError` where :meth:`add_partitions` would."""
        self._finish(topic.name)
        present = len(topic.partitions)
        if count <= present:
            raise TopicRefusedError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase.",
            )

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Raises the number of partitions to ``count``. Raises :class:`TopicRefusedError`, or the log's errors."""
        whole(self.adding_partitions(topic, count))

    def adding_partitions(self, topic: Topic, count: int) -> Steps:
        """As :meth:`add_partitions`, in steps."""
        self.check_growth(topic, count)
        yield from self._change(topic.name, self._grow(topic, count))

    def set_configs(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Replaces the topic's own settings. Raises :class:`TopicRefusedError`."""
        self.check_configs(configs)
        before = topic.configs
        topic.configs = dict(configs)
        try:
            self._write(topic)
        except LogError:
            topic.configs = before
            raise
        config = self._log_config(self.effective_configs(topic))
        for log in topic.partitions:
            log.config = config
        self._changed()

    def set_defaults(self, broker_configs: Mapping[str, Value]) -> None:
        """Takes new settings of the broker; they hold at once for topics that don't set their own."""
        self._defaults = topic_defaults(broker_configs)
        for topic in self._topics.values():
            config = self._log_config(self.effective_configs(topic))
            for log in topic.partitions:
                log.config = config

    def close(self) -> None:
        for change in self._unfinished.values():
            change.end()
        self._topics.clear()
        self._by_id.clear()

    # -------------------------------------------------------------------------------------------------------- internals

    def _grow(self, topic: Topic, count: int) -> Steps:
        """Makes partitions, then writes and shows that they are there; after a failure, or a stop, there is neither."""
        present, made = len(topic.partitions), list[PartitionLog]()
        config = self._log_config(self.effective_configs(topic))
        try:
            for partition in range(present, count):
                if made and not len(made) % PARTITIONS_PER_STEP:
                    yield
                if self._directory.partition_path(topic.name, partition).exists():
                    self._directory.delete(topic.name, partition)
                made.append(self._directory.partition(topic.name, partition, config))
            topic.partitions += made
            self._write(topic)
        except OSError as error:
            self._shrink(topic, present, count)
            raise LogStorageError(
                self._directory.path, error, f"topic {topic.name} could not get partitions"
            ) from error
        except (LogError, GeneratorExit):
            self._shrink(topic, present, count)
            raise
        # The settings may be others than those of the beginning.
        config = self._log_config(self.effective_configs(topic))
        for log in made:
            log.config = config
        self._publish(topic)

    def _shrink(self, topic: Topic, present: int, count: int) -> None:
        del topic.partitions[present:]
        for partition in range(present, count):
            if self._directory.partition_path(topic.name, partition).exists():
                with contextlib.suppress(OSError):
                    self._directory.delete(topic.name, partition)

    def _remove_strays(self, known: Mapping[str, int]) -> None:
        """Removes what an interrupted creation or deletion left; what else belongs to no topic is set aside."""
        for name, partition in self._directory.partitions():
            if name in INTERNAL_LOGS or partition < known.get(name, 0):
                continue
            path = self._directory.partition_path(name, partition)
            if name in self._rows.removed or not any(file.stat().st_size for file in path.glob("*.log")):
                self._directory.delete(name, partition)
                continue
            target = path.with_name(f"{path.name}.stray")
            os.rename(path, target)
            logger.warning(
                "%s has records of a topic that this broker does not know: it was renamed to %s. Delete it, or "
                "create the topic, stop the broker and put its files back",
                path,
                target.name,
            )

    def _publish(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.id] = topic
        self._changed()

    def _changed(self) -> None:
        self._image = None

    def _write(self, topic: Topic) -> None:
        row = {"id": topic.id.hex(), "partitions": len(topic.partitions), "configs": topic.configs}
        self._rows.put(topic.name, orjson.dumps(row))


__all__ = [
    "INTERNAL_LOGS",
    "InvalidConfigError",
    "Topic",
    "TopicRefusedError",
    "TopicRegistry",
    "check_name",
    "log_config",
]
