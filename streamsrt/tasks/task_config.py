"""The settings that a task needs, out of those of the application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamsrt.config import RecordingLevel, StreamsConfig
from streamsrt.operators.engine.handlers import ExceptionHandlers, deserialization_handler_of, handler_of
from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.operators.engine.program_clock import ProgramClock
from topology.graph.nodes import Subtopology
from topology.spec.codecs import ProgramSerde
from topology.spec.functions import TimestampExtractor
from topology.spec.timestamps import timestamp_extractor


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """The settings of a task from the application's configuration.

    ``cache_max_bytes``: this task's share of ``statestore.cache.max.bytes``; 0 switches caching off, and changes are then
    forwarded and logged one by one. ``write_buffer_max_bytes``: what may wait for a commit to be written to the stores.
    """

    default_key_serde: ProgramSerde | None = None
    default_value_serde: ProgramSerde | None = None
    cache_max_bytes: int = 10 * 1024 * 1024
    write_buffer_max_bytes: int = 16 * 1024 * 1024
    max_task_idle_ms: int = 0
    handlers: ExceptionHandlers = field(default_factory=ExceptionHandlers)
    handles_global_processing: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    given_settings: Mapping[str, Any] = field(default_factory=dict)
    default_timestamp_extractor: TimestampExtractor | None = None
    generate: bool = True
    gathers_output: bool = True
    """Whether what processor nodes write may wait for the end of a run. If not, a record is refused where it is written."""
    outer_join_emit_interval_ms: int = 0
    recording_level: RecordingLevel = "INFO"
    is_measured: bool = True
    """Whether anybody reads the figures that the task's meter has at that level."""
    clock: ProgramClock = field(default_factory=ProgramClock, compare=False)
    """Of all tasks with these settings."""

    @classmethod
    def of(cls, config: StreamsConfig, tasks: int = 1) -> TaskConfig:
        """Returns the settings of each of ``tasks`` tasks. Raises ConfigError."""
        return cls(
            default_key_serde=config.default_key_serde,
            default_value_serde=config.default_value_serde,
            cache_max_bytes=config.record_cache_bytes // max(1, tasks),
            max_task_idle_ms=config.max_task_idle_ms,
            handlers=ExceptionHandlers(
                deserialization=deserialization_handler_of(
                    config.deserialization_exception_handler, "deserialization.exception.handler"
                ),
                processing=handler_of(config.processing_exception_handler, "processing.exception.handler"),
                production=handler_of(config.production_exception_handler, "production.exception.handler"),
                application_id=config.application_id,
                dead_letter_topic=config.errors_dead_letter_queue_topic_name,
            ),
            handles_global_processing=config.processing_exception_handler_global_enabled,
            default_timestamp_extractor=timestamp_extractor(config.default_timestamp_extractor),
            outer_join_emit_interval_ms=config.emit_interval_ms_kstreams_outer_join_spurious_results_fix,
            recording_level=config.metrics_recording_level,
            settings=config.settings(),
            given_settings=config.settings(only_given=True),
        )

    def resolved(self, subtopology: Subtopology, application_id: str) -> ResolvedSubtopology:
        """Returns a subtopology as these tasks run it."""
        return ResolvedSubtopology(
            subtopology=subtopology,
            application_id=application_id,
            default_key_serde=self.default_key_serde,
            default_value_serde=self.default_value_serde,
            caching=self.cache_max_bytes > 0,
            handlers=self.handlers,
            outer_join_emit_interval_ms=self.outer_join_emit_interval_ms,
            settings=self.settings,
            given_settings=self.given_settings,
            clock=self.clock,
        )
