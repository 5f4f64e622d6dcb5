"""Decides whether a member's topology may replace the topology of a group that runs another one.

1. A topology update that would leave its members without tasks is refused before it changes anything: source topics are
   missing, partition counts do not fit, internal topics can't be created. The existing members are not affected.
2. So is one of a group without other members: accepted, it would fence the version before it, which can run. Only the
   first topology of a group is accepted in any case and waits for its topics.
3. Missing internal topics are no reason to refuse: they are created as soon as the topology is accepted.
4. A topology update after which nobody could read the records in flight is refused, with other members or without. So
   is the first topology of a group with committed offsets of repartition topics that this topology does not have.
   So is one that feeds a store by another repartition topic, if one of both versions may have records for it.
5. So is one whose stores get a later version of their values, if existing members could not continue.
6. A member that can't check itself what it reads, such as Java's, is refused if others write later versions of values
   into its stores. What the windows of rows mean is compared by the members alone: those of Java don't report it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from coordinator.group.refusal import Refused
from coordinator.group.streams.in_flight import left_unread
from coordinator.group.streams.state import Member, StreamsGroup
from coordinator.group.values import RequestContext
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.in_flight import (
    NOTHING_UNREAD,
    Unread,
    moved_feeds,
    refusal_of_moved_feeds,
    refusal_to_leave,
    refusal_to_strand,
)
from streamsrt.assignment.refused_update import could_not_run, creation_problem, topics_problem, unauthorized
from streamsrt.assignment.topics import TopicSpec
from streamsrt.assignment.topology import Topology
from streamsrt.assignment.value_versions import ValueVersions, later_values, problem_of_values, read_versions
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST, VALUE_VERSIONS
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest


def check_update(group_id: str, known: Topology, configuration: Configuration, context: RequestContext) -> None:
    """Raises Refused for a topology, resolved as ``configuration``, that could not run in place of ``known``."""
    problem = _problem(configuration, context)
    if problem is not None:
        raise Refused(*could_not_run(group_id, configuration.topology.epoch, known.epoch, problem))


def check_in_flight(
    group_id: str, newest: Topology, known: Sequence[Topology], unread: Unread, epochs: Collection[int]
) -> None:
    """Raises Refused if no member could read the unread records. ``epochs``: those that other members run."""
    problem = refusal_to_strand(newest, known, unread, epochs)
    if problem is not None:
        raise Refused(*could_not_run(group_id, newest.epoch, known[0].epoch, problem))


def check_feeds(
    group_id: str, newest: Topology, known: Sequence[Topology], epochs: Collection[int], context: RequestContext
) -> None:
    """Raises Refused if stores are fed by other repartition topics, and records in flight would not reach them, or twice."""
    feeding = {topic for old in known for moved in moved_feeds(old, newest) for topic in moved.before}
    if not feeding:
        return
    unread = NOTHING_UNREAD if context.unread is None else context.unread(group_id, feeding)
    problem = refusal_of_moved_feeds(newest, known, unread, epochs)
    if problem is not None:
        raise Refused(*could_not_run(group_id, newest.epoch, known[0].epoch, problem))


def check_values(group: StreamsGroup, newest: Topology, member: Member, known: Sequence[Topology]) -> None:
    """Raises Refused if value versions of stores are raised and existing members could not continue, or their values
    could not be read. ``known``: the versions before ``newest``, the newest of them first."""
    tags = {each.topology_epoch: each.client_tags for name, each in group.members.items() if name != member.member_id}
    older = [(one, value_versions_of(tags[one.epoch])) for one in known if one.epoch in tags]
    problem = problem_of_values(newest, value_versions_of(member.client_tags), older)
    if problem is not None:
        raise Refused(*could_not_run(group.group_id, newest.epoch, known[0].epoch, problem))


def check_reader(group: StreamsGroup, requested: Topology, request: StreamsGroupHeartbeatRequest) -> None:
    """Raises Refused for a joining member without a digest if another member writes values that it can't read."""
    if any(tag.key == TOPOLOGY_DIGEST for tag in request.client_tags or ()):
        return
    for name, member in group.members.items():
        found = later_values(requested, value_versions_of(member.client_tags))
        if found is not None and name != request.member_id:
            raise Refused(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"Group {group.group_id}: member {name} on {member.client_host.lstrip('/')} writes values of later "
                f"versions, which Kafka Streams of Java and earlier releases can't read: {found}. Start the version of the "
                "program that has them.",
            )


def value_versions_of(tags: Iterable[tuple[str, str]]) -> ValueVersions:
    return read_versions(dict(tags).get(VALUE_VERSIONS))


def check_left(group_id: str, newest: Topology, member: Member, context: RequestContext) -> None:
    """Raises Refused if a group's first topology would leave records unread that were written by unknown versions: the
    group had another protocol, or was deleted. Java's members can't allow the loss, so they may join."""
    is_ours = any(key == TOPOLOGY_DIGEST for key, _ in member.client_tags)
    unread = left_unread(group_id, newest, context) if is_ours else {}
    if unread:
        raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, refusal_to_leave(group_id, newest.epoch, unread))


def forbidden_topics(missing: tuple[TopicSpec, ...], context: RequestContext) -> list[str]:
    """Returns the missing internal topics that the member may not create."""
    rights = context.rights
    return [] if rights is None else [spec.name for spec in missing if not rights.may_create(spec.name)]


def _problem(configuration: Configuration, context: RequestContext) -> str | None:
    missing, problem = configuration.to_create, configuration.problem
    if problem is not None and problem.is_fatal:
        return topics_problem(problem)
    asked = context.refusal_of_topic
    reasons = {} if asked is None else {spec.name: asked(spec) for spec in missing}
    refused = {name: reason for name, reason in reasons.items() if reason is not None}
    if refused:
        return creation_problem(refused)
    forbidden = forbidden_topics(missing, context)
    return unauthorized(forbidden) if forbidden else None
