"""Settings that all tasks of a member share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamsrt.tasks.task_config import TaskConfig
from topology.graph.nodes import Subtopology


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Settings that all tasks of a member share. ``subtopologies``: by the id that the group uses."""

    application_id: str
    subtopologies: Mapping[str, Subtopology]
    task_config: TaskConfig
    cache_max_bytes: int
    auto_offset_reset: str
    input_buffer_bytes: int
    """Of one partition."""
    partitions_of_topic: Callable[[str], int]
    """Of an output topic, for a result. Raises MissingTopicError, DeliveryTimeoutError."""
    note_partitions: Callable[[Mapping[str, int]], None] = lambda counts: None
    """Told how many partitions output topics have, before tasks write to them."""
    all_input_bytes: int = 64 << 20
    uncommitted_max_bytes: int = 16 << 20
    task_timeout_ms: int = 300_000
    state_cleanup_delay_ms: int = 600_000
    may_be_beside_java: bool = False
    """Whether members of Java's Kafka Streams may lead the group."""
