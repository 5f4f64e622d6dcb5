"""The counters of a task: updated once per run of records and per iteration, never per record.

1. Values that differ per record are sampled: from each run some :data:`SAMPLE` timestamps, and the latest one; from
   short runs (alternating partitions) only from one in several. If a task is ``exact`` (``metrics.recording.level``
   DEBUG and up), every record counts, and there are counters of nodes and stores.
2. The records that a task has produced are the difference in the collector's counts per topic, because tasks work one
   after another.
3. Latencies are wall-clock time minus the record's timestamp, at the start of the iteration, in milliseconds. The wall clock
   is the one that programs see; all else goes by the steady clock. Durations are in nanoseconds of ``clock_ns``.

Source: org.apache.kafka.streams.processor.internals.metrics (TaskMetrics, TopicMetrics, ProcessorNodeMetrics).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from operator import sub
from typing import TypeAlias

from streamsrt.config import RecordingLevel
from streamsrt.operators.engine.node_meter import NodeMeter, RecordAges, node_meters
from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.operators.engine.program_clock import ProgramClock
from streamsrt.sensors import Spread, Work
from streamsrt.state.buffer import SuppressionBuffer
from streamsrt.state.timed import StoreMeter
from streamsrt.tasks.output.record_collector import RecordCollector
from streamsrt.wire.records.columns import Times
from topology.graph.nodes import SourceNode

SAMPLE = 16

TopicPartition: TypeAlias = tuple[str, int]


class SourceMeter:
    """The records processed of one topic. ``latency``: of its node's records when they were processed, in milliseconds."""

    __slots__ = ("_since", "latency", "records")

    def __init__(self, latency: RecordAges) -> None:
        self.records = 0
        self.latency = latency
        self._since = 0

    def done(self, timestamps: Times, latest: int, now_ms: int) -> None:
        """Counts a run of records, whose latest timestamp is ``latest``."""
        count = len(timestamps)
        self.records += count
        if count <= SAMPLE:
            self._since += count
            if self._since < SAMPLE:
                return
            self._since = 0
            some = timestamps
        else:
            some = timestamps[:: count // SAMPLE]
        self.measured(some if isinstance(some, list) else some.tolist(), latest, now_ms)

    def measured(self, some: list[int], latest: int, now_ms: int) -> None:
        """Measures the latency of these records."""
        self.latency.came(now_ms, len(some), sum(some), min(some), latest)


class SinkMeter:
    """The records produced to one topic. ``latency``: of its node's records when they were produced, in milliseconds."""

    __slots__ = ("_unweighed", "bytes", "latency", "records")

    def __init__(self, latency: RecordAges) -> None:
        self.records = 0
        self.bytes = 0
        self.latency = latency
        self._unweighed = 0

    def produced(self, records: int, times: list[int], record_bytes: float, now_ms: int) -> None:
        """Counts produced records. ``record_bytes``: their average size in a batch, 0.0 if unknown."""
        self.records += records
        self._unweighed += records
        if record_bytes:
            self.bytes += round(self._unweighed * record_bytes)
            self._unweighed = 0
        if times:
            self.latency.came(now_ms, len(times), sum(times), min(times), max(times))


class TaskMeter:
    """The counters of one task. ``sinks``: the name of the sink node by topic; ``chosen``: of the sink whose topics are
    chosen per record."""

    def __init__(
        self,
        collector: object,
        sinks: Mapping[str, str],
        chosen: str | None,
        other_topics: Collection[str],
        *,
        exact: bool,
        clock: ProgramClock,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.exact = exact
        self._clock = clock
        self.clock_ns = clock_ns
        self.process = Work()
        self.punctuate = Work()
        self.lateness = Spread()
        self.sources: dict[str, SourceMeter] = {}
        self.sinks: dict[tuple[str, str], SinkMeter] = {}
        """By sink node and topic."""
        self.latencies: dict[str, RecordAges] = {}
        """Of source and sink nodes."""
        self.source_nodes: Mapping[str, SourceNode] = {}
        """By topic; the task's to fill in."""
        self.nodes: dict[str, NodeMeter] = {}
        self.stores: dict[str, StoreMeter] = {}
        """Where it is exact."""
        self.buffers: dict[str, tuple[Spread, Spread]] = {}
        """Of suppressions, where it is exact: how many changes are held back, and how many bytes."""
        self._collector = collector if isinstance(collector, RecordCollector) else None
        self._sinks = sinks
        self._chosen = chosen
        self._other_topics = other_topics

    def done(self, topic: str, timestamps: Times, latest: int, now_ms: int, stream_time_ms: int) -> None:
        """Counts a processed run of records. ``stream_time_ms``: the stream time before it."""
        source = self.sources.get(topic)
        if source is None:
            source = self.sources[topic] = SourceMeter(self._latency(self.source_nodes[topic].name))
        if not self.exact:
            source.done(timestamps, latest, now_ms)
            return
        exact = timestamps if isinstance(timestamps, list) else timestamps.tolist()
        source.records += len(exact)
        source.measured(exact, latest, now_ms)
        times = list(accumulate(exact, max, initial=stream_time_ms))[1:]
        late = list(map(sub, times, exact))
        self.lateness.add(now_ms, len(late), sum(late), min(late), max(late))

    def _latency(self, node: str) -> RecordAges:
        return self.latencies.setdefault(node, RecordAges(self._clock))

    def iterated(self, began_ns: int, records: int, now_ms: int) -> None:
        """Counts an iteration that processed this many records."""
        self.process.add(began_ns, self.clock_ns(), records)
        self.sample(now_ms)

    def measure_buffers(self, held_back: Mapping[str, SuppressionBuffer], now_ms: int) -> None:
        """Measures what suppressions hold back. Called after an iteration if ``exact`` is set."""
        for name, buffer in held_back.items():
            counts, sizes = self.buffers.setdefault(name, (Spread(), Spread()))
            if not buffer.counts_bytes:
                buffer.count_bytes()
            counts.one(now_ms, len(buffer))
            sizes.one(now_ms, buffer.size_in_bytes)

    def punctuated(self, began_ns: int, ran: int, now_ms: int) -> None:
        """Counts punctuations."""
        self.punctuate.add(began_ns, self.clock_ns(), ran)
        self.sample(now_ms)

    def sample(self, now_ms: int) -> None:
        """Reads the collector's counts. Called before another task works."""
        collector = self._collector
        if collector is None:
            return
        if self._chosen is not None:
            for topic in collector.topics:
                if topic not in self._sinks and topic not in self._other_topics:
                    self._take(collector, self._chosen, topic, now_ms)
        for topic, sink in self._sinks.items():
            self._take(collector, sink, topic, now_ms)

    def _take(self, collector: RecordCollector, sink: str, topic: str, now_ms: int) -> None:
        records, times = collector.take_produced(topic)
        if records:
            meter = self.sinks.get((sink, topic))
            if meter is None:
                meter = self.sinks[sink, topic] = SinkMeter(self._latency(sink))
            meter.produced(records, times, collector.record_bytes(topic), now_ms)


class UnreadMeter(TaskMeter):
    """The counters of a task that nobody reads: they count nothing."""

    def done(self, topic: str, timestamps: Times, latest: int, now_ms: int, stream_time_ms: int) -> None:
        """Does nothing, as the others."""

    def iterated(self, began_ns: int, records: int, now_ms: int) -> None: ...
    def punctuated(self, began_ns: int, ran: int, now_ms: int) -> None: ...
    def sample(self, now_ms: int) -> None: ...


def task_meter(
    plan: ResolvedSubtopology, collector: object, level: RecordingLevel, *, is_read: bool = True
) -> TaskMeter:
    """Creates the counters of a task. ``is_read`` False: nobody reads them."""
    subtopology = plan.subtopology
    sinks = {
        plan.topic(sink.topic, sink.repartition): sink.name for sink in subtopology.sinks if sink.topic is not None
    }
    chosen = next((sink.name for sink in subtopology.sinks if sink.topic is None), None)
    others = {topic for spec in subtopology.stores if (topic := plan.changelog_topic(spec.name)) is not None}
    if plan.handlers.dead_letter_topic is not None:
        others.add(plan.handlers.dead_letter_topic)
    if not is_read:
        return UnreadMeter(collector, sinks, chosen, others, exact=False, clock=plan.clock, clock_ns=int)
    meter = TaskMeter(collector, sinks, chosen, others, exact=level != "INFO", clock=plan.clock)
    if level != "INFO":
        meter.nodes = node_meters(plan, at_stores=level == "TRACE")
        meter.stores = {spec.name: StoreMeter() for spec in subtopology.stores}
    return meter
