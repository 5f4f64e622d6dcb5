"""The ConsumerProtocol bytes that classic members of type ``consumer`` send and receive.

Classic members know topics by name. If a name no longer exists, nobody gets partitions of that topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.group.consumer.partitions import Partitions, TopicIdPartition, grouped
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription

CONSUMER_TYPE = "consumer"
_NEWEST = 3


class MalformedError(ValueError):
    """The bytes are not a valid message of a consumer."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription: topic names, owned partitions, rack."""

    topic_names: tuple[str, ...]
    owned: Partitions
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignment: the partitions, and whether a client-side assignor has added data of its own."""

    partitions: Partitions
    is_custom: bool


def subscription_of(metadata: bytes, image: TopicsImage) -> Subscription:
    """Decodes a subscription. Raises MalformedError."""
    try:
        read = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
    except DecodeError as error:
        raise MalformedError(str(error)) from None
    return Subscription(tuple(sorted(set(read.topics))), _by_id(read.owned_partitions, image), read.rack_id)


def assignment_of(data: bytes, image: TopicsImage) -> Assignment:
    """Decodes an assignment. Raises MalformedError. Empty bytes mean no partitions: the member waits for its first
    assignment."""
    if not data:
        return Assignment(frozenset(), is_custom=False)
    try:
        read = decode_consumer_protocol(ConsumerProtocolAssignment, data)
    except DecodeError as error:
        raise MalformedError(str(error)) from None
    return Assignment(_by_id(read.assigned_partitions, image), is_custom=bool(read.user_data))


def assignment_bytes(partitions: Partitions, metadata: bytes, image: TopicsImage) -> bytes:
    """Encodes the assignment for a member, in the version of its subscription."""
    names = image.names_by_id
    kind = ConsumerProtocolAssignment.TopicPartition
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            kind(topic=names[topic_id], partitions=numbers)
            for topic_id, numbers in grouped(sorted(partitions))
            if topic_id in names
        ]
    )
    return encode_record_value(value, min(max(int.from_bytes(metadata[:2], "big", signed=True), 0), _NEWEST))


def _by_id(
    topics: Iterable[ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition],
    image: TopicsImage,
) -> Partitions:
    found = []
    for entry in topics:
        topic = image.get(entry.topic)
        if topic is not None:
            found += [TopicIdPartition(topic.id, number) for number in entry.partitions]
    return frozenset(found)
