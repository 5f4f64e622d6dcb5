"""The sources of a backfill: the cluster's log, and archives of records that the log no longer has.

1. :class:`KafkaLog` and :class:`Archive` say where the history of a topic is. A partition is read from its archive first, to
   the archive's end, and from there on from the log of the cluster (:mod:`streamsrt.backfill.planning` freezes the ranges).
2. The log is read as by a consumer with ``isolation.level=read_committed``.
3. Repartition topics are read out of the results of the tasks that write them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from time import monotonic
from types import MappingProxyType

from streamsrt.backfill.archive import read_archive
from streamsrt.backfill.errors import BackfillError
from streamsrt.backfill.lake import Lake
from streamsrt.backfill.manifest import TaskManifest, finished_manifest
from streamsrt.backfill.order import Inputs, Overtaken, as_one_log, merge
from streamsrt.backfill.plan import BackfillPlan, RepartitionRange, SourceRange, TaskPlan
from streamsrt.client.interface import Network
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, FetchConfig, OffsetOutOfRangeError, ProducerConfig, TopicPartition
from streamsrt.errors import BrokerError
from streamsrt.tasks.input.input_buffer import InputBuffer
from streamsrt.wire.records import RecordColumns, iter_columns

_POLL_S = 1.0
_SILENCE_S = 60.0
_BUFFERED_BYTES = 16 << 20
_BATCH_HEAD = Struct(">qi")
"""Base offset, and how many bytes of the batch follow."""


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """The records of a topic that the cluster holds, up to the topic's end when the plan is made."""


@dataclass(frozen=True, slots=True)
class Archive:
    """Parquet files of a topic (:mod:`streamsrt.backfill.archive`), continued by the cluster's log.

    ``allow_gaps``: offsets may be missing because the topic was compacted or written in transactions.
    """

    path: Path | str
    allow_gaps: bool = False


Source = KafkaLog | Archive | Lake


@contextlib.contextmanager
def connected(bootstrap_servers: str, *, transactional_id: str | None = None) -> Iterator[NetworkThread]:
    """A connection to the cluster with ``isolation.level=read_committed``. Raises BrokerError."""
    network = NetworkThread(
        ClientConfig(
            bootstrap_servers=bootstrap_servers,
            client_id="streamsrt-backfill",
            # What is read is there already: a long poll would only hold up the next partition.
            fetch=FetchConfig(isolation_level="read_committed", max_wait_ms=20),
            producer=ProducerConfig(transactional_id=transactional_id),
        )
    )
    network.start()
    try:
        yield network
    finally:
        network.stop()


@contextlib.contextmanager
def open_inputs(
    directory: Path,
    plan: BackfillPlan,
    task: TaskPlan,
    order: Sequence[TopicPartition],
    bootstrap_servers: str | None = None,
    past: Mapping[TopicPartition, Overtaken] = MappingProxyType({}),
) -> Iterator[Inputs]:
    """Returns the inputs of a task in the ``order`` of its source partitions. ``past``: counts late records of repartition
    partitions. Raises BrokerError, PlanError."""
    sources = {source.topic_partition: source for source in task.sources}
    repartition = {source.topic_partition: source for source in task.repartition}
    with contextlib.ExitStack() as stack:
        logged = [source for source in task.sources if source.log_start < source.end]
        log = None
        if logged:
            network = stack.enter_context(connected(bootstrap_servers or plan.bootstrap_servers))
            log = LogReader(network, logged)
        inputs: dict[TopicPartition, Iterator[RecordColumns]] = {}
        for tp in order:
            if tp in sources:
                inputs[tp] = read_source(sources[tp], log)
            elif tp in repartition:
                inputs[tp] = read_repartition(directory, plan, repartition[tp], past.get(tp))
        yield inputs


def read_source(source: SourceRange, log: LogReader | None) -> Iterator[RecordColumns]:
    """A source partition from its start to its end: archive, then log."""
    yield from read_archive(source)
    if log is not None and source.log_start < source.end:
        yield from log.columns(source)


