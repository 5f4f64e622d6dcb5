"""Which members answer queries: what a member with an endpoint asks the coordinator, and what follows.

1. Assignments contain no map of endpoints, whose size would be members times tasks. A member with an endpoint sends
   DescribeGroups once per generation, when its SyncGroup is answered and it has given up its revoked tasks.
2. A response counts only if the group is stable and everything that can be read in it is from the member's generation:
   during a rebalance, brokers return old assignments, or none. Otherwise the request is repeated after a growing pause.
3. A pause before the first request depends on the member's id and grows with the group: the members of a large group
   must not all ask at once.
4. Members whose metadata can't be read are left out.
5. A map is reported when it differs from the last one. Until then, the last one holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from streamsrt.assignment.topic_pattern import InvalidRegexError, matching
from streamsrt.membership.classic.layout import decode_assignment, decode_subscription
from streamsrt.membership.classic.state import ClassicMemberState, Session, TaskState
from streamsrt.membership.classic.values import (
    NO_GENERATION,
    PROTOCOL_NAME,
    ClassicAssignment,
    ClassicSubscription,
    Topology,
)
from streamsrt.membership.shared_endpoints import shared_endpoint_text
from streamsrt.membership.values import Answers, Endpoint, Partitions, Task, TopicPartition
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.types import DescribeGroupsRequest, DescribeGroupsResponse, StreamsGroupHeartbeatRequest

STABLE: Final = "Stable"

SPREAD_MS: Final = 1_000
"""Within this time the members of a group ask that is small, or whose size is unknown."""
SPREAD_PER_MEMBER_MS: Final = 10
BACK_OFF_MS: Final = 500
BACK_OFF_MAX_MS: Final = 30_000
TRIES_TO_WARN: Final = 4
"""So many answers that don't count are no news while a group rebalances."""

Subtopology: TypeAlias = StreamsGroupHeartbeatRequest.Subtopology
Group: TypeAlias = DescribeGroupsResponse.DescribedGroup


@dataclass(frozen=True, slots=True)
class Lookup:
    """``known``: the generation of the last valid response. ``tries``: invalid responses since then. ``reported``: the
    last map reported. ``sharing``: the members of other processes with this member's endpoint, as last reported."""

    known: int = NO_GENERATION
    send_at_ms: int | None = None
    is_in_flight: bool = False
    tries: int = 0
    members: int = 1
    reported: Answers | None = None
    sharing: frozenset[str] = frozenset()


class LookupStep(NamedTuple):
    lookup: Lookup
    request: DescribeGroupsRequest | None = None


class LookupResult(NamedTuple):
    """``found``: the map, if it differs from the last one reported. ``warning``: a line for the log."""

    lookup: Lookup
    found: Answers | None = None
    warning: str | None = None


def follow(lookup: Lookup, session: Session, now_ms: int) -> LookupStep:
    """Decides whether to send a request. Called after every event of the session, and at ``send_at_ms``."""
    if not _is_settled(session):
        return LookupStep(replace(lookup, known=NO_GENERATION, send_at_ms=None, tries=0))
    if lookup.known == session.generation or lookup.is_in_flight:
        return LookupStep(lookup)
    if lookup.send_at_ms is None:
        return LookupStep(replace(lookup, send_at_ms=now_ms + _pause_ms(lookup, session)))
    if now_ms < lookup.send_at_ms:
        return LookupStep(lookup)
    request = DescribeGroupsRequest(groups=[session.membership.group_id])
    return LookupStep(replace(lookup, send_at_ms=None, is_in_flight=True), request)


def answered(lookup: Lookup, session: Session, response: DescribeGroupsResponse, now_ms: int) -> LookupResult:
    """Handles a response to DescribeGroups. It counts if it describes the current generation, whichever one it was requested
    in."""
    if not _is_settled(session):
        return LookupResult(replace(lookup, is_in_flight=False))
    (group,) = response.groups
    members = _readable(group.members)
    why_not = _why_not(group, members, session)
    if why_not is not None:
        return failed(lookup, session, why_not, now_ms)
    found = _by_endpoint(members.values(), session.membership.topology)
    sharing = _sharing(group, members, session)
    known = Lookup(known=session.generation, members=len(group.members), reported=found, sharing=sharing)
    warning, endpoint = None, session.membership.endpoint
    if endpoint is not None and not sharing <= lookup.sharing:
        warning = shared_endpoint_text(endpoint, f"member {session.member_id}", sharing)
    return LookupResult(known, None if found == lookup.reported else found, warning)


def failed(lookup: Lookup, session: Session, reason: str, now_ms: int) -> LookupResult:
    """Handles a failed request, or a response that does not count."""
    lookup = replace(lookup, is_in_flight=False, tries=lookup.tries + 1)
    if not _is_settled(session):
        return LookupResult(lookup)
    back_off_ms = min(BACK_OFF_MS << min(lookup.tries - 1, 16), BACK_OFF_MAX_MS)
    lookup = replace(lookup, send_at_ms=now_ms + back_off_ms + _pause_ms(lookup, session))
    warning = None
    if lookup.tries == TRIES_TO_WARN:
        warning = f"it is not known which instances answer queries, trying again: {reason}"
    return LookupResult(lookup, warning=warning)


