"""Expiry of committed offsets, and of groups without members and offsets.

Rules (Kafka's ``OffsetExpirationCondition``, KIP-211)
1. A classic group without members keeps its offsets for the retention after its last member has left. A group with
   members loses offsets of topics to which no member subscribes, counted from their commit, while it is stable. For a
   group that never had members (a consumer that assigns its partitions itself), the time of the commit counts.
2. A consumer or streams group loses offsets of topics that no member reads, counted from their commit: without members,
   all of them.
3. A commit that contains its own expiry time expires exactly then.
4. A partition for which an open transaction has an offset keeps its offset.
5. A group without members and without offsets is deleted.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.group.classic.state import CONSUMER, ClassicGroup, GroupState
from coordinator.group.classic.subscription import subscribed_topics
from coordinator.group.committed import NEVER_EXPIRES, CommittedOffset, is_pending, offset_tombstones, with_pending
from coordinator.group.listing import tombstones
from coordinator.group.offsets import topics_read_by
from coordinator.group.state import Group, GroupsState
from coordinator.group.values import GroupDecision, GroupRecord, RetentionDue
from coordinator.machine.values import Decision

RECORDS_MAX = 1000
"""How many tombstones one decision has at most, more or less: a batch must fit into the log."""

_Base = Callable[[CommittedOffset], int]


def expired(state: GroupsState, event: RetentionDue, now_ms: int) -> GroupDecision:
    """Returns tombstones for expired offsets of these groups. Called again until there are none."""
    records: list[GroupRecord] = []
    for group_id in event.group_ids:
        records += _of_group(state, group_id, now_ms - event.retention_ms, now_ms, RECORDS_MAX - len(records))
        if len(records) >= RECORDS_MAX:
            break
    return Decision(records=tuple(records))


def _of_group(state: GroupsState, group_id: str, oldest_ms: int, now_ms: int, limit: int) -> list[GroupRecord]:
    group, offsets = state.groups.get(group_id), state.offsets.get(group_id, {})
    gone: dict[str, list[int]] = {}
    count = 0
    base = _base(group)
    if base is not None:
        read = topics_read_by(group, offsets)
        for topic in sorted(offsets.keys() - read):
            for partition, offset in offsets[topic].items():
                is_over = base(offset) <= oldest_ms if offset.expire_ms == NEVER_EXPIRES else offset.expire_ms <= now_ms
                if is_over and count < limit and not is_pending(state.pending, group_id, topic, partition):
                    gone.setdefault(topic, []).append(partition)
                    count += 1
    records = list(offset_tombstones(group_id, gone))
    left = sum(map(len, with_pending(state.pending, group_id, offsets).values())) - count
    if not left and count < limit and group is not None and group.is_empty:
        records += tombstones(group)
    return records


def _base(group: Group | None) -> _Base | None:
    """Returns when the retention of the group's offsets starts; None while they don't expire."""
    if not isinstance(group, ClassicGroup) or not group.live.protocol_type:
        return _commit_ms
    live = group.live
    if live.state is GroupState.EMPTY:
        return _commit_ms if live.since_ms < 0 else lambda _: live.since_ms
    knows = live.protocol_type == CONSUMER and live.state is GroupState.STABLE
    return _commit_ms if knows and subscribed_topics(live) is not None else None


def _commit_ms(offset: CommittedOffset) -> int:
    return offset.commit_ms
