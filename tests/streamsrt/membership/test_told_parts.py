"""The subtopologies that a member of a classic group tells: all of them, in few bytes, or none."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streamsrt.membership.state_marks import name_mark
from streamsrt.membership.told_parts import MOST_TOPICS, ToldPart, parts_tag, told_parts
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.wire.client_tags import TOPOLOGY_PARTS
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}


def tag_of(topology: Topology) -> dict[str, str]:
    return parts_tag(topology_metadata(topology, "app"))


def counted(topics: list[str], *, stores: int = 1) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(topics, **TEXT).group_by(lambda _, value: value, name="by")
    for number in range(stores):
        grouped.count(store=f"counts-{number}")
    return builder.build()


def test_they_are_read_as_they_were_told() -> None:
    topology = counted(["b", "a"])
    found = {part.id: part for part in told_parts(tag_of(topology))}
    assert found.keys() == {part.id for part in topology.subtopologies}
    repartition, changelog = name_mark("app-by-repartition"), name_mark("app-counts-0-changelog")
    assert set(found.values()) == {
        ToldPart(topology.subtopologies[0].id, (name_mark("a"), name_mark("b")), (), (repartition,), ()),
        ToldPart(topology.subtopologies[1].id, (), (repartition,), (), (changelog,)),
    }


def test_numbers_of_subtopologies_are_ids_too() -> None:
    metadata = topology_metadata(counted(["a"]), "app", subtopology_id="number")
    assert [part.id for part in told_parts(parts_tag(metadata))] == ["0", "1"]


def test_much_or_what_a_pattern_names_is_not_told() -> None:
    # Each part has its topic of one repartition.
    most = MOST_TOPICS - 3
    assert len(tag_of(counted(["a"], stores=most))[TOPOLOGY_PARTS]) <= MOST_TOPICS * 7 + 100
    assert tag_of(counted(["a"], stores=most + 1)) == {}
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*"), **TEXT).group_by_key().count(store="counts")
    assert tag_of(builder.build()) == {}


@pytest.mark.parametrize("text", ["", "ä", "1*", "1abcd", "2AAAA"])
def test_another_tag_says_nothing(text: str) -> None:
    assert told_parts({TOPOLOGY_PARTS: text}) == []
    whole = tag_of(counted(["a"]))[TOPOLOGY_PARTS]
    assert told_parts({TOPOLOGY_PARTS: whole[:-4]}) == []
