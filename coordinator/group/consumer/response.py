"""Responses to heartbeats of consumer groups."""

from __future__ import annotations

from coordinator.group.consumer.partitions import Partitions, wire_partitions
from coordinator.group.refusal import Refused
from streamsrt.wire.types import ConsumerGroupHeartbeatResponse as Response


def error_response(refused: Refused) -> Response:
    return Response(error_code=refused.code, error_message=refused.text or None)


def leave_response(member_id: str, member_epoch: int) -> Response:
    return Response(member_id=member_id, member_epoch=member_epoch)


def heartbeat_response(
    member_id: str, member_epoch: int, *, heartbeat_interval_ms: int, assigned: Partitions | None
) -> Response:
    """Returns the response to an accepted heartbeat. ``assigned``: None if the member already has it."""
    response = Response(member_id=member_id, member_epoch=member_epoch, heartbeat_interval_ms=heartbeat_interval_ms)
    if assigned is not None:
        response.assignment = Response.Assignment(topic_partitions=wire_partitions(Response.TopicPartitions, assigned))
    return response