def _is_settled(session: Session) -> bool:
    return (
        session.membership.endpoint is not None
        and not session.ended
        and session.group is ClassicMemberState.IN
        # In Java's layout the leader sends the endpoints to all members.
        and session.protocol_name == PROTOCOL_NAME
        and session.tasks is TaskState.RUNNING
        and session.synced_generation == session.generation
        and session.rejoin is None
        and not session.revoked
    )


def _pause_ms(lookup: Lookup, session: Session) -> int:
    spread_ms = max(SPREAD_MS, lookup.members * SPREAD_PER_MEMBER_MS)
    return zlib.crc32(session.member_id.encode()) * spread_ms >> 32


# ------------------------------------------------------------------------------------------------------- the response


class _Member(NamedTuple):
    subscription: ClassicSubscription
    assignment: ClassicAssignment


def _readable(members: Iterable[DescribeGroupsResponse.DescribedGroupMember]) -> dict[str, _Member]:
    found: dict[str, _Member] = {}
    for member in members:
        subscription = decode_subscription(bytes(member.member_metadata))
        assignment = decode_assignment(bytes(member.member_assignment))
        if isinstance(subscription, ClassicSubscription) and isinstance(assignment, ClassicAssignment):
            found[member.member_id] = _Member(subscription, assignment)
    return found


def _why_not(group: Group, members: Mapping[str, _Member], session: Session) -> str | None:
    """Returns why a response does not count, or None if it does."""
    if group.error_code != ErrorCode.NONE:
        detail = f": {group.error_message}" if group.error_message else ""
        return f"DescribeGroups failed with {error_name(group.error_code)}{detail}"
    if group.group_state != STABLE or group.protocol_data != PROTOCOL_NAME:
        return f"the group is in state {group.group_state!r} with protocol {group.protocol_data!r}"
    if session.member_id not in members:
        return "the description of the group does not contain this member"
    others = sorted(name for name, member in members.items() if member.assignment.generation != session.generation)
    if others:
        return f"the assignment of member {others[0]} is not of generation {session.generation}"
    return None


def _sharing(group: Group, members: Mapping[str, _Member], session: Session) -> frozenset[str]:
    """The members of other processes with this member's endpoint, in words."""
    own = session.membership
    return frozenset(
        f"member {each.member_id} on {each.client_host.lstrip('/')}"
        for each in group.members
        if (known := members.get(each.member_id)) is not None
        and known.subscription.endpoint == own.endpoint
        and known.subscription.process_id != own.process_id
    )


def _by_endpoint(members: Iterable[_Member], topology: Topology) -> Answers:
    members = tuple(members)
    inputs = _Inputs.of(members, topology)
    found: dict[Endpoint, tuple[Partitions, Partitions]] = {}
    for subscription, assignment in members:
        if subscription.endpoint is None:
            continue
        # Several members of one process have one endpoint.
        active, standby = found.get(subscription.endpoint, (frozenset(), frozenset()))
        standbys = frozenset(each for task in assignment.tasks.standby for each in inputs.of_task(task))
        found[subscription.endpoint] = (active | assignment.assigned_partitions, standby | standbys)
    return found


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The partitions that tasks read. Leaders report them for active tasks only: ``read`` has all reported partitions,
    ``active`` the tasks that they belong to. ``topics``: all topics that the members read and the topology does not list by
    name (``named``)."""

    subtopologies: Mapping[str, Subtopology]
    topics: frozenset[str]
    read: Partitions
    active: frozenset[Task]
    _by_subtopology: dict[str, frozenset[str]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, members: Iterable[_Member], topology: Topology) -> _Inputs:
        read: set[TopicPartition] = set()
        active: set[Task] = set()
        topics: set[str] = set()
        for subscription, assignment in members:
            read |= assignment.assigned_partitions
            active |= assignment.tasks.active
            topics |= subscription.topics
        topics.update(topic for topic, _ in read)
        for part in topology.subtopologies:
            topics.difference_update(_named(part))
        parts = {part.subtopology_id: part for part in topology.subtopologies}
        return cls(parts, frozenset(topics), frozenset(read), frozenset(active))

    def of_task(self, task: Task) -> Iterable[TopicPartition]:
        """The task's partitions. For a task that nobody runs there may be too many: topics with fewer partitions than its
        subtopology has tasks."""
        name, partition = task
        if name not in self._by_subtopology:
            self._by_subtopology[name] = self._topics_of(name)
        inputs = ((topic, partition) for topic in self._by_subtopology[name])
        return (each for each in inputs if task not in self.active or each in self.read)

    def _topics_of(self, subtopology_id: str) -> frozenset[str]:
        part = self.subtopologies.get(subtopology_id)
        if part is None:
            return frozenset()
        try:
            matched = (matching(pattern, self.topics) for pattern in part.source_topic_regex)
            return _named(part).union(*matched)
        except InvalidRegexError:
            # Nobody runs tasks of such a topology: these partitions belong to another one.
            return frozenset()


def _named(part: Subtopology) -> frozenset[str]:
    return frozenset([*part.source_topics, *(topic.name for topic in part.repartition_source_topics)])
