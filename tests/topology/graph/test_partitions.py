"""How many partitions the topics of a topology need."""

from __future__ import annotations

import re
from typing import Any

import pytest

from topology import JoinWindows, StreamsBuilder, serdes
from topology.graph.outline import outline
from topology.graph.partitions import partitions_needed

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


@pytest.mark.parametrize(
    ("joined", "sources", "needed"),
    [
        ("orders", {"returns": 2, "orders": 3}, {"j-left-repartition": 3}),
        ("orders", {"returns": 2}, {}),
        (re.compile("orders.*"), {"returns": 2, "orders": 3}, {}),
    ],
)
def test_a_repartition_topic_has_the_count_of_what_it_is_joined_with(
    joined: Any, sources: dict[str, int], needed: dict[str, int]
) -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("returns", **TEXT).select_key(lambda key, value: value)
    rekeyed.join(builder.stream(joined, **TEXT), lambda one, other: one + other, JoinWindows(5), name="j").to("out")
    assert partitions_needed(outline(builder.build()), sources).repartition == needed
