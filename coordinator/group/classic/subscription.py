"""Decodes the subscriptions of members of type ``consumer`` (Kafka's ConsumerProtocol)."""

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
    """Returns all topics to which members subscribe by the chosen protocol; None if they are unknown."""
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
