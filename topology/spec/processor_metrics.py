"""Metrics of a program's own, which its processors count: they appear beside those of the runtime.

Source: org.apache.kafka.streams.StreamsMetrics.
"""

from __future__ import annotations

from typing import Protocol


class MetricCounter(Protocol):
    """What is counted."""

    @property
    def total(self) -> float:
        """How much it is since the task began."""

    def add(self, count: float = 1) -> None:
        """There was one more, or so many."""


class MetricLatency(Protocol):
    """What is measured, in whatever unit: of late it has a mean and a maximum, and it is counted."""

    @property
    def count(self) -> int:
        """How often it was measured since the task began."""

    @property
    def total(self) -> float:
        """The sum of all measurements since the task started."""

    def record(self, value: float) -> None:
        """It was measured."""


class ProcessorMetrics(Protocol):
    """Creates metrics; a second call for the same metric returns the same object. The metrics appear in
    :meth:`streamsrt.KafkaStreams.metrics` and on ``/metrics`` under ``group``, with the tags that
    are given, ``task-id`` and ``processor-node-id``. Each method raises UserError for a name, group or tag that is none
    (letters, digits, ``-`` and ``_``), for a group or tag of the runtime's own, and for a name that is of another kind
    already.
    """

    def counter(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> MetricCounter:
        """A metric ``NAME-total``."""

    def rate(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> MetricCounter:
        """The metrics ``NAME-total`` and ``NAME-rate``, which is per second (Java's ``addRateTotalSensor``)."""

    def latency(self, name: str, *, group: str = "user-metrics", description: str = "", **tags: str) -> MetricLatency:
        """The metrics ``NAME-latency-avg`` and ``NAME-latency-max``, of the last half minute to minute, ``NAME-total`` and
        ``NAME-rate``, of how often it was measured (Java's ``addLatencyRateTotalSensor``)."""
