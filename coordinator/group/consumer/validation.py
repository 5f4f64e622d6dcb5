"""Validates heartbeats before any state is read, in Kafka's order and with Kafka's messages."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.group.consumer.partitions import Partitions, partition_set
from coordinator.group.heartbeats import (
    JOIN,
    check_departure,
    check_ids,
    check_rebalance_timeout,
    invalid,
    not_empty,
)
from coordinator.group.refusal import Refused
from streamsrt.assignment.topic_pattern import InvalidRegexError, compiled
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import ConsumerGroupHeartbeatRequest

CLIENT_MADE_ID_VERSION = 1


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]) -> None:
    """Raises Refused for the first rule that the request violates."""
    # Version 0 lets the coordinator make the id of a member that joins.
    if api_version >= CLIENT_MADE_ID_VERSION or request.member_epoch != JOIN:
        not_empty(request.member_id, "MemberId")
    check_ids(request)
    if request.member_epoch == JOIN:
        _check_join(request)
    check_departure(request, "MemberEpoch is invalid.")
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
    check_rebalance_timeout(request)
    if request.rebalance_timeout_ms <= 0:
        raise invalid(f"RebalanceTimeoutMs is {request.rebalance_timeout_ms}, but must be greater than 0.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _check_regex(regex: str) -> None:
    try:
        compiled(regex)
    except InvalidRegexError as error:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None
