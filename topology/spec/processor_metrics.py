"""Custom metrics, created and updated by a program's processors. They appear beside those of the runtime.

Source: org.apache.kafka.streams.StreamsMetrics.
"""

from __future__ import annotations

from typing import Protocol


class MetricCounter(Protocol):
    """A counter."""

    @property
    def total(self) -> float:
        """The count since the task started."""

    def add(self, count: float = 1) -> None:
        """Adds ``count``."""


class MetricLatency(Protocol):
    """Measurements in any unit: their recent mean and maximum, and their number."""

    @property
    def count(self) -> int:
        """The number of measurements since the task started."""

    @property
    def total(self) -> float:
        """The sum of all measurements since the task started."""

    def record(self, value: float) -> None:
        """Records a measurement."""


class ProcessorMetrics(Protocol):
    """Creates metrics; a second call for the same metric returns the same object. The metrics appear in
    :meth:`streamsrt.KafkaStreams.metrics` and on ``/metrics`` under ``group``, with the given tags, ``task-id`` and
    ``processor-node-id``. Each method raises UserError for an invalid name, group or tag (allowed: letters, digits,
    ``-`` and ``_``), for a group or tag that the runtime uses itself, and for a name that is already used for another
    kind of metric.
    """

    def counter(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> MetricCounter:
        """A metric ``NAME-total``."""

    def rate(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> MetricCounter:
        """The metrics ``NAME-total`` and ``NAME-rate``, which is per second (Java's ``addRateTotalSensor``)."""

    def latency(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> MetricLatency:
        """The metrics ``NAME-latency-avg`` and ``NAME-latency-max`` over the last 30 to 60 seconds, and ``NAME-total``
        and ``NAME-rate`` of the number of measurements (Java's ``addLatencyRateTotalSensor``).
        """
