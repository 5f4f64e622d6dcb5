"""Which rows of a computed store lie elsewhere than their keys belong by the present number of partitions.

1. A replay leaves a row in the task of its record's partition. Records from before a topic got more partitions are where
   their keys belonged by the old number, so the rows that only they have made are there, too.
2. What decides the place of a row is what ``state repartition`` moves it by (:mod:`streamsrt.backfill.repartition`). Rows
   that have no place by that are not looked at.
3. Rows of a producer with a partitioner of its own lie elsewhere, too. No one number of partitions explains all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from streamsrt.backfill.errors import UnplacedRowError
from streamsrt.backfill.manifest import StrayRows, TaskManifest
from streamsrt.backfill.plan import BackfillPlan, TaskPlan
from streamsrt.backfill.repartition.partitioners import Placements, Placing
from streamsrt.backfill.repartition.placement import (
    has_closed_marks,
    has_own_keys,
    key_of_rows,
    refusal_of,
    whole_key_of_rows,
)
from streamsrt.backfill.repartition.survey import PROOF_BITS
from streamsrt.wire.murmur2 import murmur2_many
from streamsrt.wording import counted
from topology.graph.nodes import StoreSpec, Subtopology
from topology.graph.topology import Topology

BY_THEIR_KEYS = (
    "Plan again in another --dir with a lake without partitions that has the records from before (--lake, --lake-until): "
    "they are then placed by their keys"
)
KEPT_KEYS = 200
"""So many keys of rows in other places are kept of a partition of a store, to look for them in the cluster."""

PartitionOf: TypeAlias = Callable[[int], int]
"""The partition of a row, by the number of partitions."""


def places_of(topology: Topology, subtopology: Subtopology, plan: BackfillPlan, task: TaskPlan) -> dict[str, RowPlaces]:
    """What looks at the rows of a task's stores, by store; stores whose rows have no place of their own are left out."""
    counts = {topic.name: topic.partitions for topic in plan.internal_topics}
    placements = Placements(topology, plan.application_id)
    specs = {spec.name: spec for spec in subtopology.stores}
    found = {}
    for store in task.stores:
        spec, count = specs[store.name], counts.get(store.changelog or "", 1)
        if count > 1 and not refusal_of(spec, subtopology) and not has_closed_marks(spec, subtopology):
            placing = placements.of_store(spec, subtopology)
            found[store.name] = RowPlaces(spec, subtopology, placing, task.partition, count)
    return found


class RowPlaces:
    """Looks at the rows of one partition of a store as they are written. ``count``: the number of its partitions."""

    def __init__(
        self, spec: StoreSpec, subtopology: Subtopology, placing: Placing | None, partition: int, count: int
    ) -> None:
        self._key_of = key_of_rows(spec, subtopology)
        self._whole_key_of = whole_key_of_rows(spec, subtopology)
        self._has_own_keys = has_own_keys(spec, subtopology)
        self._placing = placing
        self._partition = partition
        self._count = count
        self._rows = 0
        self._keys: dict[str, int] = {}
        # A number of partitions must be one with this partition.
        self._explaining = list(range(partition + 1, count))
        self._has_places = True

    def add(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Takes rows as keys and values of the changelog."""
        if not self._has_places:
            return
        try:
            for key, partition_of in self._placed(rows):
                belongs = partition_of(self._count)
                if belongs != self._partition:
                    self._rows += 1
                    if len(self._keys) < KEPT_KEYS:
                        self._keys[key.hex()] = belongs
                    self._explaining = [each for each in self._explaining if partition_of(each) == self._partition]
        except UnplacedRowError:
            # A partitioner that needs what rows do not have: nothing is known of any.
            self._has_places = False

    def _placed(self, rows: Sequence[tuple[bytes, bytes | None]]) -> Iterable[tuple[bytes, PartitionOf]]:
        keys = [self._key_of(key) for key, _ in rows]
        if self._placing is None:
            hashes = murmur2_many(keys)
            for (row_key, _), key in zip(rows, keys, strict=True):
                yield row_key, (hashes[key] & 0x7FFFFFFF).__mod__
            return
        for (row_key, value), key in zip(rows, keys, strict=True):
            yield row_key, _by_program(self._placing, key, self._whole_key_of(row_key), value)

    def strays(self) -> StrayRows | None:
        """The rows that lie elsewhere; None if there are none, or if nothing is known of their places."""
        if not self._rows or not self._has_places:
            return None
        return StrayRows(
            rows=self._rows,
            explained_by=tuple(self._explaining),
            belong_to=self._keys,
            has_own_keys=self._has_own_keys,
        )


def _by_program(placing: Placing, key: bytes, whole_key: bytes, value: bytes | None) -> PartitionOf:
    return lambda count: placing.partition(key, whole_key, value, count)


# ------------------------------------------------------------------------------------------------------ what that says


def explaining(strays: Collection[StrayRows]) -> list[int]:
    """The numbers of partitions each of which explains where all of the rows of a store are."""
    return sorted(set.intersection(*(set(each.explained_by) for each in strays)))


def is_explained(strays: Collection[StrayRows], count: int) -> bool:
    """Whether a smaller number of partitions than ``count`` explains where all of the rows are, and chance does not."""
    rows = sum(each.rows for each in strays)
    by_chance = any(each.has_own_keys for each in strays) and rows * math.log2(count) < PROOF_BITS
    return bool(explaining(strays)) and not by_chance


def notes_on_places(plan: BackfillPlan, manifests: Iterable[TaskManifest]) -> Iterator[str]:
    """Notes about stores with rows of records from before the source topics got more partitions."""
    counts = {topic.name: topic.partitions for topic in plan.internal_topics}
    strays: dict[tuple[str, str], list[StrayRows]] = {}
    for manifest in manifests:
        for store in manifest.stores:
            if store.strays is not None and store.changelog is not None:
                strays.setdefault((store.name, store.changelog.topic), []).append(store.strays)
    for (name, topic), found in sorted(strays.items()):
        if is_explained(found, counts[topic]):
            numbers = explaining(found)
            before = " or ".join([*map(str, numbers[:-1]), counted(numbers[-1], "partition")])
            yield (
                f"store {name}: {counted(sum(each.rows for each in found), 'row')} lie where {before} would put their "
                f"keys, and there are {counts[topic]} now. The records seem to be from before the source topics got more "
                "partitions. Later records of these keys are in other partitions, so a key may have rows in two. "
                f"{BY_THEIR_KEYS}"
            )
