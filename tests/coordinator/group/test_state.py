"""Groups of several types in one state: which records make and end them."""

from __future__ import annotations

import pytest

from coordinator.group.classic.records import group_record, tombstone
from coordinator.group.classic.state import ClassicGroup, ClassicMember, GroupState, Live, Protocol
from coordinator.group.state import EMPTY, apply, apply_all
from coordinator.group.streams.records import group_tombstones, metadata_record
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import GroupRecord

MEMBER = ClassicMember("m", "i", "client", "/host", 300_000, 45_000, (Protocol("range", b"topics"),), b"partitions")
LIVE = Live(generation=7, protocol_type="consumer", protocol="range", leader="m", since_ms=5, members={"m": MEMBER})
CLASSIC = group_record("g", LIVE)
STREAMS = metadata_record("g", epoch=8, metadata_hash=1, validated_topology_epoch=0, assignment_configs=())


def test_a_record_holds_a_generation_whole() -> None:
    group = apply(EMPTY, CLASSIC).groups["g"]
    assert isinstance(group, ClassicGroup)
    assert (group.live.state, group.live.generation, group.live.leader) == (GroupState.STABLE, 7, "m")
    assert group.live.members == {"m": MEMBER}
    assert group.live.static_members == {"i": "m"}
    assert group_record("g", group.live) == CLASSIC


def test_a_group_of_a_record_without_members_is_empty() -> None:
    group = apply(EMPTY, group_record("g", Live(generation=8, protocol_type="consumer"))).groups["g"]
    assert group.is_empty
    assert apply(apply(EMPTY, CLASSIC), tombstone("g")).groups == {}


@pytest.mark.requirement("SG-001")
def test_a_group_has_the_type_of_its_newest_record() -> None:
    """Within one batch and over several, as records of a conversion come."""
    batches: list[list[GroupRecord]] = [[CLASSIC], [tombstone("g"), STREAMS]]
    state = EMPTY
    for batch in batches:
        state = apply_all(state, batch)
    group = state.groups["g"]
    assert isinstance(group, StreamsGroup)
    assert group.epoch == 8
    assert apply_all(EMPTY, [record for batch in batches for record in batch]) == state
    # A compacted log may still have the tombstone of what the group was before.
    assert apply(state, tombstone("g")) == state
    back = apply_all(state, [*group_tombstones(group), CLASSIC])
    assert isinstance(back.groups["g"], ClassicGroup)
    assert list(back.groups) == ["g"]
