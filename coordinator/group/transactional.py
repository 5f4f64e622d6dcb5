"""TxnOffsetCommit: offsets that count when the transaction of their producer commits.

1. A member is checked as for OffsetCommit, in all versions, by generation or member epoch: a wrong one is
   ILLEGAL_GENERATION, an unknown member UNKNOWN_MEMBER_ID.
2. Without a member id and with a generation below zero a producer commits for any group, also for one with members: it
   is fenced by its producer epoch alone.
3. The records go to the log as one batch of the producer's transaction. Whether the transaction is open is for the
   transaction coordinator to say, before the request comes here.
"""

from __future__ import annotations

from coordinator.group.committed import NEVER_EXPIRES
from coordinator.group.fencing import partition_error, transactional_commit_error
from coordinator.group.state import Group
from coordinator.group.values import GroupDecision, GroupRecord, Reply, RequestContext
from coordinator.machine.values import CoordinatorRecord, Decision, ProducerIdAndEpoch
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode


def commit_in_transaction(
    group: Group | None,
    request: types.TxnOffsetCommitRequest,
    context: RequestContext,
    now_ms: int,
    metadata_bytes_max: int,
) -> GroupDecision:
    """Handles TxnOffsetCommit: records for the partitions that may be committed, and an error for each other one."""
    refused = transactional_commit_error(group, request)
    response = types.TxnOffsetCommitResponse()
    records: list[GroupRecord] = []
    for topic in request.topics:
        answers = []
        for entry in topic.partitions:
            code = partition_error(refused, entry.committed_metadata, metadata_bytes_max)
            if code == ErrorCode.NONE:
                records.append(_record(request.group_id, topic, entry, now_ms))
            answers.append(
                response.TxnOffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
            )
        response.topics.append(
            response.TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return Decision(
        records=tuple(records),
        producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
        replies=(Reply(context.request_id, response),),
    )


def _record(
    group_id: str,
    topic: types.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
    entry: types.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
    now_ms: int,
) -> GroupRecord:
    return CoordinatorRecord(
        types.OffsetCommitKey(group=group_id, topic=topic.name, partition=entry.partition_index),
        types.OffsetCommitValue(
            offset=entry.committed_offset,
            leader_epoch=entry.committed_leader_epoch,
            metadata=entry.committed_metadata or "",
            commit_timestamp=now_ms,
            expire_timestamp=NEVER_EXPIRES,
            topic_id=topic.topic_id,
        ),
    )


def failed_commit(request: types.TxnOffsetCommitRequest, code: ErrorCode) -> types.TxnOffsetCommitResponse:
    """Returns a response with this error for every partition."""
    response = types.TxnOffsetCommitResponse()
    for topic in request.topics:
        partitions = [
            response.TxnOffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
            for entry in topic.partitions
        ]
        response.topics.append(
            response.TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        )
    return response
