"""Source topics that a version does not read any more, among those of which the group has committed offsets."""

from __future__ import annotations

from streamsrt.runtime.group_facts import GroupFacts, MemberFacts, dropped_sources
from streamsrt.wire.client_tags import TOPOLOGY_PARTS


def member(epoch: int, *reads: str, tells_parts: bool) -> MemberFacts:
    return MemberFacts(
        member_id=f"m{epoch}",
        instance_id=None,
        process_id="p",
        client_id="app",
        host="there",
        epoch=epoch,
        digest=f"d{epoch}",
        reads=frozenset(reads),
        state_tags={TOPOLOGY_PARTS: "1"} if tells_parts else {},
    )


def dropped(*members: MemberFacts) -> frozenset[str]:
    facts = GroupFacts(name="app", kind="classic", state="Stable", epoch=1, members=members)
    return dropped_sources(facts, {"orders", "returns", "app-by-word-repartition"})


def test_what_the_newest_version_of_a_classic_group_does_not_read_is_dropped() -> None:
    old = member(0, "orders", "returns", tells_parts=True)
    assert dropped(old, member(1, "orders", tells_parts=True)) == {"returns"}
    assert dropped() == frozenset()


def test_nothing_is_known_of_a_member_that_may_read_topics_by_a_pattern() -> None:
    old = member(0, "orders", "returns", tells_parts=True)
    assert dropped(old, member(1, tells_parts=False)) == frozenset()
