"""Which tasks of two versions get in each other's way, and what changes hands together."""

from __future__ import annotations

import pytest

from streamsrt.assignment.topology import Topology, topology_of
from streamsrt.assignment.versions import Part, Versions
from streamsrt.wire.types import StreamsGroupHeartbeatRequest
from tests.coordinator.group.transcript import subtopology


def topology(epoch: int, *lines: str) -> Topology:
    parts = [subtopology(line) for line in lines]
    return topology_of(StreamsGroupHeartbeatRequest.Topology(epoch=epoch, subtopologies=parts))


def bundles(*versions: tuple[str, ...]) -> list[tuple[dict[int, set[str]], bool]]:
    """The newest version first."""
    lead, *older = [topology(len(versions) - 1 - at, *lines) for at, lines in enumerate(versions)]
    found = Versions(lead, older).bundles
    return [({epoch: set(ids) for epoch, ids in each.ids.items()}, each.is_whole) for each in found]


def test_what_is_the_same_is_in_no_bundle() -> None:
    assert bundles(("a: source=t changelog=c", "n: source=new"), ("a: source=t changelog=c",)) == []


def test_one_version_has_no_bundles() -> None:
    assert bundles(("a: source=t changelog=c",)) == []


def test_another_source_beside_the_same_store() -> None:
    assert bundles(("a: source=t,u changelog=c",), ("a: source=t changelog=c",)) == [({1: {"a"}, 0: {"a"}}, False)]


def test_a_changelog_that_moves_to_another_id() -> None:
    found = bundles(("0: source=n", "1: source=t changelog=c"), ("0: source=t changelog=c",))
    assert found == [({1: {"0", "1"}, 0: {"0"}}, False)]


def test_what_an_older_version_alone_has() -> None:
    assert bundles(("a: source=t",), ("a: source=t", "gone: source=u")) == [({0: {"gone"}}, False)]


def test_a_split_and_a_merge() -> None:
    assert bundles(("a: source=t", "b: source=u"), ("both: source=t,u",)) == [({1: {"a", "b"}, 0: {"both"}}, False)]
    assert bundles(("both: source=t,u",), ("a: source=t", "b: source=u")) == [({1: {"both"}, 0: {"a", "b"}}, False)]


def test_a_repartition_topic_that_goes_takes_its_reader_and_writer_along() -> None:
    found = bundles(("b: source=t changelog=c",), ("a: source=t sink=r", "b: repartition=r changelog=c"))
    assert found == [({1: {"b"}, 0: {"a", "b"}}, True)]


def test_a_repartition_topic_that_comes_takes_its_reader_and_writer_along() -> None:
    found = bundles(("a: source=t sink=r", "b: repartition=r changelog=c"), ("b: source=t changelog=c",))
    assert found == [({1: {"a", "b"}, 0: {"b"}}, True)]


def test_a_repartition_topic_with_another_name() -> None:
    # The writer is the same task, but what it writes goes elsewhere.
    found = bundles(
        ("a: source=t sink=r2", "b: repartition=r2 changelog=c"), ("a: source=t sink=r", "b: repartition=r changelog=c")
    )
    assert found == [({1: {"a", "b"}, 0: {"a", "b"}}, True)]


def test_a_repartition_topic_with_its_own_new_subtopology_is_in_nobody_s_way() -> None:
    assert bundles(("a: source=t sink=r", "b: repartition=r"), ("a: source=t",)) == []


def test_a_repartition_topic_that_goes_with_its_subtopology_is_read_on() -> None:
    # Nobody would read what its old writers write on.
    found = bundles(("a: source=t",), ("a: source=t sink=r", "b: repartition=r"))
    assert found == [({1: {"a"}, 0: {"a", "b"}}, True)]


@pytest.mark.parametrize("pattern", ["t|x.*", "other.*"])
def test_a_pattern_meets_a_name_that_it_matches_and_every_other_pattern(pattern: str) -> None:
    versions = Versions(topology(1, f"a: pattern={pattern}"), [topology(0, "b: source=t", "c: pattern=s.*")])
    met = {Part(0, "c")} | ({Part(0, "b")} if pattern.startswith("t") else set())
    assert versions.meeting(1, "a") == met


def test_three_versions_and_a_way_back() -> None:
    old, bad = ("a: source=t changelog=c",), ("a: source=t,u changelog=c",)
    assert bundles(old, bad, old) == [({2: {"a"}, 1: {"a"}, 0: {"a"}}, False)]
    versions = Versions(topology(2, *old), [topology(1, *bad), topology(0, *old)])
    assert versions.is_of_lead(0, "a")
    assert not versions.is_of_lead(1, "a")
    assert versions.meeting(2, "a") == {Part(1, "a")}


def test_a_version_that_is_not_known_has_what_the_lead_has() -> None:
    versions = Versions(topology(5, "a: source=t"), [])
    assert versions.is_of_lead(3, "a")
    assert not versions.is_of_lead(3, "b")


ONE = ("w: source=t sink=r", "both: repartition=r changelog=c,d")
SPLIT = ("w: source=t sink=r,s", "c: repartition=r changelog=c", "d: repartition=s changelog=d")


def test_a_writer_is_another_one_where_it_gets_a_topic_that_feeds_what_was_there() -> None:
    versions = Versions(topology(1, *SPLIT), [topology(0, *ONE)])
    assert not versions.is_of_lead(0, "w"), "its old tasks don't write s, from which d is fed now"
    assert versions.meeting(0, "w") == {Part(1, "w")}
    assert bundles(SPLIT, ONE) == [({1: {"w", "c", "d"}, 0: {"w", "both"}}, True)]
    back = Versions(topology(2, *ONE), [topology(1, *SPLIT), topology(0, *ONE)])
    assert (back.is_of_lead(1, "w"), back.is_of_lead(0, "w")) == (False, True)


def test_a_store_that_moves_from_a_source_topic_behind_a_new_repartition_takes_the_writer_along() -> None:
    new = ("w: source=t sink=r,s", "a: repartition=r changelog=c", "moved: repartition=s changelog=d")
    old = ("w: source=t sink=r", "a: repartition=r changelog=c", "moved: source=u changelog=d")
    assert bundles(new, old) == [({1: {"w", "moved"}, 0: {"w", "moved"}}, True)]
