"""What a backfill can't do is refused before anything is computed."""

from __future__ import annotations

import pytest

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.operators import check_topology
from topology import Processor, Record, Store, StreamsBuilder, Topology, serdes

TEXT = {"key": serdes.string, "value": serdes.string}


def with_global_table() -> Topology:
    builder = StreamsBuilder()
    names = builder.global_table("names", **TEXT)
    builder.stream("in", **TEXT).join(names, lambda value, name: name, on=lambda key, value: key).to("out", **TEXT)
    return builder.build()


class Ignore(Processor[str, str, None, None]):
    def process(self, record: Record[str, str]) -> None:
        pass


def with_global_store() -> Topology:
    builder = StreamsBuilder()
    builder.add_global_store(Store("world", logging=False, **TEXT), "names", Ignore, **TEXT)
    builder.stream("in", **TEXT).to("out", **TEXT)
    return builder.build()


def with_foreign_key() -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("left", **TEXT), builder.table("right", **TEXT)
    left.join(right, lambda one, other: other, foreign_key=lambda one: one).to_stream().to("out", **TEXT)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "says"),
    [
        (with_global_table(), "depends on when that was.* Join with a table of the same partitions"),
        (with_global_store(), r"global tables and stores \(of names\).*depends on when that was"),
        (with_foreign_key(), "ask and answer each other.* Key one table by what they are joined on"),
    ],
    ids=["global table", "global store", "foreign key"],
)
def test_refused(topology: Topology, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        check_topology(topology)
