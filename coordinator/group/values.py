"""Inputs and outputs of a group machine: values, nothing else.

1. An event is a request, an expired timer or news about topics. Time is a separate argument, never part of it.
2. :mod:`coordinator.machine.values` defines decisions. Soft updates of groups are offsets that members reported, a
   pending shutdown, a running delay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from coordinator.machine.values import CoordinatorRecord, Decision, TimerExpired
from streamsrt.assignment.in_flight import Unread
from streamsrt.assignment.topics import TopicsImage, TopicSpec
from streamsrt.wire.types import Message

GroupRecord: TypeAlias = CoordinatorRecord[Message, Message]
"""One record of ``__consumer_offsets``."""


class PendingRecord(NamedTuple):
    """A record that counts when the transaction of this producer commits."""

    producer_id: int
    record: GroupRecord


class TransactionEnd(NamedTuple):
    """The marker in the log that ends the transaction of this producer."""

    producer_id: int
    committed: bool


Entry = GroupRecord | PendingRecord | TransactionEnd
"""What a log of groups is made of."""


class Rights(Protocol):
    """The requester's permissions for topics."""

    def may_describe(self, topic: str) -> bool: ...

    def may_create(self, topic: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The sender of a request: ``request_id`` is the server's own number of the request, by which a reply finds its
    connection.

    ``unique`` is a text that no other request ever had, for the id of a new member; only requests that join have one.
    ``rights``: None where everybody may do everything. ``refusal_of_topic``: why the broker would refuse to make a
    topic that is not there, None if it would make it. ``unread``: how many records of each partition of these topics a group
    has not read, of those that there are. ``committed_topics``: topics that a group has committed offsets of.
    """

    request_id: int
    client_id: str
    client_host: str
    api_version: int
    unique: str = ""
    rights: Rights | None = None
    refusal_of_topic: Callable[[TopicSpec], str | None] | None = None
    unread: Callable[[str, Collection[str]], Unread] | None = None
    committed_topics: Callable[[str], Collection[str]] | None = None

    def may_describe(self, topic: str) -> bool:
        """Whether the requester may describe this topic."""
        return self.rights is None or self.rights.may_describe(topic)


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A request of a client, decoded. From version 10 of OffsetCommit and OffsetFetch on, the names are resolved."""

    context: RequestContext
    message: Message


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """A new image of the topics exists."""

    image: TopicsImage


@dataclass(frozen=True, slots=True)
class TopicCreationFailed:
    """Internal topics of a group could not be created: topic name -> reason."""

    group_id: str
    errors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RetentionDue:
    """It is time to check these groups for expired offsets."""

    group_ids: tuple[str, ...]
    retention_ms: int


Event = GroupRequest | TimerExpired | TopicsChanged | TopicCreationFailed | RetentionDue


@dataclass(frozen=True, slots=True)
class CreateInternalTopics:
    """Create these topics for a group. Success is visible in the next image; failure comes as ``TopicCreationFailed``."""

    group_id: str
    topics: tuple[TopicSpec, ...]


@dataclass(frozen=True, slots=True)
class RaiseRetention:
    """Extend the retention of a group's changelogs: by topic, its settings in milliseconds (-1: forever).

    What a topic has of them that is longer stays.
    """

    group_id: str
    settings_ms: Mapping[str, Mapping[str, int]]


Effect = CreateInternalTopics | RaiseRetention


class Reply(NamedTuple):
    """The response to one request, of this event or of an earlier one that was waiting."""

    request_id: int
    message: Message


class SoftUpdate(NamedTuple):
    """New values for fields of a group's soft state (``streams.state.Soft``)."""

    group_id: str
    changes: Mapping[str, object]


GroupDecision: TypeAlias = Decision[GroupRecord, SoftUpdate, Reply, Effect]

NOTHING: GroupDecision = Decision()
