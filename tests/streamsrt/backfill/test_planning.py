"""What a backfill can't do is refused before anything is computed."""

from __future__ import annotations

import pytest

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.planning import _check_topology
from topology import Store, StreamsBuilder, Topology, serdes

TEXT = {"key": serdes.string, "value": serdes.string}


def with_global_table() -> Topology:
    builder = StreamsBuilder()
    names = builder.global_table("names", **TEXT)
    builder.stream("in", **TEXT).join(names, lambda value, name: name, on=lambda key, value: key).to("out", **TEXT)
    return builder.build()


def with_foreign_key() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("left", **TEXT), builder.table("right", **TEXT)
    left.join(right, lambda one, other: other, foreign_key=lambda one: one).to_stream().to("out", **TEXT)
    return builder.build()


def with_versions() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", store=Store("rows", kind="versioned", retention=1000, **TEXT)).to_stream().to("out", **TEXT)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        (with_global_table(), r"global tables and stores \(of names\)"),
        (with_foreign_key(), "foreign-key joins .* ask and answer each other"),
        (with_versions(), r"versioned stores \(rows\)"),
    ],
    ids=["global table", "foreign key", "versions"],
)
def test_refused(topology: Topology, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        _check_topology(topology)
