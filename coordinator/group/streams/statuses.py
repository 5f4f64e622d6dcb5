"""The status codes of KIP-1071, with details, that a member gets along with its tasks."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.group.streams.config import StreamsGroupConfig
from coordinator.group.streams.state import Member
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.status_code import StatusCode

StatusOf = tuple[StatusCode, str]


def stale(member: Member, topology_epoch: int) -> Iterator[StatusOf]:
    """``topology_epoch``: the group's."""
    if member.topology_epoch < topology_epoch:
        mine = member.topology_epoch
        detail = f"The member's topology epoch {mine} is behind the group's topology epoch {topology_epoch}."
        yield StatusCode.STALE_TOPOLOGY, detail


def problem_of(configuration: Configuration, creation_problem: str, *, is_stale: bool) -> Iterator[StatusOf]:
    """A problem that ends a member is reported to members with this topology only: older ones keep their tasks."""
    problem = configuration.problem
    if problem is not None and not (problem.is_fatal and is_stale):
        yield problem.status_code, problem.detail + creation_problem


def missing_tags(member: Member, config: StreamsGroupConfig) -> Iterator[StatusOf]:
    missing = [tag for tag in config.rack_tags if tag not in dict(member.client_tags)]
    if missing:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure them "
            "via 'client.tag.<tagKey>' in your Streams config."
        )
        yield StatusCode.MISSING_CLIENT_TAGS, detail


def shutdown(requested_by: str | None) -> Iterator[StatusOf]:
    if requested_by is not None:
        detail = (
            f"Streams group member {requested_by} encountered a fatal error and requested a shutdown for the "
            "entire application."
        )
        yield StatusCode.SHUTDOWN_APPLICATION, detail
