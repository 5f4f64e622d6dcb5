"""Who is removed from a group when an upgrade is sent back, and who is not."""

from __future__ import annotations

from dataclasses import replace

from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.runtime.group_facts import GroupFacts, KnownVersion, MemberFacts, part_topics
from streamsrt.runtime.rollback import has_epoch_of, members_to_remove
from topology import StreamsBuilder
from topology.graph.topology import Topology


def version(*topics: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(list(topics)).group_by_key().count(store="counts")
    return builder.build()


OLD, NEW = version("a"), version("a", "b")


def member(name: str, epoch: int | None, topology: Topology | None) -> MemberFacts:
    return MemberFacts(
        member_id=name,
        instance_id=None,
        process_id=name,
        client_id="app",
        host="there",
        epoch=epoch,
        digest=None if topology is None else topology.digest[:16],
    )


def group(epoch: int | None, *members: MemberFacts) -> GroupFacts:
    return GroupFacts(name="app", kind="classic", state="Stable", epoch=epoch, members=members)


def removed(facts: GroupFacts, former: Topology = OLD) -> list[str]:
    return [each.member_id for each in members_to_remove(facts, former)]


def test_members_with_a_later_version_are_removed() -> None:
    facts = group(4, member("old", 3, OLD), member("new", 4, NEW), member("new too", 4, NEW))
    assert removed(facts) == ["new", "new too"]
    assert not has_epoch_of(facts, OLD)


def test_who_is_behind_or_says_nothing_is_never_removed() -> None:
    assert removed(group(4, member("old", 3, OLD), member("new", 4, NEW)), NEW) == [], "the wrong way round"
    assert removed(group(4, member("old", 3, OLD), member("mute", None, None))) == []


def test_the_epoch_is_raised_once() -> None:
    assert has_epoch_of(group(5, member("old", 5, OLD), member("new", 4, NEW)), OLD)
    assert not has_epoch_of(group(5, member("old", 3, OLD), member("newer", 5, NEW)), OLD)
    assert not has_epoch_of(group(None), OLD)


def test_a_streams_group_that_nobody_runs_says_whose_epoch_it_is() -> None:
    parts = topology_metadata(OLD, "app").subtopologies
    facts = GroupFacts(
        name="app",
        kind="streams",
        state="Stable",
        epoch=2,
        members=(member("old", 0, OLD),),
        topics=frozenset(map(part_topics, parts)),
    )
    assert has_epoch_of(facts, OLD), "raised twice, as far as topics tell"
    for topology in (OLD, NEW):
        told = KnownVersion(2, frozenset(), digest=topology.digest[:16])
        assert has_epoch_of(replace(facts, versions=(told,)), OLD) is (topology is OLD)
