"""The subscriptions of foreign-key joins: rows of the right side, each for a row of the left table.

1. A subscription has the partition of its left row, to which answers go. If the left table has another number of partitions
   here, that partition is rewritten, as when state is repartitioned (:mod:`streamsrt.backfill.repartition`).
2. A row's key is the foreign key and the left key, and its value has the left key, too. What is not so is no subscription.
3. A subscription of an old version of Kafka Streams has no partition: answers go where the default partitioner places the
   left key.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

from streamsrt.backfill.errors import BackfillError, PlanError
from streamsrt.backfill.plan import CopiedStore
from streamsrt.backfill.repartition.partitioners import Placements, Placing
from streamsrt.errors import UserError
from streamsrt.operators.kinds.foreign_key_joins import ForeignKeySubscription, combined_prefix, foreign_key_of
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import RecordColumns
from topology.graph.join_sides import topics_of_other_side
from topology.graph.nodes import StoreSpec, Subtopology
from topology.graph.topology import Topology


@dataclass(frozen=True, slots=True)
class LeftSide:
    """The left side of a foreign-key join. ``part``: its subtopology; ``answers``: the topic through which it gets answers,
    which has the partitions of the left table, without the application's id."""

    part: Subtopology
    answers: str


def left_sides(topology: Topology) -> Iterator[tuple[StoreSpec, LeftSide]]:
    """The stores with subscriptions, each with the left side of its join."""
    for right in topology.subtopologies:
        for spec in right.stores:
            answers = topics_of_other_side(right, spec.name)
            for part in topology.subtopologies:
                for topic in part.repartition_source_topics:
                    if topic.name in answers:
                        yield spec, LeftSide(part, topic.name)


class MovedSubscriptions:
    """Brings the subscriptions of a store to the partitions that the left table has here. ``count``: how many these are."""

    def __init__(self, store: str, origin: CopiedStore, left: LeftSide, placements: Placements, count: int) -> None:
        assert origin.left_partitions is not None
        self._store = store
        self._topic = origin.topic
        self._before = origin.left_partitions
        self._count = count
        self._placing: Placing | None = placements.of_left_rows({left.answers}, left.part)

    def of(self, columns: RecordColumns) -> RecordColumns:
        """The same rows for this application. Raises BackfillError, UnplacedRowError."""
        rows = zip(columns.keys, columns.values, strict=True)
        return replace(columns, values=[self._value(key, value) for key, value in rows])

    def _value(self, key: bytes | None, value: bytes | None) -> bytes | None:
        if key is None or value is None:
            return value
        found = self._read(key, value)
        if found.partition is None or self._before == self._count:
            return value
        before = self._place(found.primary_key, self._before)
        if found.partition != before:
            by = "the default partitioner" if self._placing is None else f"the {self._placing}"
            raise BackfillError(
                f"a row of {self._topic} says that the left row with key {found.primary_key!r} is in partition "
                f"{found.partition}, and {by} places it in {before}: what placed it is not known, so store "
                f"{self._store!r} can't be taken over for another number of partitions. Give the topics of the left table "
                f"{self._before} partitions"
            )
        here = self._place(found.primary_key, self._count)
        return ForeignKeySubscription(found.value_hash, found.instruction, found.primary_key, here).to_bytes()

    def _read(self, key: bytes, value: bytes) -> ForeignKeySubscription:
        try:
            found = ForeignKeySubscription.from_bytes(value)
            known = key == combined_prefix(foreign_key_of(key)) + found.primary_key
        except UserError as error:
            raise BackfillError(f"a row of {self._topic} can't be read: {error}") from error
        except (ValueError, IndexError, struct.error) as error:
            raise self._no_subscription(key) from error
        if not known:
            raise self._no_subscription(key)
        return found

    def _no_subscription(self, key: bytes) -> BackfillError:
        return BackfillError(
            f"key 0x{key.hex()} in {self._topic} is none of a foreign-key join's subscriptions, as {self._store!r} has "
            f"them: name its changelog with --changelog {self._store}=TOPIC"
        )

    def _place(self, key: bytes, count: int) -> int:
        return (
            partition_for_key(key, count) if self._placing is None else self._placing.partition(key, key, None, count)
        )


def unknown_left_side(store: str, origin: str, topic: str) -> PlanError:
    """The error about a join of whose left table nobody knows how many partitions it has in the other application."""
    return PlanError(
        f"store {store!r} has subscriptions of a foreign-key join, with the partitions that the left table has in "
        f"{origin!r}. How many these are is not known, because there is no topic {topic}: give the join the name that it "
        "has there (name=)"
    )
