"""Decides who may commit and fetch offsets of a group: members by generation or member epoch, others while it is empty.

1. A member of a streams group sends its current member epoch; anything else is refused for all partitions. An admin
   client may commit while the group is empty.
2. A member of a classic group sends the group's generation. While the assignment of a generation is being made, commits
   are refused with REBALANCE_IN_PROGRESS: the member's partitions may belong to another member by now.
3. A member of the classic protocol in a group of a newer one sends its generation, which is its member epoch.
4. In a transaction, a producer without member id and generation commits for any group: its producer epoch fences it.
"""

from __future__ import annotations

from coordinator.group.classic.fencing import member_error
from coordinator.group.classic.state import ClassicGroup, GroupState, Live
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.state import Group
from coordinator.group.streams.state import StreamsGroup
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import OffsetCommitRequest, OffsetFetchRequest, TxnOffsetCommitRequest

MEMBER_EPOCH_VERSION = 9


def commit_error(group: Group | None, request: OffsetCommitRequest, version: int) -> ErrorCode:
    """Returns why this OffsetCommit is refused as a whole; NONE if it is not."""
    epoch = request.generation_id_or_member_epoch
    if group is None:
        if epoch < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= MEMBER_EPOCH_VERSION else ErrorCode.ILLEGAL_GENERATION
    if epoch < 0 and group.is_empty:
        return ErrorCode.NONE
    if isinstance(group, ClassicGroup):
        error = _classic_error(group.live, request)
        if error == ErrorCode.NONE and group.live.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return error
    if request.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if version < MEMBER_EPOCH_VERSION and not _is_classic(group, request.member_id):
        return ErrorCode.UNSUPPORTED_VERSION
    return _stale(group, request.member_id, epoch)


def partition_error(refused: ErrorCode, metadata: str | None, metadata_bytes_max: int) -> ErrorCode:
    """Returns the error of one partition: that of the whole request, else that of its own metadata."""
    if refused == ErrorCode.NONE and len((metadata or "").encode()) > metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return refused


def transactional_commit_error(group: Group | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Returns why this TxnOffsetCommit is refused as a whole; NONE if it is not."""
    epoch = request.generation_id_or_member_epoch
    if group is None:
        return ErrorCode.NONE if epoch < 0 else ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ClassicGroup):
        if epoch < 0 and not request.member_id and request.group_instance_id is None:
            return ErrorCode.NONE
        return _classic_error(group.live, request)
    if epoch < 0 and not request.member_id:
        return ErrorCode.NONE
    if request.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    stale = _stale(group, request.member_id, epoch)
    return ErrorCode.ILLEGAL_GENERATION if stale == ErrorCode.STALE_MEMBER_EPOCH else stale


def fetch_error(group: Group | None, request: OffsetFetchRequest.OffsetFetchRequestGroup) -> ErrorCode:
    """Returns why the offsets of this group can't be fetched; NONE if they can."""
    if not request.member_id and request.member_epoch < 0:
        return ErrorCode.NONE
    if group is None:
        return ErrorCode.NONE if request.member_epoch < 0 else ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup):
        return ErrorCode.NONE
    if request.member_id is None or request.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _stale(group, request.member_id, request.member_epoch)


def _classic_error(live: Live, request: OffsetCommitRequest | TxnOffsetCommitRequest) -> ErrorCode:
    error = member_error(live, request.member_id, request.group_instance_id)
    if error == ErrorCode.NONE and request.generation_id_or_member_epoch != live.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _stale(group: StreamsGroup | ConsumerGroup, member_id: str, epoch: int) -> ErrorCode:
    if group.current[member_id].epoch == epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if _is_classic(group, member_id) else ErrorCode.STALE_MEMBER_EPOCH


def _is_classic(group: StreamsGroup | ConsumerGroup, member_id: str) -> bool:
    """Whether this member of a group of a newer protocol uses the classic one."""
    return group.members[member_id].classic is not None
