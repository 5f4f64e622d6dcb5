"""Internal topics that the leader has created, and its messages about those that it could not create."""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.assignment.refused_update import creation_problem, unauthorized
from streamsrt.assignment.topics import NO_TOPIC_ID, TopicImage, TopicsImage
from streamsrt.wire.error_codes import ErrorCode


def with_created(image: TopicsImage, created: Mapping[str, int] | None) -> TopicsImage:
    """Adds to the image the topics that have been created and are not visible everywhere yet."""
    new = {n: TopicImage(NO_TOPIC_ID, n, count) for n, count in (created or {}).items() if n not in image}
    return TopicsImage({**image, **new}) if new else image


def creation_detail_of(errors: Mapping[str, tuple[int, str]]) -> str:
    forbidden = [name for name, (code, _) in errors.items() if code in _UNAUTHORIZED]
    if forbidden:
        return f"; {unauthorized(forbidden)}"
    listed = ", ".join(f"{name} ({message.rstrip('. ')})" for name, (_, message) in errors.items())
    return f"; Creation failed: {listed}."


def cannot_be_made(errors: Mapping[str, tuple[int, str]]) -> str:
    if any(code in _UNAUTHORIZED for code, _ in errors.values()):
        return creation_detail_of(errors).removeprefix("; ")
    return creation_problem({name: message for name, (_, message) in errors.items()})


_UNAUTHORIZED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
FINAL = _UNAUTHORIZED | {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.POLICY_VIOLATION,
}
