"""What a store is computed from, and stores that can't be rebuilt alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from examples import flights
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.repair.scope import note_on_global_tables, scope_of
from tests.streamsrt.backfill import chained, every_store, worldwide
from tests.streamsrt.backfill.repair import every_kind, two_stores
from topology import JoinWindows, KStream, Processor, Record, Store, StreamsBuilder, serdes
from topology.graph.topology import Topology


def built(make: Callable[[StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder()
    make(builder)
    return builder.build()


def words(builder: StreamsBuilder, topic: str = "words") -> KStream[str, str]:
    return builder.stream(topic, key=serdes.string, value=serdes.string)


class Both(Processor[str, str, str, str]):
    """It has two stores."""

    def process(self, record: Record[str, str]) -> Iterator[Record[str, str]]:
        yield record


async def asks(value: str) -> str:
    return value


@pytest.mark.parametrize(
    ("topology", "store", "subtopologies", "feeding", "fed"),
    [
        (flights.topology, "airlines", 1, {}, ("delays-per-hour",)),
        (flights.topology, "delays-per-hour", 1, {"airlines": "rows"}, ()),
        (chained.topology, "counts", 2, {}, ()),
        (two_stores.topology, "counts", 1, {}, ("words-by-letter",)),
        (two_stores.topology, "words-by-letter", 2, {"counts": "rows"}, ()),
        (every_kind.topology, "names", 1, {}, ("both", "joined", "keys-of-names")),
    ],
)
def test_a_store_is_computed_from_what_its_writers_descend_from_and_touch(
    topology: Topology, store: str, subtopologies: int, feeding: dict[str, str], fed: tuple[str, ...]
) -> None:
    scope = scope_of(topology, store)
    assert (scope.spec.name, len(scope.subtopologies), scope.feeding) == (store, subtopologies, feeding)
    assert scope.fed == fed


def test_stores_with_retention_are_compared_where_both_sides_have_rows() -> None:
    def make(builder: StreamsBuilder) -> None:
        stores = (Store("last", max_entries=2), Store("all"))
        words(builder).process(Both, stores=stores).to("out", key=serdes.string, value=serdes.string)

    topology = built(make)
    assert scope_of(topology, "all").feeding == {"last": "common rows"}
    assert scope_of(topology, "last").feeding == {"all": "rows"}


def test_what_only_reads_a_store_has_no_part_in_it() -> None:
    def make(builder: StreamsBuilder) -> None:
        table = builder.table("names", key=serdes.string, value=serdes.string, store="names")
        asked = words(builder).map_async(asks)
        asked.join(table, lambda value, name: value + name).group_by_key().count(store="joined")

    topology = built(make)
    assert scope_of(topology, "names").feeding == {}
    with pytest.raises(
        PlanError, match=r"'joined' can't be rebuilt alone: .*it asks what it asks now.* without --store"
    ):
        scope_of(topology, "joined")


def test_what_a_replay_may_compute_otherwise_is_refused() -> None:
    def make(builder: StreamsBuilder) -> None:
        pairs = words(builder).join(words(builder, "others"), lambda one, other: one + other, JoinWindows(1000))
        pairs.group_by_key().count(store="pairs")

    with pytest.raises(
        PlanError, match=r"'pairs' can't be rebuilt alone: .*depends on the order in which they arrived"
    ):
        scope_of(built(make), "pairs")


def test_a_store_behind_a_join_with_a_global_table_is_refused() -> None:
    with pytest.raises(PlanError, match=r"'per-customer' can't be rebuilt alone: .* may have had other rows when"):
        scope_of(worldwide.topology, "per-customer")


def test_processors_may_read_global_tables_as_of_now() -> None:
    def make(builder: StreamsBuilder, *, world: bool) -> None:
        if world:
            builder.global_table("world", key=serdes.string, value=serdes.string)
        processed = words(builder).process_values(Both)
        processed.group_by_key().count(store="counts")

    alone, beside = (built(partial(make, world=world)) for world in (False, True))
    assert not list(note_on_global_tables(alone, scope_of(alone, "counts")))
    (note,) = note_on_global_tables(beside, scope_of(beside, "counts"))
    assert "if this code reads a global table, it sees the rows of now" in note
    assert not list(note_on_global_tables(flights.topology, scope_of(flights.topology, "airlines")))


def test_a_store_without_a_changelog_of_its_own_is_refused() -> None:
    with pytest.raises(PlanError, match="the application has no store 'other'; it has airlines, delays-per-hour"):
        scope_of(flights.topology, "other")
    with pytest.raises(PlanError, match=r"'unlogged' has no changelog of its own.*\(logging=False\)"):
        scope_of(every_store.topology, every_store.UNLOGGED)
    optimised = next(
        spec for each in every_store.optimised.subtopologies for spec in each.stores if spec.source_topic is not None
    )
    with pytest.raises(PlanError, match=f"restored from topic '{optimised.source_topic}'. Delete its files"):
        scope_of(every_store.optimised, optimised.name)
