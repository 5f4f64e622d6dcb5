"""Committed offsets of all groups, whatever their type: commit, fetch, delete.

1. Offsets are kept by group, topic name and partition. A group id may have offsets and no group: a consumer that assigns
   its partitions itself commits with generation -1 and no member id.
2. Whether a client may commit or fetch at all is decided by the type of the group (``fencing``); a refusal is for all
   partitions.
3. One partition's error does not keep the others from being committed.
4. An offset of a topic that was deleted since is none, also if the topic was created again: that has records of its own.
5. Who asks for stable offsets gets UNSTABLE_OFFSET_COMMIT where an open transaction has one that does not count yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.group.classic.state import CONSUMER, ClassicGroup
from coordinator.group.classic.subscription import subscribed_topics
from coordinator.group.committed import (
    GroupOffsets,
    Offsets,
    OffsetsByGroup,
    is_pending,
    offset_tombstones,
    with_pending,
)
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.fencing import commit_error, fetch_error, partition_error
from coordinator.group.state import Group
from coordinator.group.values import GroupDecision, GroupRecord, Reply, RequestContext
from coordinator.machine.values import CoordinatorRecord, Decision
from streamsrt.assignment.topics import NO_TOPIC_ID, NO_TOPICS, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode

GROUPS_VERSION = 8


def commit(
    group: Group | None,
    request: types.OffsetCommitRequest,
    context: RequestContext,
    now_ms: int,
    metadata_bytes_max: int,
) -> GroupDecision:
    """Handles OffsetCommit: records for the partitions that may be committed, and an error for each other one."""
    refused = commit_error(group, request, context.api_version)
    response = types.OffsetCommitResponse()
    records: list[GroupRecord] = []
    for topic in request.topics:
        answers = []
        for entry in topic.partitions:
            code = partition_error(refused, entry.committed_metadata, metadata_bytes_max)
            if code == ErrorCode.NONE:
                records.append(_commit_record(request, topic, entry, now_ms))
            answers.append(
                response.OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
            )
        response.topics.append(
            response.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return Decision(records=tuple(records), replies=(Reply(context.request_id, response),))


def _commit_record(
    request: types.OffsetCommitRequest,
    topic: types.OffsetCommitRequest.OffsetCommitRequestTopic,
    entry: types.OffsetCommitRequest.OffsetCommitRequestPartition,
    now_ms: int,
) -> GroupRecord:
    value = types.OffsetCommitValue(
        offset=entry.committed_offset, metadata=entry.committed_metadata or "", commit_timestamp=now_ms
    )
    if request.retention_time_ms == -1:
        value.leader_epoch, value.topic_id = entry.committed_leader_epoch, topic.topic_id
    else:
        # The only record version with an expiry has neither; nor have the request versions with a retention time.
        value.expire_timestamp = now_ms + request.retention_time_ms
    return CoordinatorRecord(
        types.OffsetCommitKey(group=request.group_id, topic=topic.name, partition=entry.partition_index), value
    )


@dataclass(frozen=True, slots=True)
class _Readable:
    """The offsets of one group, as OffsetFetch returns them."""

    group_id: str
    committed: GroupOffsets
    unstable: Mapping[int, OffsetsByGroup]
    image: TopicsImage

    @classmethod
    def of(cls, group_id: str, offsets: Offsets, image: TopicsImage, *, require_stable: bool) -> _Readable:
        unstable = offsets.pending if require_stable else {}
        return cls(group_id, offsets.committed.get(group_id, {}), unstable, image)

    def fetched(self, topic: str, partition: int) -> dict[str, Any]:  # keywords of a struct
        """Returns the fields of a partition's response; if stable offsets are requested, an offset that an open
        transaction may change is an error."""
        answer = {"partition_index": partition, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
        if self.unstable and is_pending(self.unstable, self.group_id, topic, partition):
            return {**answer, "error_code": ErrorCode.UNSTABLE_OFFSET_COMMIT}
        found = self.committed.get(topic, {}).get(partition)
        if found is None or found.is_of_another_topic(self.image.get(topic)):
            return answer
        return {
            "partition_index": partition,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
        }


def fetch(
    groups: Mapping[str, Group],
    offsets: Offsets,
    request: types.OffsetFetchRequest,
    context: RequestContext,
    image: TopicsImage = NO_TOPICS,
) -> GroupDecision:
    """Handles OffsetFetch of one group (up to version 7) or of several (from version 8)."""
    stable = request.require_stable
    if context.api_version >= GROUPS_VERSION:
        answers = [
            _fetch_group(
                groups.get(request.group_id),
                _Readable.of(request.group_id, offsets, image, require_stable=stable),
                request,
            )
            for request in request.groups
        ]
        response = types.OffsetFetchResponse(groups=answers)
    else:
        readable = _Readable.of(request.group_id, offsets, image, require_stable=stable)
        response = types.OffsetFetchResponse()
        wanted = _all(readable)
        if request.topics is not None:
            wanted = [(topic.name, NO_TOPIC_ID, topic.partition_indexes) for topic in request.topics]
        for name, _, partitions in wanted:
            response.topics.append(
                response.OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        response.OffsetFetchResponsePartition(**readable.fetched(name, partition))
                        for partition in partitions
                    ],
                )
            )
    return Decision(replies=(Reply(context.request_id, response),))


def _fetch_group(
    group: Group | None,
    readable: _Readable,
    request: types.OffsetFetchRequest.OffsetFetchRequestGroup,
) -> types.OffsetFetchResponse.OffsetFetchResponseGroup:
    response = types.OffsetFetchResponse
    answer = response.OffsetFetchResponseGroup(group_id=request.group_id)
    answer.error_code = fetch_error(group, request)
    if answer.error_code != ErrorCode.NONE:
        return answer
    wanted = _all(readable)
    if request.topics is not None:
        wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in request.topics]
    for name, topic_id, partitions in wanted:
        answer.topics.append(
            response.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[
                    response.OffsetFetchResponsePartitions(**readable.fetched(name, partition))
                    for partition in partitions
                ],
            )
        )
    return answer


_Wanted = list[tuple[str, bytes, list[int]]]


def _all(readable: _Readable) -> _Wanted:
    found: _Wanted = []
    for name, partitions in sorted(readable.committed.items()):
        topic = readable.image.get(name)
        kept = [partition for partition, offset in partitions.items() if not offset.is_of_another_topic(topic)]
        if kept:
            found.append((name, partitions[kept[0]].topic_id, sorted(kept)))
    return found


def delete(
    group: Group | None,
    offsets: Offsets,
    request: types.OffsetDeleteRequest,
    context: RequestContext,
) -> GroupDecision:
    """Handles OffsetDelete, which excludes topics that a group with members reads."""
    response = types.OffsetDeleteResponse()
    removable = with_pending(offsets.pending, request.group_id, offsets.committed.get(request.group_id, {}))
    if group is None and not removable:
        response.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        return Decision(replies=(Reply(context.request_id, response),))
    if isinstance(group, ClassicGroup) and not group.is_empty and group.live.protocol_type != CONSUMER:
        response.error_code = ErrorCode.NON_EMPTY_GROUP
        return Decision(replies=(Reply(context.request_id, response),))
    read = topics_read_by(group, [topic.name for topic in request.topics])
    removed: dict[str, list[int]] = {}
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in read else ErrorCode.NONE
        answers = []
        for entry in topic.partitions:
            if code == ErrorCode.NONE and entry.partition_index in removable.get(topic.name, ()):
                removed.setdefault(topic.name, []).append(entry.partition_index)
            answers.append(
                response.OffsetDeleteResponsePartition(partition_index=entry.partition_index, error_code=code)
            )
        response.topics.append(response.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    records = tuple(offset_tombstones(request.group_id, removed))
    return Decision(records=records, replies=(Reply(context.request_id, response),))


def topics_read_by(group: Group | None, names: Iterable[str]) -> set[str]:
    """Returns the ones of these topics that members of the group read."""
    if group is None or group.is_empty:
        return set()
    if isinstance(group, ClassicGroup):
        subscribed = subscribed_topics(group.live)
        return set(names) if subscribed is None else subscribed & set(names)
    if isinstance(group, ConsumerGroup):
        return group.all_subscribed_topics()
    if group.topology is None:
        return set()
    known = group.soft.configuration
    topology = group.topology if known is None else known.resolved
    versions = (topology, *group.topologies_run())
    return {name for one in versions for part in one.subtopologies for name in part.input_topics}
