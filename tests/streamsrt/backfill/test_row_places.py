"""Which rows lie elsewhere than their keys belong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamsrt.backfill.plan import BackfillPlan, InternalTopicPlan, StorePlan, TaskPlan
from streamsrt.backfill.row_places import RowPlaces, places_of
from streamsrt.wire.murmur2 import partition_for_key
from tests.streamsrt.backfill.repartition import counted_app
from topology.graph.nodes import Subtopology
from topology.graph.topology import Topology

KEYS = [b"key-%d" % number for number in range(20)]
COUNT = 4


def _home(topology: Topology) -> Subtopology:
    return next(each for each in topology.subtopologies if any(spec.name == "counts" for spec in each.stores))


def places(topology: Topology, partition: int, count: int = COUNT) -> RowPlaces | None:
    stores = tuple(
        StorePlan(name=spec.name, changelog=f"a-{spec.name}-changelog", own_changelog=True, persistent=True)
        for spec in _home(topology).stores
    )
    plan = BackfillPlan(
        application="a",
        application_id="a",
        code_digest="",
        version="",
        topology_digest="",
        created_ms=0,
        internal_topics=tuple(
            InternalTopicPlan(name=store.changelog or "", kind="changelog", partitions=count) for store in stores
        ),
    )
    task = TaskPlan(id="0_0", subtopology="0", partition=partition, level=0, stores=stores)
    return places_of(topology, _home(topology), plan, task).get("counts")


def by_default(partition: int, count: int) -> list[bytes]:
    return [key for key in KEYS if partition_for_key(key, count) == partition]


def by_last(partition: int, count: int) -> list[bytes]:
    return [key for key in KEYS if int(key[-1:]) % count == partition]


def filled(topology: Topology, partition: int, keys: Sequence[bytes]) -> RowPlaces:
    found = places(topology, partition)
    assert found is not None
    found.add([(key, b"1") for key in keys])
    return found


@pytest.mark.parametrize(
    ("topology", "keys_of", "place"),
    [
        (counted_app.counted, by_default, partition_for_key),
        (counted_app.placed, by_last, lambda key, count: int(key[-1:]) % count),
    ],
)
def test_rows_of_fewer_partitions_are_explained_by_their_number(topology, keys_of, place) -> None:  # type: ignore[no-untyped-def]
    assert filled(topology, 1, keys_of(1, COUNT)).strays() is None
    found = filled(topology, 1, keys_of(1, 3)).strays()
    assert found is not None
    astray = {key.hex(): place(key, COUNT) for key in keys_of(1, 3) if place(key, COUNT) != 1}
    assert (found.rows, found.explained_by, found.belong_to) == (len(astray), (3,), astray)
    assert not found.has_own_keys
    anywhere = filled(topology, 1, KEYS).strays()
    assert anywhere is not None
    assert anywhere.explained_by == ()


def test_rows_without_a_place_are_not_looked_at() -> None:
    assert places(counted_app.versioned, 0) is None
    assert places(counted_app.counted, 0, count=1) is None
    # A count does not have the value of its record, by which the partitioner goes.
    assert filled(counted_app.valued, 0, KEYS).strays() is None


def test_a_program_that_chooses_its_keys_is_known() -> None:
    found = filled(counted_app.from_one, 0, KEYS).strays()
    assert found is not None
    assert found.has_own_keys
