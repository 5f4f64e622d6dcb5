"""The stores of one task out of the changelogs of another application.

1. A partition is read as an instance restores it: committed records only, in their order.
2. If the changelog has another number of partitions, only those are read that can have rows of this one: with Kafka's
   default partitioner, a hash that belongs to both has the same remainder by their greatest common divisor.
3. Rows of keys that belong elsewhere count only if they are left at the end. Those that `state repartition` has moved are
   deleted behind, and their deletions are not those of the rows that they have become.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from math import gcd

from streamsrt.backfill.copying.subscriptions import MovedSubscriptions, left_sides
from streamsrt.backfill.errors import BackfillError, UnplacedRowError
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.plan import BackfillPlan, CopiedStore, StateCopy, TaskPlan
from streamsrt.backfill.repartition.partitioners import Placements, Placing
from streamsrt.backfill.repartition.placement import key_of_rows, whole_key_of_rows
from streamsrt.backfill.replay import Report, TaskReplay
from streamsrt.backfill.sources import connected
from streamsrt.backfill.state_reading import StoreReading
from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST, TopicPartition
from streamsrt.errors import DeserializationError
from streamsrt.state.kinds import functions_of
from streamsrt.tasks.input.selected import selected
from streamsrt.wire.murmur2 import murmur2_many
from streamsrt.wire.records import RecordColumns
from topology.graph.nodes import StoreSpec, Subtopology, internal_topic_name
from topology.graph.topology import Topology


def take_state(
    plan: BackfillPlan,
    task: TaskPlan,
    topology: Topology,
    subtopology: Subtopology,
    replay: TaskReplay,
    bootstrap_servers: str | None,
    report: Report,
) -> None:
    """Fills the stores of a task, and gives it the stream times that the other application has committed. Raises
    BackfillError, BrokerError."""
    copied = plan.copied
    assert copied is not None
    placements = Placements(topology, plan.application_id)
    counts = {topic.name: topic.partitions for topic in plan.internal_topics}
    left = {spec.name: side for spec, side in left_sides(topology)}
    with connected(bootstrap_servers or plan.bootstrap_servers) as network:
        for store in task.stores:
            spec = next(each for each in subtopology.stores if each.name == store.name)
            origin = copied.stores.get(spec.name)
            if origin is None:
                continue
            count = counts[store.changelog or ""]
            subscriptions = None
            if spec.name in left:
                answers = counts[internal_topic_name(plan.application_id, left[spec.name].answers)]
                subscriptions = MovedSubscriptions(spec.name, origin, left[spec.name], placements, answers)
            rows = _Rows(network, spec, origin, subscriptions)
            if len(origin.ends) == count:
                found = rows.unmoved(task.partition)
            else:
                place = _Place(spec, subtopology, placements.of_store(spec, subtopology), origin, count)
                found = rows.placed(place, task.partition)
            for columns in found:
                replay.take(spec.name, columns)
                report(len(columns))
            rows.check_ends(copied.application_id)
            _check_rows(plan, replay, spec, origin, task.partition)
    _take_times(plan, copied, task, counts, replay)


def _take_times(
    plan: BackfillPlan, copied: StateCopy, task: TaskPlan, counts: Mapping[str, int], replay: TaskReplay
) -> None:
    """Stream times: of the same partitions, or where a store comes out of others, the latest of all."""
    moved = any(
        store.name in copied.stores and len(copied.stores[store.name].ends) != counts[store.changelog or ""]
        for store in task.stores
    )
    repartition = {each.topic for each in task.repartition}
    for tp in replay.task.source_partitions:
        there = tp[0]
        if there in repartition:
            own_name = there.removeprefix(internal_topic_name(plan.application_id, ""))
            there = internal_topic_name(copied.application_id, own_name)
        for name, at in copied.positions.items():
            topic, _, partition = name.rpartition("-")
            if topic == there and (moved or int(partition) == tp[1]):
                replay.task.restore_partition_time(*tp, at.metadata)


class _Place:
    """Where the rows of a store belong, there and here. ``count``: the number of partitions here."""

    def __init__(
        self, spec: StoreSpec, subtopology: Subtopology, placing: Placing | None, origin: CopiedStore, count: int
    ) -> None:
        self._spec = spec
        self._topic = origin.topic
        self._key_of = key_of_rows(spec, subtopology)
        self._whole_key_of = whole_key_of_rows(spec, subtopology)
        self._placing = placing
        self._before = len(origin.ends)
        self._count = count

    def origins(self, partition: int) -> Iterator[int]:
        """The partitions that can have rows of that one here."""
        step = 1 if self._placing is not None else gcd(self._before, self._count)
        return (index for index in range(self._before) if index % step == partition % step)

    def kept(
        self, columns: RecordColumns, index: int, partition: int, strays: MutableMapping[bytes, int]
    ) -> RecordColumns:
        """Those of the partition ``index`` that belong to ``partition`` here. ``strays``: gets the keys of rows so far that
        do not belong to ``index``, with the partition that they belong to."""
        keys = [key for key in columns.keys if key is not None]
        places = dict(zip(keys, self._places(columns, keys), strict=True))
        if strays or any(before != index for before, _ in places.values()):
            for key, value in zip(columns.keys, columns.values, strict=True):
                if key is None or places[key][0] == index:
                    continue
                if value is None:
                    strays.pop(key, None)
                else:
                    strays[key] = places[key][0]
        keep = [key is not None and places[key] == (index, partition) for key in columns.keys]
        return selected(columns, columns.timestamps, keep)

    def check_strays(self, index: int, strays: Mapping[bytes, int]) -> None:
        """Raises BackfillError if rows of the partition ``index`` do not belong to it."""
        for key, before in strays.items():
            by = "the default partitioner" if self._placing is None else f"the {self._placing}"
            raise BackfillError(
                f"key {key!r} in {self._topic}-{index} belongs to partition {before} by {by}: what placed it is not "
                f"known, so the rows of store {self._spec.name!r} can't be brought to {self._count} partitions. Give "
                f"the topics that it is filled from {self._before} partitions"
            )

    def _places(self, columns: RecordColumns, keys: list[bytes]) -> Iterator[tuple[int, int]]:
        counts = (self._before, self._count)
        placed = [self._key_of(key) for key in keys]
        if self._placing is None:
            hashes = murmur2_many(placed)
            for key in placed:
                hashed = hashes[key] & 0x7FFFFFFF
                yield hashed % counts[0], hashed % counts[1]
            return
        values = (value for key, value in zip(columns.keys, columns.values, strict=True) if key is not None)
        for row_key, key, value in zip(keys, placed, values, strict=True):
            whole_key = self._whole_key_of(row_key)
            yield (
                self._placing.partition(key, whole_key, value, counts[0]),
                self._placing.partition(key, whole_key, value, counts[1]),
            )


class _Rows:
    """The records of a changelog, up to the ends that the plan has. ``subscriptions``: if it has those of a foreign-key
    join."""

    def __init__(
        self, network: Network, spec: StoreSpec, origin: CopiedStore, subscriptions: MovedSubscriptions | None = None
    ) -> None:
        self._network = network
        self._spec = spec
        self._origin = origin
        self._subscriptions = subscriptions
        self._read: list[TopicPartition] = []

    def unmoved(self, partition: int) -> Iterator[RecordColumns]:
        """All records of a partition, which stay in it."""
        try:
            yield from map(self._own, self._of(partition))
        except UnplacedRowError as error:
            raise BackfillError(f"store {self._spec.name!r}: {error}") from error

    def _own(self, columns: RecordColumns) -> RecordColumns:
        return columns if self._subscriptions is None else self._subscriptions.of(columns)

    def _of(self, partition: int) -> Iterator[RecordColumns]:
        tp = (self._origin.topic, partition)
        self._read.append(tp)
        for columns in read_log(self._network, tp, 0, self._origin.ends[partition]):
            self._check_keys(columns)
            yield columns

    def _check_keys(self, columns: RecordColumns) -> None:
        shortest, spec = functions_of(self._spec).logged_key_bytes, self._spec
        for key in columns.keys:
            if key is not None and len(key) < shortest:
                raise BackfillError(
                    f"key 0x{key.hex()} in {self._origin.topic} is none of a {spec.kind} store, as {spec.name!r} is: name "
                    f"its changelog with --changelog {spec.name}=TOPIC"
                )

    def placed(self, place: _Place, partition: int) -> Iterator[RecordColumns]:
        """The records that belong to a partition here."""
        try:
            for index in place.origins(partition):
                strays: dict[bytes, int] = {}
                for columns in self._of(index):
                    yield self._own(place.kept(columns, index, partition, strays))
                place.check_strays(index, strays)
        except UnplacedRowError as error:
            raise BackfillError(f"store {self._spec.name!r}: {error}") from error

    def check_ends(self, application_id: str) -> None:
        """Raises BackfillError if there are later records: the log may have dropped those that they replace."""
        ends = self._network.admin.list_offsets(dict.fromkeys(self._read, LATEST))
        for tp in self._read:
            if ends[tp].offset != self._origin.ends[tp[1]]:
                raise BackfillError(
                    f"changelog {tp[0]}-{tp[1]} goes to offset {ends[tp].offset} now, and went to "
                    f"{self._origin.ends[tp[1]]} when the plan was made: {application_id!r} goes on, and what it replaces "
                    "may be gone. Stop it, plan again in another --dir, and start it after the run"
                )


def _check_rows(plan: BackfillPlan, replay: TaskReplay, spec: StoreSpec, origin: CopiedStore, partition: int) -> None:
    """Raises BackfillError if the serdes of the store can't read its rows."""
    reading = StoreReading(plan.application, plan.application_id, spec.name, config=plan.config)
    try:
        for _ in reading.rows(replay.rows[spec.name], partition):
            pass
    except DeserializationError as error:
        raise BackfillError(
            f"changelog {origin.topic} does not fit to store {spec.name!r}: {error.__cause__ or error}. Give the store the "
            "key and value serdes of the application that wrote it; values of another format can be converted with "
            "Store(version=2, upcast=...)"
        ) from error
