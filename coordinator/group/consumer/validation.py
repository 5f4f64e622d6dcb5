"""Validates heartbeats before any state is read, in Kafka's order and with Kafka's messages."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.group.consumer.partitions import Partitions, partition_set
from coordinator.group.consumer.state import LEFT_FOR_A_WHILE
from coordinator.group.refusal import Refused
from streamsrt.assignment.topic_pattern import InvalidRegexError, compiled
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import ConsumerGroupHeartbeatRequest

JOIN = 0
LEAVE = -1
CLIENT_MADE_ID_VERSION = 1


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]) -> None:
    """Raises Refused for the first rule that the request violates."""
    # Version 0 lets the coordinator make the id of a member that joins.
    if api_version >= CLIENT_MADE_ID_VERSION or request.member_epoch != JOIN:
        _not_empty(request.member_id, "MemberId")
    _not_empty(request.group_id, "GroupId")
    _not_empty(request.instance_id, "InstanceId")
    _not_empty(request.rack_id, "RackId")
    if request.member_epoch == JOIN:
        _check_join(request)
    elif request.member_epoch == LEFT_FOR_A_WHILE:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif request.member_epoch < LEFT_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    if request.subscribed_topic_regex:
        _check_regex(request.subscribed_topic_regex)


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """Returns the partitions that the member reports; None if it reports nothing."""
    return None if request.topic_partitions is None else partition_set(request.topic_partitions)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.rebalance_timeout_ms <= 0:
        raise _invalid(f"RebalanceTimeoutMs is {request.rebalance_timeout_ms}, but must be greater than 0.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _check_regex(regex: str) -> None:
    try:
        compiled(regex)
    except InvalidRegexError as error:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


def _not_empty(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, text)
