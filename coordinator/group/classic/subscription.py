"""What members of type ``consumer`` say about themselves in their protocols (Kafka's ConsumerProtocol)."""

from __future__ import annotations

from coordinator.group.classic.state import CONSUMER, Live
from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.primitives import DecodeError
from streamsrt.wire.types import ConsumerProtocolSubscription


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """The subscription in a member's metadata; None if it is something else."""
    try:
        return decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
    except DecodeError:
        return None


def subscribed_topics(live: Live) -> set[str] | None:
    """All topics that members subscribe to by the chosen protocol; None if that can't be told of a group with members."""
    if live.protocol_type != CONSUMER:
        return None
    if live.protocol is None:
        return None if live.members else set()
    found: set[str] = set()
    for member in live.members.values():
        subscription = subscription_of(member.metadata(live.protocol))
        if subscription is None:
            return None
        found.update(subscription.topics)
    return found
