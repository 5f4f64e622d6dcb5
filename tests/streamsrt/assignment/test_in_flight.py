"""Repartition topics that are read to the end can be read back from what is said of them, and are known by their names."""

from __future__ import annotations

import pytest

from streamsrt.assignment.in_flight import (
    Backlog,
    draining_detail,
    draining_topics,
    is_called_repartition,
    left_detail,
    moved_feeds,
    refusal_of_moved_feeds,
)
from tests.streamsrt.assignment.test_versions import topology
from topology import StreamsBuilder, serdes
from topology.graph.nodes import internal_topic_name
from topology.graph.topology import Topology as Program


def test_the_topics_that_are_drained_are_in_what_is_said() -> None:
    found = [
        Backlog("app-by.word-repartition", 3, 20, 1),
        Backlog("app-nobody-repartition", 2, 5, 0),
        Backlog("app-by_term-repartition", 4, 7, 2),
    ]
    said = f"a member joined; {draining_detail(found).rstrip('.')}; a member left"
    assert draining_topics(said) == {"app-by.word-repartition", "app-by_term-repartition"}
    assert draining_topics("app-by.word-repartition (topology epoch 3)") == frozenset()


@pytest.mark.parametrize(("records", "shown"), [(1, "1 record."), (2, "2 records."), (1_000, "1,000 records.")])
def test_one_record_is_counted_in_the_singular(records: int, shown: str) -> None:
    assert f"by-repartition: {shown}" in left_detail("g", {("by-repartition", 0): records}, may_lose=False)


TEXT = {"key": serdes.string, "value": serdes.string}


def joined(name: str | None) -> Program:
    """A foreign-key join, and what comes of it regrouped."""
    builder = StreamsBuilder()
    left, right = builder.table("left", **TEXT), builder.table("right", **TEXT)
    table = left.join(right, lambda one, _: one, foreign_key=lambda value: value, name=name)
    table.group_by(lambda key, value: (value, key), name=name and f"{name}-groups", **TEXT).count(store="counts")
    return builder.build()


@pytest.mark.parametrize("name", [None, "offers"])
def test_every_repartition_topic_of_a_topology_is_called_one(name: str | None) -> None:
    topics = [topic.name for part in joined(name).subtopologies for topic in part.repartition_source_topics]
    assert len(topics) == 3
    for topic in topics:
        assert is_called_repartition("app", internal_topic_name("app", topic))
        assert not is_called_repartition("app", internal_topic_name("other", topic))


def test_no_changelog_or_source_is_called_one() -> None:
    parts = joined("offers").subtopologies
    names = [topic.name for part in parts for topic in part.changelog_topics]
    names += [topic for part in parts for topic in part.source_topics]
    assert len(names) > 4
    assert not [name for name in names if is_called_repartition("app", internal_topic_name("app", name))]


ONE = ("w: source=t sink=r", "both: repartition=r changelog=c,d")
SPLIT = ("w: source=t sink=r,s", "c: repartition=r changelog=c", "d: repartition=s changelog=d")


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        (ONE, SPLIT, ["d"]),
        (SPLIT, ONE, ["d"]),
        (ONE, ("w: source=t sink=x,y", "c: repartition=x changelog=c", "d: repartition=y changelog=d"), []),
        (("w: source=t sink=x,y", "c: repartition=x changelog=c", "d: repartition=y changelog=d"), ONE, []),
        (ONE, ("w: source=t sink=r,s", "both: repartition=r,s changelog=c,d"), []),
        (ONE, ("w: source=t sink=r", "both: repartition=r changelog=c"), []),
        (("w: source=t sink=r", "c: repartition=r changelog=c", "d: source=u changelog=d"), SPLIT, []),
        (
            ("w: source=t sink=r,s", "a: repartition=r changelog=c", "b: repartition=s changelog=d"),
            ("w: source=t sink=r,s", "a: repartition=r changelog=d", "b: repartition=s changelog=c"),
            ["c", "d"],
        ),
    ],
    ids=["split", "merged", "all new", "all gone", "one more", "one less", "from a source", "exchanged"],
)
def test_a_store_that_is_fed_by_another_way_while_a_topic_stays(
    old: tuple[str, ...], new: tuple[str, ...], moved: list[str]
) -> None:
    before, after = topology(0, *old), topology(1, *new)
    assert sorted(each.changelog for each in moved_feeds(before, after)) == moved
    told = refusal_of_moved_feeds(after, [before], {}, [0])
    assert (told is not None) is bool(moved)
    # Without members of the old version, only what it left unread can't arrive.
    assert refusal_of_moved_feeds(after, [before], {}, []) is None
    left = {(topic, 0): 1 for each in moved_feeds(before, after) for topic in each.before}
    assert (refusal_of_moved_feeds(after, [before], left, []) is not None) is bool(moved)
