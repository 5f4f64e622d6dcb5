"""Checks where rows are, and looks for records that are not processed yet. Changes nothing.

1. Rows are moved only if each is where the partitioner places its key for a count that the changelog had: murmur2, Kafka's
   default, or one of the program's. So another partitioner is noticed, and a program that uses other keys for its rows than
   for its records. Where the program chooses the keys, there must be so many rows that chance is no explanation; one
   partition proves nothing, nor does a partitioner of the program's, which may prefer some partitions.
2. Records that are not processed yet must be in the partition that their key has now: in another one they would be
   processed without their state. Repartition topics must be read to the end.
3. No transaction may be open: more records could follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import pairwise

from streamsrt.backfill.errors import UnplacedRowError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.repartition.partitioners import Placing
from streamsrt.backfill.repartition.placement import KeyOf
from streamsrt.backfill.repartition.rows import LoggedRow, StoredRows, closed_marks, latest_mark, with_places
from streamsrt.backfill.repartition.shape import MovedStore, Shape
from streamsrt.client.interface import Network
from streamsrt.client.values import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.operators.kinds.foreign_key_joins import ForeignKeySubscription
from streamsrt.state.kinds import placing_key
from streamsrt.wire.murmur2 import PartitionMemo, partition_for_key
from streamsrt.wire.records import RecordColumns
from streamsrt.wording import counted
from topology.graph.nodes import Subtopology

OperatorTimes = Mapping[TopicPartition, Mapping[str, int]]
"""For each input partition the stream times that operators have seen, by their names."""

MarkedTimes = Mapping[str, Mapping[int, int]]
"""By store with such marks, the stream times up to which the wall clock closed windows, by partition; in milliseconds."""

PROOF_BITS = 20
"""Rows that lie in their places by chance do so once in a million times, or less often."""

_INSTEAD = (
    "The application can no longer process them, since Kafka can't remove partitions. Start it under another application "
    "id, with state from streamsrt backfill, which gets the records from before as a lake without partitions (--lake, "
    "--lake-until), or with empty state. Before you raise partition counts, stop the "
    "producers and let the application process all records"
)


@dataclass(slots=True)
class StoreSurvey:
    """The rows of a store. ``moves``: rows that belong to another partition, or are rewritten in place. ``strays``: rows in
    a partition that no count explains. ``unemitted``: rows of windows that are open in their partition and would count as
    emitted. ``unplaced``: why the program's partitioner names no partition for a row. ``twice``: a key that several
    partitions have."""

    of: MovedStore
    rows: int = 0
    moves: int = 0
    strays: int = 0
    first_stray: str = ""
    unemitted: int = 0
    unplaced: str = ""
    twice: bytes | None = None

    @property
    def is_unproven(self) -> bool:
        """Whether the program chose the keys, and the places of the rows do not show that these are the records' keys."""
        counts = self.of.counts
        # An interrupted move was proven when it began.
        if not self.of.has_own_keys or len(counts) > 1 or not self.rows:
            return False
        return self.of.placing is not None or self.rows * math.log2(counts[0]) < PROOF_BITS

    def blockers(self) -> Iterator[str]:
        """Why its rows can't be moved."""
        if self.unplaced:
            yield f"store {self.of.store!r} can't be repartitioned: {self.unplaced}"
            return
        if self.strays:
            by = "Kafka's default partitioner" if self.of.placing is None else f"the {self.of.placing}"
            yield (
                f"store {self.of.store!r}: {self.strays} of {self.rows} rows lie in other partitions than {by} gives their "
                f"keys, the first is {self.first_stray}. The producer of its input uses another partitioner, or the program "
                "keeps rows under other keys than those of its records, so nobody knows where they belong. Start the "
                "application under another application id and let it build its state anew"
            )
        elif self.twice is not None:
            yield (
                f"store {self.of.store!r}: several partitions have rows of one key, the first is {self.twice!r}. The "
                f"{self.of.placing} places records of one key by their values, so nobody knows which row is the last one. "
                "Start the application under another application id and let it build its state anew"
            )
        elif self.is_unproven:
            partitions = counted(self.of.counts[0], "partition")
            yield (
                f"store {self.of.store!r}: a processor chooses the keys of its rows, and {self.rows} rows in {partitions} "
                "do not prove that they are the keys of its records. Other rows would be moved away from the records that "
                f"look for them. If they are, repeat the command with --record-keys {self.of.store}. Otherwise start the "
                "application under another application id and let it build its state anew"
            )
        if self.unemitted:
            yield (
                f"store {self.of.store!r}: {self.unemitted} rows are of windows that are still open in their partition, and "
                "closed by the stream time of another one: they would never be emitted. Start the application under another "
                f"application id. Before you raise partition counts, {self._closes_first}"
            )

    @property
    def _closes_first(self) -> str:
        if any(closing.marks is not None for closing in self.of.closings):
            return "let the application run, without new records, until its idle_timeout has closed all windows"
        return "write a record to each partition that closes all windows"


