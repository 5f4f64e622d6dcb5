"""What guards have in common: their type, and how the refused part of a response is merged with the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

from coordinator.broker.broker import Answer, Broker, Change, Handler, Request
from coordinator.security.acls import Operation, ResourceType
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import Message

Guard: TypeAlias = "Callable[[Handler, Broker, Request], Answer]"
"""Stands before a handler: calls it with what the requester may ask for, and answers for the rest itself."""

Entry = TypeVar("Entry")

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

CLUSTER_MESSAGE = "Cluster authorization failed."
TOPIC_MESSAGE = "Topic authorization failed."
GROUP_MESSAGE = "Not authorized to access group: Group authorization failed."
TRANSACTION_MESSAGE = "The transactional id authorization failed."


def unguarded(handler: Handler, broker: Broker, request: Request) -> Answer:
    """Allows requests of everyone."""
    return handler(broker, request)


def parted(entries: list[Entry], is_allowed: Callable[[Entry], bool]) -> tuple[list[Entry], list[Entry]]:
    """Splits the entries into allowed ones and others."""
    allowed: list[Entry] = []
    denied: list[Entry] = []
    for entry in entries:
        (allowed if is_allowed(entry) else denied).append(entry)
    return allowed, denied


def with_topics(answer: Any, refused: Iterable[Message]) -> Any:  # any answer that has topics
    """Returns the response with the refused topics after the allowed ones."""
    answer.topics.extend(refused)
    return answer


def for_cluster(*operations: Operation, refusal: Change) -> Guard:
    """Returns a guard that requires one of these operations on the cluster; ``refusal`` creates the response without it."""

    def guard(handler: Handler, broker: Broker, request: Request) -> Answer:
        if any(request.access.may_with_cluster(operation) for operation in operations):
            return handler(broker, request)
        return refusal(request.message)

    return guard


def may_read_group(request: Request, group_id: str) -> bool:
    return request.access.may(Operation.READ, ResourceType.GROUP, group_id)
