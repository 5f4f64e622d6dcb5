"""What a backfill can't do is refused before anything is computed."""

from __future__ import annotations

import pytest

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.operators import check_topology
from streamsrt.backfill.table_freezing import check_global_topics
from topology import StreamsBuilder, Topology, serdes

TEXT = {"key": serdes.string, "value": serdes.string}


def with_global_table(*, of_own_results: bool, store: str = "counts") -> Topology:
    """A global table of what the program itself writes, or of the changelog of one of its stores."""
    builder = StreamsBuilder()
    names = builder.global_table("out" if of_own_results else "app-names-changelog", **TEXT)
    records = builder.stream("in", **TEXT).join(names, lambda value, name: name, on=lambda key, value: key)
    records.to("out", **TEXT)
    records.group_by_key().count(store=store)
    return builder.build()


def with_foreign_key() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("left", **TEXT), builder.table("right", **TEXT)
    left.join(right, lambda one, other: other, foreign_key=lambda one: one).to_stream().to("out", **TEXT)
    return builder.build()


def test_a_foreign_key_join_is_refused() -> None:
    with pytest.raises(PlanError, match=r"ask and answer each other.* Key one table by what .* \(--state-of\)"):
        check_topology(with_foreign_key())


def test_a_global_table_of_the_application_s_own_results_is_refused() -> None:
    with pytest.raises(PlanError, match="the application itself writes its topic out, so what a record finds in it"):
        check_global_topics(with_global_table(of_own_results=True), "app")
    with pytest.raises(PlanError, match="the application itself writes its topic app-names-changelog"):
        check_global_topics(with_global_table(of_own_results=False, store="names"), "app")
    check_global_topics(with_global_table(of_own_results=False), "app")