@dataclass(slots=True)
class StateSurvey:
    """All that was found. ``blockers``: why nothing may be changed."""

    shape: Shape
    stores: list[StoreSurvey] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)

    @property
    def moves(self) -> int:
        """The number of rows to write."""
        return sum(each.moves for each in self.stores)


def survey_inputs(
    network: Network, shape: Shape, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[str]:
    """Why inputs keep the state from being moved."""
    there = network.admin.partitions_for({*shape.drained, *shape.source_counts})
    for topic in sorted(shape.drained):
        waiting = sum(
            len(columns)
            for index in range(there.get(topic, 0))
            for columns in _unread(network, (topic, index), committed)
        )
        if waiting:
            yield f"{waiting} records of repartition topic {topic} are not processed yet. {_INSTEAD}"
    for part in shape.parts:
        for topic in part.sources:
            placing, key_of = shape.placings.get(topic), source_key(part.subtopology, topic)
            try:
                astray = sum(
                    records_elsewhere(columns, key_of, placing, index, there[topic])
                    for index in range(there[topic])
                    for columns in _unread(network, (topic, index), committed)
                )
            except UnplacedRowError as error:
                yield f"records of topic {topic} are not processed yet: {error}"
                continue
            if astray:
                yield (
                    f"{astray} records of topic {topic} are not processed yet and lie in another partition than their keys "
                    f"have since it has {counted(there[topic], 'partition')}: they would be processed "
                    f"without their state. {_INSTEAD}"
                )


def survey_transactions(network: Network, shape: Shape) -> Iterator[str]:
    """Where transactions are open."""
    sources = {topic for part in shape.parts for topic in part.sources}
    changelogs = {store.changelog for store in shape.stores}
    counts = network.admin.partitions_for({*sources, *changelogs, *shape.drained})
    partitions = [(topic, index) for topic, count in sorted(counts.items()) for index in range(count)]
    decided = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    found = [
        f"{topic}-{index}" for topic, index in partitions if decided[topic, index].offset < ends[topic, index].offset
    ]
    if found:
        yield (
            f"transactions are open on {', '.join(found[:5])}{' and others' if len(found) > 5 else ''}. Wait until the "
            "broker ends them (transaction.timeout.ms of their producer), and do this again"
        )


def survey_marks(network: Network, store: MovedStore, stored: StoredRows) -> StoreSurvey:
    """Reads the marks of a store that says for each partition up to when windows were closed."""
    _read(network, store, stored)
    marks = closed_marks(store, stored)
    latest = latest_mark(marks)
    if latest is None:
        return StoreSurvey(store)
    behind = sum(index not in marks or marks[index].value != latest.value for index in range(store.after))
    return StoreSurvey(store, rows=len(marks), moves=behind)


def survey_store(
    network: Network, store: MovedStore, stored: StoredRows, times: OperatorTimes, marked: MarkedTimes
) -> StoreSurvey:
    """Reads all rows of a store, and looks where they lie."""
    found = StoreSurvey(store)
    _read(network, store, stored)
    closings = _Closings(store, times, marked)
    try:
        for index in range(store.existing):
            for row, (target, *places) in with_places(
                stored.rows((store.changelog, index)), store, (store.after, *store.counts)
            ):
                found.rows += 1
                found.moves += target != index or rewritten(store, row.value) is not None
                if index not in places or not _knows(store, row):
                    found.strays += 1
                    found.first_stray = found.first_stray or f"key {row.key!r} in {store.changelog}-{index}"
                found.unemitted += closings.loses(row.key, index)
    except UnplacedRowError as error:
        found.unplaced = str(error)
    if store.placing is not None and store.placing.read_value is not None:
        found.twice = _twice(store, stored)
    return found


def _read(network: Network, store: MovedStore, stored: StoredRows) -> None:
    partitions = [(store.changelog, index) for index in range(store.existing)]
    ends = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    for tp in partitions:
        stored.read(network, tp, ends[tp].offset)


def _twice(store: MovedStore, stored: StoredRows) -> bytes | None:
    """The first key that several partitions have."""
    keys = ((row.key for row in stored.rows((store.changelog, index))) for index in range(store.existing))
    return next((one for one, other in pairwise(merge(*keys)) if one == other), None)


def rewritten(store: MovedStore, value: bytes) -> bytes | None:
    """The value as it must be; None where it may stay."""
    if not store.primary_after:
        return None
    found = ForeignKeySubscription.from_bytes(value)
    if found.partition is None:
        return None
    belongs = _of_left_row(store, found.primary_key, store.primary_after)
    if found.partition == belongs:
        return None
    return ForeignKeySubscription(found.value_hash, found.instruction, found.primary_key, belongs).to_bytes()


def _knows(store: MovedStore, row: LoggedRow) -> bool:
    """Whether the left row of a subscription is where a count puts it."""
    if not store.primary_after:
        return True
    found = ForeignKeySubscription.from_bytes(row.value)
    return found.partition is None or any(
        _of_left_row(store, found.primary_key, count) == found.partition for count in store.primary_counts
    )


def _of_left_row(store: MovedStore, key: bytes, count: int) -> int:
    placing = store.primary_placing
    return partition_for_key(key, count) if placing is None else placing.partition(key, key, None, count)


class _Closings:
    """Which rows would count as emitted though they are not, once each partition has the latest stream time of all."""

    def __init__(self, store: MovedStore, times: OperatorTimes, marked: MarkedTimes) -> None:
        self._found = []
        # After an interruption, closed rows lie in partitions that have no stream time yet. It was looked at when it began.
        for closing in store.closings if len(store.counts) == 1 else ():
            by_partition = dict(marked.get(closing.marks or "", {}))
            for (_, index), operators in times.items():
                by_partition[index] = max(by_partition.get(index, -1), operators.get(closing.operator, -1))
            self._found.append((closing.at_ms, by_partition, max(by_partition.values(), default=-1)))

    def loses(self, key: bytes, partition: int) -> bool:
        return any(
            by_partition.get(partition, -1) < at_ms(key) <= latest for at_ms, by_partition, latest in self._found
        )


def _unread(
    network: Network, tp: TopicPartition, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[RecordColumns]:
    """Yields the unprocessed records of a partition."""
    end = network.admin.list_offsets({tp: LATEST}, read_committed=True)[tp].offset
    start = committed[tp].offset if tp in committed else network.admin.list_offsets({tp: EARLIEST})[tp].offset
    return read_log(network, tp, start, end)


def records_elsewhere(
    columns: RecordColumns, key_of: KeyOf, placing: Placing | None, partition: int, count: int
) -> int:
    """Returns the number of records that belong to another partition. Records without a key don't count."""
    if placing is not None:
        records = zip(columns.keys, columns.values, strict=True)
        known = ((key, value) for key, value in records if key is not None)
        return sum(placing.partition(key_of(key), key, value, count) != partition for key, value in known)
    keys = [key_of(key) for key in columns.keys if key is not None]
    return sum(1 for each in PartitionMemo().partitions(keys, count) if each != partition)


def source_key(subtopology: Subtopology, topic: str) -> KeyOf:
    """The part of the keys of a source topic by which the default partitioner places its records."""
    sources = subtopology.sources
    serde = next((each.key_serde for each in sources if topic in each.topics and not each.repartition), None)
    return lambda key: placing_key(serde, key)
