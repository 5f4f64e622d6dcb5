"""Replaying a task offline: the live task over frozen inputs, with its stores in memory.

1. It is the same :class:`~streamsrt.tasks.task.Task` as live, with the same handlers, and the order of
   :mod:`streamsrt.backfill.order`.
2. Nothing is committed but when caches are full, when a processor asks for it, and at the end. So what a cached store
   forwards and logs is the last value of each key, as live with a commit interval without end; with caching off, and for
   stateless steps, every record that live would write is written, in the same order per partition.
3. Of a changelog only the last value of each key is kept. Deleted keys have none: the changelog was empty before.
4. Stream-time punctuations run as they do live. The wall clock stands still, so wall-clock punctuations never run.
5. A record that fails goes to the application's own exception handlers; where they say fail, the task fails for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.order import Inputs
from streamsrt.state.kinds import lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.partition_group import TopicPartition
from streamsrt.tasks.record_collector import Keys, RecordCollector, Sink
from streamsrt.tasks.task import Task, TaskConfig
from streamsrt.wire.compression import Compression
from streamsrt.wire.records import Headers, RecordColumns
from topology.graph.nodes import Subtopology

CACHE_MAX_BYTES = 512 << 20
RUN_RECORDS = 20_000
_MORE_TO_COME = 1 << 62
_NOTHING_MORE = -(1 << 62)
"""Below every offset: those of a lake that lies before a log are negative."""

LastValue = tuple[bytes | None, int, Headers]
Report = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineSettings:
    """What a replay takes from plan and application. ``now_ms``: where the wall clock stands still."""

    application_id: str
    task_config: TaskConfig
    partitions_of_topic: Callable[[str], int]
    compression: Compression = Compression.NONE
    now_ms: int = 0


class OfflineCollector:
    """Keeps the last value of each key of the changelogs, and hands everything else on as record batches."""

    def __init__(
        self,
        changelogs: Iterable[str],
        sink: Sink,
        partitions_of_topic: Callable[[str], int],
        compression: Compression = Compression.NONE,
    ) -> None:
        self.changelogs: dict[str, dict[bytes | None, LastValue]] = {topic: {} for topic in changelogs}
        self._others = RecordCollector(sink, partitions_of_topic, compression=compression)

    def add(
        self,
        topic: str,
        keys: Keys,
        values: Keys,
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
        partition: int | Sequence[int] | None = None,
        partition_keys: Keys | None = None,
    ) -> None:
        latest = self.changelogs.get(topic)
        if latest is None:
            self._others.add(topic, keys, values, timestamps, headers, partition, partition_keys)
            return
        each: Iterable[Headers] = repeat(()) if headers is None else headers
        latest.update(zip(keys, zip(values, timestamps, each), strict=False))  # noqa: B905  # ``each`` may be endless

    def flush(self) -> None:
        self._others.flush()


class Replay:
    """One task with what it has written so far. ``sink``: takes record batches of outputs and repartition topics."""

    def __init__(self, subtopology: Subtopology, partition: int, settings: OfflineSettings, sink: Sink) -> None:
        self.rows: dict[str, MemoryStore] = {spec.name: MemoryStore(spec.name) for spec in subtopology.stores}
        config = settings.task_config
        limit_bytes = CACHE_MAX_BYTES if config.cache_max_bytes else 0
        changelogs = [
            f"{settings.application_id}-{spec.changelog_name}"
            for spec in subtopology.stores
            if spec.logging and spec.source_topic is None
        ]
        self._collector = OfflineCollector(changelogs, sink, settings.partitions_of_topic, settings.compression)
        self._now_ms = settings.now_ms
        self.records: dict[TopicPartition, int] = {}
        self.task = Task(
            subtopology,
            partition,
            application_id=settings.application_id,
            stores={spec.name: lay_out(spec, self.rows[spec.name]) for spec in subtopology.stores},
            collector=self._collector,
            config=replace(
                config, cache_max_bytes=limit_bytes, write_buffer_max_bytes=CACHE_MAX_BYTES, max_task_idle_ms=0
            ),
            partitions_of_topic=settings.partitions_of_topic,
            now_ms=settings.now_ms,
        )

    def merge(self, inputs: Inputs, report: Report | None = None) -> None:
        """Replays everything of all inputs in the order of :mod:`streamsrt.backfill.order`. Raises RecordError."""
        task, left = self.task, dict(inputs)
        for place in left:
            # As live, the task waits for a partition as long as it knows that there is more of it.
            task.note_high_watermark(*place, _MORE_TO_COME)
            self.records.setdefault(place, 0)
        while left or task.buffered_records:
            self._refill(left)
            self._process(report)

    def _refill(self, left: dict[TopicPartition, Iterator[RecordColumns]]) -> None:
        task = self.task
        for place, batches in list(left.items()):
            while place in left and task.buffered_of(*place) == 0:
                columns = next(batches, None)
                if columns is None:
                    del left[place]
                    task.note_high_watermark(*place, _NOTHING_MORE)
                else:
                    self.records[place] += len(columns)
                    task.add_batch(*place, columns)

    def ordered(self, runs: Iterable[tuple[TopicPartition, RecordColumns]], report: Report | None = None) -> None:
        """Replays runs as they come: for an engine that has put them into the order itself. Raises RecordError."""
        for place in self.task.source_partitions:
            self.task.note_high_watermark(*place, _NOTHING_MORE)
        for place, columns in runs:
            self.records[place] = self.records.get(place, 0) + len(columns)
            self.task.add_batch(*place, columns)
            while self.task.buffered_records:
                self._process(report)

    def _process(self, report: Report | None) -> None:
        processed = self.task.process(RUN_RECORDS, self._now_ms)
        if self.task.commit_requested:
            self._commit()
        if report is not None:
            report(processed)

    def _commit(self) -> None:
        self.task.prepare_commit()
        self.task.post_commit(None)

    def finish(self) -> dict[str, list[tuple[bytes, LastValue]]]:
        """Flushes everything; by changelog topic the last value of each key that has one, in the order of keys."""
        self._commit()
        self.task.close()
        return {
            topic: sorted((key, last) for key, last in latest.items() if key is not None and last[0] is not None)
            for topic, latest in self._collector.changelogs.items()
        }


def partition_counts(topics: Mapping[str, int]) -> Callable[[str], int]:
    """Partition counts as the plan has them. A topic that it does not have raises PlanError when it is asked for."""

    def of(topic: str) -> int:
        try:
            return topics[topic]
        except KeyError:
            raise PlanError(
                f"a record is to be written to topic {topic!r}, which did not exist when the plan was made: create "
                "it and "
                "plan again"
            ) from None

    return of