class LogReader:
    """Partitions of the cluster's log, each up to the end of its range."""

    def __init__(self, network: Network, sources: Iterable[SourceRange]) -> None:
        self._fetcher = network.fetcher
        self._buffers = {source.topic_partition: InputBuffer(source.log_start) for source in sources}
        self._paused: set[TopicPartition] = set()
        self._fetcher.add_partitions({tp: buffer.position for tp, buffer in self._buffers.items()})

    def columns(self, source: SourceRange) -> Iterator[RecordColumns]:
        """Everything before the end of the range. Raises BackfillError where the log does not hold it any more."""
        tp, buffer = source.topic_partition, self._buffers[source.topic_partition]
        while buffer.position < source.end:
            columns = buffer.next_columns()
            if columns is None:
                self._fetch(tp)
                continue
            yield _from_time(_before(columns, source.end), source.log_from_ms)
        self._fetcher.remove_partitions([tp])
        del self._buffers[tp]

    def _fetch(self, tp: TopicPartition) -> None:
        """Waits for more records of that partition. Records of others are kept, up to a limit."""
        if tp in self._paused:
            self._paused.discard(tp)
            self._fetcher.resume([tp])
        deadline = monotonic() + _SILENCE_S
        while not self._buffers[tp].buffered_bytes:
            for fetched in self._fetcher.poll(_POLL_S):
                found = (fetched.topic, fetched.partition)
                buffer = self._buffers.get(found)
                if buffer is None:
                    continue
                if fetched.error is not None:
                    raise _unreadable(found, buffer.position, fetched.error)
                buffer.add(fetched)
                if buffer.buffered_bytes > _BUFFERED_BYTES and found != tp and found not in self._paused:
                    self._paused.add(found)
                    self._fetcher.pause([found])
            if monotonic() > deadline:
                raise BrokerError(
                    f"no records of {tp[0]}-{tp[1]} arrived from offset {self._buffers[tp].position} on for "
                    f"{_SILENCE_S:g} s: check the cluster, then run streamsrt backfill resume"
                )


def _unreadable(tp: TopicPartition, position: int, error: BrokerError) -> Exception:
    if isinstance(error, OffsetOutOfRangeError):
        return BackfillError(
            f"the log of {tp[0]}-{tp[1]} no longer holds offset {position}: retention passed it since the plan was made, "
            "the topic was recreated, or its last records were lost. Give the archive of what is missing and plan again"
        )
    return error


def _before(columns: RecordColumns, end: int) -> RecordColumns:
    if columns.next_offset <= end:
        return columns
    count = sum(1 for index in range(len(columns)) if columns.offset_at(index) < end)
    return columns.cut(0, count)


def _from_time(columns: RecordColumns, from_ms: int | None) -> RecordColumns:
    """The records that a lake which ends there does not have."""
    if from_ms is None or not len(columns) or columns.timestamp_min >= from_ms:
        return columns
    kept = [index for index, time in enumerate(columns.timestamps) if time >= from_ms]
    offsets = [columns.offset_at(index) for index in kept]
    return RecordColumns(
        [columns.keys[index] for index in kept],
        [columns.values[index] for index in kept],
        [columns.timestamps[index] for index in kept],
        offsets[0] if offsets else columns.next_offset,
        columns.next_offset,
        offsets,
        None if columns.headers is None else [columns.headers[index] for index in kept],
    )


def read_repartition(
    directory: Path, plan: BackfillPlan, source: RepartitionRange, past: Overtaken | None = None
) -> Iterator[RecordColumns]:
    """A partition of a repartition topic, from the results of the tasks that write it. Raises PlanError."""
    logs: dict[TopicPartition, Iterator[RecordColumns]] = {}
    for index, task_id in enumerate(source.upstream):
        manifest = finished_manifest(directory, plan, task_id)
        path = _repartition_file(directory, manifest, source.topic_partition)
        if path is not None:
            log = (source.topic, index)
            logs[log] = read_batches(path) if past is None else past.watch(log, read_batches(path))
    return as_one_log(merge(logs), source.start)


def _repartition_file(directory: Path, manifest: TaskManifest, tp: TopicPartition) -> Path | None:
    for log in manifest.repartition:
        if (log.topic, log.partition) == tp:
            return directory / log.file.path
    return None


def read_batches(path: Path) -> Iterator[RecordColumns]:
    """The record batches of a result's file, with offsets from 0 on."""
    offset = 0
    for batch in _batches(path):
        for columns in iter_columns(batch):
            end = offset + len(columns)
            yield RecordColumns(columns.keys, columns.values, columns.timestamps, offset, end, None, columns.headers)
            offset = end


def _batches(path: Path) -> Iterator[bytes]:
    """A file's record batches, one after another, so that no file is in memory as a whole."""
    with open(path, "rb") as file:
        while head := file.read(_BATCH_HEAD.size):
            yield head + file.read(_BATCH_HEAD.unpack(head)[1])
