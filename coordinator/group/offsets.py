"""Committed offsets of all groups, whatever their type: commit, fetch, delete.

1. Offsets are kept by group, topic name and partition. A group id may have offsets and no group: a consumer that assigns
   its partitions itself commits with generation -1 and no member id.
2. A member of a streams group commits and fetches with its current member epoch; anything else is refused for all
   partitions. An admin client may commit while the group is empty.
3. One partition's error does not keep the others from being committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.group.refusal import Refused
from coordinator.group.streams.state import StreamsGroup
from coordinator.group.values import NO_TOPIC_ID, Decision, Record, Reply, RequestContext
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode

MEMBER_EPOCH_VERSION = 9
GROUPS_VERSION = 8
NO_GENERATION = -1
NEVER_EXPIRES = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The last commit for a partition; ``expire_ms`` is -1 unless the commit itself said when it expires."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER_EXPIRES
    topic_id: bytes = NO_TOPIC_ID


GroupOffsets = Mapping[str, Mapping[int, CommittedOffset]]


class OffsetsDraft:
    """Offsets of all groups while records are being applied; copies what it touches once."""

    def __init__(self, offsets: Mapping[str, GroupOffsets]) -> None:
        self._offsets = offsets
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._copied: set[tuple[str, str]] = set()

    def apply(self, record: Record) -> None:
        key, value = record
        assert isinstance(key, types.OffsetCommitKey)
        group = self._groups.get(key.group)
        if group is None:
            known: Any = self._offsets.get(key.group, {})
            group = self._groups[key.group] = dict(known)
        if (key.group, key.topic) not in self._copied:
            self._copied.add((key.group, key.topic))
            group[key.topic] = dict(group.get(key.topic, {}))
        partitions = group[key.topic]
        if value is None:
            partitions.pop(key.partition, None)
        else:
            assert isinstance(value, types.OffsetCommitValue)
            partitions[key.partition] = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                bytes(value.topic_id),
            )

    def freeze(self) -> Mapping[str, GroupOffsets]:
        if not self._groups:
            return self._offsets
        merged: dict[str, GroupOffsets] = dict(self._offsets)
        for group_id, topics in self._groups.items():
            left = {name: partitions for name, partitions in topics.items() if partitions}
            if left:
                merged[group_id] = left
            else:
                merged.pop(group_id, None)
        return merged


def offset_tombstones(group_id: str, offsets: GroupOffsets) -> Iterator[Record]:
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic]):
            yield Record(types.OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def commit(
    group: StreamsGroup | None,
    request: types.OffsetCommitRequest,
    context: RequestContext,
    now_ms: int,
    metadata_bytes_max: int,
) -> Decision:
    """OffsetCommit: records for the partitions that may be committed, and an error for each other one."""
    refused = _refused_commit(group, request, context.api_version)
    response = types.OffsetCommitResponse()
    records: list[Record] = []
    for topic in request.topics:
        answers = []
        for entry in topic.partitions:
            code = ErrorCode.NONE if refused is None else refused.code
            if refused is None and len((entry.committed_metadata or "").encode()) > metadata_bytes_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
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
) -> Record:
    value = types.OffsetCommitValue(
        offset=entry.committed_offset, metadata=entry.committed_metadata or "", commit_timestamp=now_ms
    )
    if request.retention_time_ms == -1:
        value.leader_epoch, value.topic_id = entry.committed_leader_epoch, topic.topic_id
    else:
        # The only record version with an expiry has neither; nor have the request versions with a retention time.
        value.expire_timestamp = now_ms + request.retention_time_ms
    return Record(
        types.OffsetCommitKey(group=request.group_id, topic=topic.name, partition=entry.partition_index), value
    )


def _refused_commit(group: StreamsGroup | None, request: types.OffsetCommitRequest, version: int) -> Refused | None:
    epoch = request.generation_id_or_member_epoch
    if group is None:
        if epoch < 0:
            return None
        return Refused(
            ErrorCode.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCH_VERSION else ErrorCode.ILLEGAL_GENERATION
        )
    if epoch < 0 and group.is_empty:
        return None
    if request.member_id not in group.members:
        return Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if version < MEMBER_EPOCH_VERSION:
        return Refused(ErrorCode.UNSUPPORTED_VERSION)
    return _stale(group, request.member_id, epoch)


def _stale(group: StreamsGroup, member_id: str, epoch: int) -> Refused | None:
    return None if group.current[member_id].epoch == epoch else Refused(ErrorCode.STALE_MEMBER_EPOCH)


def fetch(
    groups: Mapping[str, StreamsGroup],
    offsets: Mapping[str, GroupOffsets],
    request: types.OffsetFetchRequest,
    context: RequestContext,
) -> Decision:
    """OffsetFetch of one group (up to version 7) or of several (from version 8)."""
    if context.api_version >= GROUPS_VERSION:
        answers = [_fetch_group(groups.get(asked.group_id), offsets, asked) for asked in request.groups]
        response = types.OffsetFetchResponse(groups=answers)
    else:
        committed = offsets.get(request.group_id, {})
        response = types.OffsetFetchResponse()
        wanted = _all(committed)
        if request.topics is not None:
            wanted = [(topic.name, NO_TOPIC_ID, topic.partition_indexes) for topic in request.topics]
        for name, _, partitions in wanted:
            response.topics.append(
                response.OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        response.OffsetFetchResponsePartition(**_fetched(committed, name, partition))
                        for partition in partitions
                    ],
                )
            )
    return Decision(replies=(Reply(context.request_id, response),))


def _fetch_group(
    group: StreamsGroup | None,
    offsets: Mapping[str, GroupOffsets],
    asked: types.OffsetFetchRequest.OffsetFetchRequestGroup,
) -> types.OffsetFetchResponse.OffsetFetchResponseGroup:
    response = types.OffsetFetchResponse
    answer = response.OffsetFetchResponseGroup(group_id=asked.group_id)
    refused = _refused_fetch(group, asked)
    if refused is not None:
        answer.error_code = refused.code
        return answer
    committed = offsets.get(asked.group_id, {})
    wanted = _all(committed)
    if asked.topics is not None:
        wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in asked.topics]
    for name, topic_id, partitions in wanted:
        answer.topics.append(
            response.OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[
                    response.OffsetFetchResponsePartitions(**_fetched(committed, name, partition))
                    for partition in partitions
                ],
            )
        )
    return answer


def _refused_fetch(
    group: StreamsGroup | None, asked: types.OffsetFetchRequest.OffsetFetchRequestGroup
) -> Refused | None:
    if not asked.member_id and asked.member_epoch < 0:
        return None
    if group is None:
        return None if asked.member_epoch < 0 else Refused(ErrorCode.GROUP_ID_NOT_FOUND)
    if asked.member_id is None or asked.member_id not in group.members:
        return Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return _stale(group, asked.member_id, asked.member_epoch)


_Wanted = list[tuple[str, bytes, list[int]]]


def _all(committed: GroupOffsets) -> _Wanted:
    found: _Wanted = []
    for name in sorted(committed):
        partitions = committed[name]
        topic_id = next(iter(partitions.values())).topic_id
        found.append((name, topic_id, sorted(partitions)))
    return found


def _fetched(committed: GroupOffsets, topic: str, partition: int) -> dict[str, Any]:
    found = committed.get(topic, {}).get(partition)
    if found is None:
        return {"partition_index": partition, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        "partition_index": partition,
        "committed_offset": found.offset,
        "committed_leader_epoch": found.leader_epoch,
        "metadata": found.metadata,
    }


def delete(
    group: StreamsGroup | None,
    offsets: Mapping[str, GroupOffsets],
    request: types.OffsetDeleteRequest,
    context: RequestContext,
) -> Decision:
    """OffsetDelete: not for topics that a group with members reads."""
    response = types.OffsetDeleteResponse()
    if group is None and request.group_id not in offsets:
        response.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        return Decision(replies=(Reply(context.request_id, response),))
    read: set[str] = set()
    if group is not None and not group.is_empty and group.topology is not None:
        read = {name for part in group.topology.subtopologies for name in part.input_topics}
    committed = offsets.get(request.group_id, {})
    records = []
    for topic in request.topics:
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in read else ErrorCode.NONE
        answers = []
        for entry in topic.partitions:
            if code == ErrorCode.NONE and entry.partition_index in committed.get(topic.name, {}):
                key = types.OffsetCommitKey(group=request.group_id, topic=topic.name, partition=entry.partition_index)
                records.append(Record(key, None))
            answers.append(
                response.OffsetDeleteResponsePartition(partition_index=entry.partition_index, error_code=code)
            )
        response.topics.append(response.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return Decision(records=tuple(records), replies=(Reply(context.request_id, response),))
