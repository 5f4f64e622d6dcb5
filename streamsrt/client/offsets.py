"""Committed offsets of a group: OffsetCommit and OffsetFetch with member id and epoch, by topic name.

1. A commit of a member carries its epoch, so that a fenced member can't commit (KIP-848, KIP-1071). In a group of the
   classic protocol the epoch is the generation, and a static member names its instance id as well.
2. Retriable errors are retried until the deadline, only for the partitions that had them.
3. A fetch waits until offsets are stable (``require_stable``): pending transactional commits are not skipped.
4. An offset is committed only if the answer says so: a partition that it leaves out counts as refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from streamsrt.client.cluster import Cluster, backoff_s, may_be_retried
from streamsrt.client.values import (
    CommitError,
    OffsetAndMetadata,
    RequestTimedOutError,
    StaleMemberEpochError,
    TopicPartition,
    UnknownMemberError,
)
from streamsrt.errors import RequestFailedError, StreamsError, missing_acl
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode, error_name, is_retriable

P = TypeVar("P")
T = TypeVar("T")

LAST_VERSION_WITH_NAMES = 9
FIRST_COMMIT_VERSION_OF_MEMBERS = 7
"""Kafka 2.3's. Brokers with groups whose members have epochs instead of generations have version 9 as well."""
FIRST_STABLE_FETCH_VERSION = 7
"""Kafka 2.5's, for one group. From 8 on a request may name several, from 9 on a member and its epoch."""

COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
STALE = frozenset(
    {
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_MEMBER_EPOCH,
        # The members of a classic group have joined and do not have their tasks yet: until then, the group accepts no
        # offsets.
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""What a member is told that is in the group still: the same offsets may be committed a little later."""
NOT_A_MEMBER = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""What a member is told that is in the group no more. The second one: another process has taken its instance id."""
LEFT_OUT = ErrorCode.UNKNOWN_SERVER_ERROR
"""What a partition of a commit is taken to be told that the answer leaves out (rule 4)."""


OPEN_TRANSACTION = (
    "An open transaction of another producer, usually of an instance that was killed, has offsets of the group that are not "
    "decided. The broker aborts it when transaction.timeout.ms of that producer is over. If it lasts longer, it hangs: "
    "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging (or describe-producers --topic __consumer_offsets "
    "--partition N) shows it, and abort ends it"
)
"""What keeps an offset from being stable, and until when."""


async def commit(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    member_id: str = "",
    member_epoch: int = -1,
    timeout_s: float = 30.0,
) -> None:
    """Commits offsets. Raises StaleMemberEpochError, UnknownMemberError, CommitError, RequestTimedOutError."""
    left = dict(offsets)
    loop = asyncio.get_running_loop()
    deadline, failures = loop.time() + timeout_s, 0
    while left:
        try:
            request = _commit_request(group_id, left, member_id, member_epoch)
            request.group_instance_id = cluster.instance_ids.get(group_id) if member_id else None
            version_min = FIRST_COMMIT_VERSION_OF_MEMBERS if member_id else 2
            sending = cluster.send_to_coordinator(
                group_id, request, version_min=version_min, version_max=LAST_VERSION_WITH_NAMES
            )
            response = await cluster.within(sending, deadline)
            codes = {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}
            failed = {tp: code for tp in left if (code := codes.get(tp, LEFT_OUT)) != ErrorCode.NONE}
            if not failed:
                return
            left = {tp: left[tp] for tp in failed}
            if COORDINATOR_MOVED.intersection(failed.values()):
                cluster.forget_coordinator(group_id)
            who = cluster.config.security.principal
            error: StreamsError = _commit_error(group_id, failed, member_id, member_epoch, who)
            if not all(is_retriable(code) for code in failed.values()):
                raise error
        except StreamsError as caught:
            error = caught
            if not may_be_retried(error):
                raise
        failures = await _back_off(
            cluster, failures, deadline, f"Offsets of group {group_id!r} are not committed", error
        )


def _commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member_id: str, member_epoch: int
) -> types.OffsetCommitRequest:
    request = types.OffsetCommitRequest
    return request(
        group_id=group_id,
        generation_id_or_member_epoch=member_epoch,
        member_id=member_id,
        topics=topics_of(request.OffsetCommitRequestTopic, request.OffsetCommitRequestPartition, offsets),
    )


def topics_of(
    topic_type: Callable[..., T], partition_type: Callable[..., P], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[T]:
    """Returns the topics of a request that commits ``offsets``, made of its types of a topic and of a partition."""
    topics: dict[str, list[P]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            partition_type(
                partition_index=partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return [topic_type(name=name, partitions=partitions) for name, partitions in topics.items()]


def _commit_error(
    group_id: str, failed: Mapping[TopicPartition, int], member_id: str, member_epoch: int, principal: str | None
) -> CommitError:
    which = ", ".join(f"{t}-{p} ({error_name(code)})" for (t, p), code in sorted(failed.items())[:5])
    who = f" by member {member_id} in epoch {member_epoch}" if member_id else ""
    more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    text = f"Group {group_id!r}: the commit{who} was refused for {which}{more}."
    return commit_error(text, failed, principal)


def commit_error(text: str, failed: Mapping[TopicPartition, int], principal: str | None) -> CommitError:
    """Returns the error for a commit that was refused for these partitions."""
    forbidden = sorted({topic for (topic, _), code in failed.items() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    if forbidden:
        text += " " + missing_acl("READ", "topic", forbidden, principal)
    codes = sorted(set(failed.values()))
    gone = [code for code in codes if code in NOT_A_MEMBER]
    if gone:
        return UnknownMemberError(text, gone[0], failed)
    stale = [code for code in codes if code in STALE]
    if stale:
        return StaleMemberEpochError(text, stale[0], failed)
    return CommitError(text, final_code(codes), failed)


def final_code(codes: Collection[int]) -> int:
    """Returns the decisive code: a final one before a retriable one."""
    return next((code for code in codes if not is_retriable(code)), next(iter(codes)))


async def committed(
    cluster: Cluster,
    group_id: str,
    partitions: Collection[TopicPartition] | None = None,
    *,
    member_id: str | None = None,
    member_epoch: int = -1,
    require_stable: bool = True,
    timeout_s: float = 30.0,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns committed offsets; a partition without one is absent. Raises as :func:`commit` does.

    Brokers below Kafka 3.7 do not look at the member.
    """
    loop = asyncio.get_running_loop()
    deadline, failures = loop.time() + timeout_s, 0
    request = _fetch_request(group_id, partitions, member_id, member_epoch, require_stable)
    while True:
        try:
            sending = cluster.send_to_coordinator(
                group_id, request, version_min=FIRST_STABLE_FETCH_VERSION, version_max=LAST_VERSION_WITH_NAMES
            )
            response = await cluster.within(sending, deadline)
            return _fetched(cluster, group_id, response.groups[0] if response.groups else response)
        except StreamsError as error:
            if not may_be_retried(error):
                raise
            failures = await _back_off(cluster, failures, deadline, f"Offsets of group {group_id!r} are unknown", error)


def _fetch_request(
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    member_id: str | None,
    member_epoch: int,
    require_stable: bool,
) -> types.OffsetFetchRequest:
    """Returns the request for one group, with the fields of version 7 and of later ones."""
    request = types.OffsetFetchRequest
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions or ()):
        numbers.setdefault(topic, []).append(partition)
    topics = [request.OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in numbers.items()]
    topics_of_one = [
        request.OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in topics
    ]
    everything = partitions is None
    group = request.OffsetFetchRequestGroup(
        group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=None if everything else topics
    )
    return request(
        group_id=group_id,
        topics=None if everything else topics_of_one,
        groups=[group],
        require_stable=require_stable,
    )


def _fetched(
    cluster: Cluster,
    group_id: str,
    group: types.OffsetFetchResponse | types.OffsetFetchResponse.OffsetFetchResponseGroup,
) -> dict[TopicPartition, OffsetAndMetadata]:
    if group.error_code != ErrorCode.NONE:
        if group.error_code in COORDINATOR_MOVED:
            cluster.forget_coordinator(group_id)
        text = f"Offsets of group {group_id!r} can't be read ({error_name(group.error_code)})."
        if group.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            raise UnknownMemberError(text, group.error_code, {})
        if group.error_code in STALE:
            raise StaleMemberEpochError(text, group.error_code, {})
        raise RequestFailedError(_with_remedy(cluster, text, group.error_code, group_id, ""), group.error_code)
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for topic in group.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if partition.error_code != ErrorCode.NONE:
                name = error_name(partition.error_code)
                text = f"Group {group_id!r}: the offset of {topic.name}-{partition.partition_index} can't be read ({name})."
                text = _with_remedy(cluster, text, partition.error_code, group_id, topic.name)
                raise RequestFailedError(text, partition.error_code)
            if partition.committed_offset >= 0:
                found[topic.name, partition.partition_index] = OffsetAndMetadata(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    return found


def _with_remedy(cluster: Cluster, text: str, code: int, group_id: str, topic: str) -> str:
    who = cluster.config.security.principal
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return f"{text} {missing_acl('READ', 'group', [group_id], who)}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return f"{text} {missing_acl('READ', 'topic', [topic], who)}"
    return f"{text} {OPEN_TRANSACTION}" if code == ErrorCode.UNSTABLE_OFFSET_COMMIT else text


async def _back_off(cluster: Cluster, failures: int, deadline: float, what: str, error: StreamsError) -> int:
    loop = asyncio.get_running_loop()
    pause_s = backoff_s(cluster.config, failures)
    if loop.time() + pause_s >= deadline:
        raise RequestTimedOutError(f"{what} (timed out): {error}") from error
    await asyncio.sleep(pause_s)
    return failures + 1
