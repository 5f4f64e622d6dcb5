"""When committed offsets and empty groups go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from coordinator.group.classic.state import ClassicGroup, ClassicMember, ClassicSoft, GroupState, Live, Protocol
from coordinator.group.committed import CommittedOffset
from coordinator.group.config import GroupConfig
from coordinator.group.expiry import RECORDS_MAX
from coordinator.group.machine import handle
from coordinator.group.state import EMPTY, GroupsState, apply_all
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import GroupRecord, GroupRequest, PendingRecord, RequestContext, RetentionDue
from coordinator.machine.values import CoordinatorRecord
from streamsrt.wire import types
from streamsrt.wire.messages import encode_record_value
from tests.streamsrt.assignment.notation import subtopology

RETENTION_MS = 1000
HOUR_MS = 3_600_000
CONFIG = GroupConfig.parse({"group.streams.initial.rebalance.delay.ms": "0"})


def offset_record(topic: str, partition: int = 0, *, commit_ms: int = 0, expire_ms: int = -1) -> GroupRecord:
    key = types.OffsetCommitKey(group="g", topic=topic, partition=partition)
    return CoordinatorRecord(
        key, types.OffsetCommitValue(offset=5, commit_timestamp=commit_ms, expire_timestamp=expire_ms)
    )


def state_of(*records: GroupRecord, group: ClassicGroup | None = None) -> GroupsState:
    state = apply_all(EMPTY, records)
    return state if group is None else replace(state, groups={"g": group})


def after(state: GroupsState, now_ms: int) -> GroupsState:
    """The state when everything has expired that does by then."""
    while records := handle(state, RetentionDue(("g",), RETENTION_MS), now_ms, config=CONFIG).records:
        state = apply_all(state, records)
    return state


def left(state: GroupsState, now_ms: int) -> list[str]:
    return sorted(after(state, now_ms).offsets.get("g", {}))


def classic(state: GroupState, since_ms: int = 500, *, topics: Mapping[str, list[str]] | None = None) -> ClassicGroup:
    """A consumers' group; ``topics``: member -> what it subscribes to."""
    members = {
        name: ClassicMember(
            name,
            None,
            "c",
            "/h",
            1000,
            1000,
            (Protocol("range", encode_record_value(types.ConsumerProtocolSubscription(topics=subscribed))),),
        )
        for name, subscribed in (topics or {}).items()
    }
    live = Live(
        state=state, since_ms=since_ms, generation=1, protocol_type="consumer", protocol="range", members=members
    )
    return ClassicGroup("g", is_recorded=True, generation=1, protocol_type="consumer", soft=ClassicSoft(live))


@pytest.mark.requirement("GA-053")
def test_without_a_group_the_commit_counts() -> None:
    state = state_of(offset_record("old"), offset_record("new", commit_ms=500))
    assert left(state, 999) == ["new", "old"]
    assert left(state, 1000) == ["new"]
    assert left(state, 1500) == []


def test_an_empty_classic_group_keeps_all_until_its_last_member_has_been_gone_that_long() -> None:
    group = classic(GroupState.EMPTY, since_ms=500)
    state = state_of(offset_record("old"), offset_record("new", commit_ms=450), group=group)
    assert left(state, 1499) == ["new", "old"]
    assert after(state, 1499).groups == {"g": group}
    assert after(state, 1500) == replace(EMPTY, commits=2)


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_nothing_expires_during_a_rebalance(state: GroupState) -> None:
    group = classic(state, topics={"m": ["a"]})
    assert left(state_of(offset_record("a"), offset_record("b"), group=group), HOUR_MS) == ["a", "b"]


def test_a_stable_classic_group_loses_what_nobody_subscribes_to() -> None:
    group = classic(GroupState.STABLE, topics={"m": ["a"], "n": ["c"]})
    state = state_of(*(offset_record(topic) for topic in "abcd"), group=group)
    assert left(state, 999) == ["a", "b", "c", "d"]
    assert left(state, 1000) == ["a", "c"]
    assert after(state, HOUR_MS).groups == {"g": group}


def streams_group(*, leaves: bool) -> GroupsState:
    context = RequestContext(1, "c", "/h", 1)
    request = types.StreamsGroupHeartbeatRequest
    join = request(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1000,
        process_id="p",
        topology=request.Topology(epoch=0, subtopologies=[subtopology("0: source=read")]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        client_tags=[],
    )
    state = apply_all(EMPTY, [offset_record("read"), offset_record("other")])
    for message in (join, request(group_id="g", member_id="m", member_epoch=-1)) if leaves else (join,):
        decision = handle(state, GroupRequest(context, message), 0, config=CONFIG)
        state = apply_all(state, decision.records)
    return state


def test_a_streams_group_keeps_what_it_reads() -> None:
    state = streams_group(leaves=False)
    assert left(state, HOUR_MS) == ["read"]
    assert isinstance(after(state, HOUR_MS).groups["g"], StreamsGroup)


@pytest.mark.requirement("SG-304")
def test_an_empty_streams_group_goes_with_its_last_offset() -> None:
    state = streams_group(leaves=True)
    assert left(state, 999) == ["other", "read"]
    assert "g" in after(state, 999).groups
    gone = after(state, 1000)
    assert (dict(gone.groups), dict(gone.offsets)) == ({}, {})


def test_an_empty_group_without_offsets_goes_at_once() -> None:
    state = state_of(group=classic(GroupState.EMPTY, since_ms=500))
    assert after(state, 501).groups == {}


@pytest.mark.requirement("GA-053")
def test_a_commit_that_says_when_it_expires() -> None:
    state = state_of(offset_record("soon", expire_ms=10), offset_record("late", expire_ms=HOUR_MS))
    assert left(state, 9) == ["late", "soon"]
    assert left(state, 10) == ["late"]
    assert left(state, HOUR_MS - 1) == ["late"]
    assert left(state, HOUR_MS) == []


def test_an_open_transaction_keeps_what_is_there() -> None:
    state = state_of(offset_record("a"), offset_record("b"))
    state = apply_all(state, [PendingRecord(7, offset_record("a", commit_ms=1))])
    assert left(state, HOUR_MS) == ["a"]
    assert isinstance(after(state, HOUR_MS).offsets["g"]["a"][0], CommittedOffset)


def test_much_goes_in_several_steps() -> None:
    group = classic(GroupState.EMPTY, since_ms=0)
    state = state_of(*(offset_record("t", n) for n in range(2 * RECORDS_MAX + 5)), group=group)
    first = handle(state, RetentionDue(("g",), RETENTION_MS), HOUR_MS, config=CONFIG).records
    assert len(first) == RECORDS_MAX
    gone = after(state, HOUR_MS)
    assert (dict(gone.groups), dict(gone.offsets)) == ({}, {})
