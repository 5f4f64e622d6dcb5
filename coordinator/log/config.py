"""Settings of one partition's log: values with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamsrt.wire.compression import Compression

#: Records are kept for a week unless the topic says otherwise (``log.retention.hours``).
WEEK_MS = 7 * 24 * 60 * 60 * 1000
FOREVER_MS = (1 << 63) - 1


class Fsync(Enum):
    """When appended bytes are forced to disk.

    A killed *process* loses nothing in any of the three: the bytes are the kernel's as soon as ``append`` returns.
    Only ``GROUP`` survives a power loss with every acknowledged record: the caller acknowledges after
    :meth:`coordinator.log.fsync.Syncer.sync`. ``INTERVAL`` bounds what a power loss takes by the syncer's interval,
    ``NEVER`` leaves it to the kernel. Segments that were rolled are synced in the background in all three.
    """

    NEVER = "never"
    INTERVAL = "interval"
    GROUP = "group"


class TimestampType(Enum):
    """``message.timestamp.type``: whose clock the records carry."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition's log. ``-1`` means no limit for the two retentions, as in Kafka.

    ``segment_ms`` counts by the broker's clock from the first append to a segment; Kafka counts by the records'
    timestamps, which cuts a backfill of old records into needlessly many segments. ``compression`` is the codec that
    batches of producers are put into; None leaves them as they are. ``unpacked_bytes_max`` bounds what one of them may hold
    when it is unpacked, each record and header counting :data:`~coordinator.log.contents.RECORD_COST_BYTES` more than its
    bytes.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = WEEK_MS
    retention_bytes: int = -1
    retention_ms: int = WEEK_MS
    index_interval_bytes: int = 4096
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    fsync: Fsync = Fsync.INTERVAL
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    max_message_bytes: int = 1_048_588
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = FOREVER_MS
    producer_id_expiration_ms: int = 24 * 60 * 60 * 1000
    delete_retention_ms: int = 24 * 60 * 60 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    compression: Compression | None = None
    unpacked_bytes_max: int = 64 << 20

    def __post_init__(self) -> None:
        if not 14 <= self.segment_bytes < 1 << 31:
            raise ValueError(f"segment_bytes must be 14 to {(1 << 31) - 1}, not {self.segment_bytes}")
        if self.segment_ms < 1 or self.index_interval_bytes < 0 or self.max_message_bytes < 0:
            raise ValueError("segment_ms must be positive; index_interval_bytes and max_message_bytes not negative")
        if unknown := self.cleanup_policy - {"delete", "compact"}:
            raise ValueError(f"cleanup_policy is delete or compact, not {', '.join(sorted(unknown))}")

    @property
    def is_compacted(self) -> bool:
        """Whether only the last record of each key has to stay."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How long a segment may be appended to: one that is never closed is never compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms
