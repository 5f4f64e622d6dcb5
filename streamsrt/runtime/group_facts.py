"""An application's group as the cluster describes it: one value for both group protocols.

1. What a broker does not report is None, never a guess: during a rebalance it reports the members of a classic group,
   but not their metadata.
2. A member of a classic group reports its offsets when it joins; one of a streams group reports them at an interval
   that the group sets, and when a warm-up task has caught up.
3. The epoch of a classic group is the one in its newest assignment. Without an assignment it has none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypedDict

from streamsrt.assignment.in_flight import (
    NOTHING_RUNS,
    awaited_topics,
    draining_topics,
    is_called_repartition,
    names_held_tasks,
    written_topics,
)
from streamsrt.assignment.internal_topics import is_changelog
from streamsrt.assignment.refused_update import named_rollback
from streamsrt.assignment.value_versions import NO_VERSIONS, ValueVersions, read_versions
from streamsrt.assignment.version_backoff import named_setbacks
from streamsrt.client.interface import Administering
from streamsrt.client.values import EARLIEST, LATEST, OffsetAndMetadata, TopicPartition
from streamsrt.errors import ConfigError, RequestFailedError
from streamsrt.wire.client_tags import (
    STORE_MARKS,
    STORE_SETTINGS,
    TOPOLOGY_DIGEST,
    TOPOLOGY_PARTS,
    VALUE_VERSIONS,
    may_lose_in_flight,
)
from streamsrt.wire.error_codes import ErrorCode, error_name
from streamsrt.wire.private_tags import REBALANCES_TAG, VERSIONS_TAG
from streamsrt.wire.types import DescribeGroupsResponse, StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest
from streamsrt.wording import address_text, counted

if TYPE_CHECKING:
    from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription

Role: TypeAlias = Literal["active", "standby", "warmup"]
ROLES: tuple[Role, ...] = ("active", "standby", "warmup")
Task: TypeAlias = tuple[str, int]
TasksByRole: TypeAlias = Mapping[Role, frozenset[Task]]

SETTLED_S = 60.0
"""Longer than the default session of a member that was killed: so long others wait for it."""
_PAUSE_S = 0.2
STABLE = frozenset({"Stable", "STABLE"})
"""A group's state after its assignment: as brokers spell it, and as our client does."""
_SETTLED = frozenset({"Stable", "Empty", "Dead"})
_AWAY_EPOCH = -2
_NO_TASKS: TasksByRole = {role: frozenset() for role in ROLES}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFacts:
    """One member. ``epoch``: of its topology; ``digest``: the start of that topology's digest, if it reports it.

    ``tasks``: its assigned tasks. ``offsets`` and ``ends``: the offsets of its state and of the changelogs by task, as
    it reported them. ``is_away``: a static member that is stopped; None if its protocol does not report that.
    ``reads``: the topics to which a member of a classic group subscribes. ``may_lose``: it runs with
    ``upgrade.lose.in.flight``. ``value_versions``: of the values that it writes into stores. ``state_tags``: the client tags
    that say what it keeps (:mod:`streamsrt.membership.state_settings`) and, in a classic group, its subtopologies.
    """

    member_id: str
    instance_id: str | None
    process_id: str
    client_id: str
    host: str
    epoch: int | None
    digest: str | None
    endpoint: str | None = None
    tasks: TasksByRole = field(default_factory=lambda: _NO_TASKS)
    offsets: Mapping[Task, int] = field(default_factory=dict)
    ends: Mapping[Task, int] = field(default_factory=dict)
    is_away: bool | None = None
    reads: frozenset[str] = frozenset()
    may_lose: bool = False
    value_versions: ValueVersions = field(default_factory=lambda: NO_VERSIONS)
    state_tags: Mapping[str, str] = field(default_factory=dict)


class KnownVersion(NamedTuple):
    """A version that a group knows: its repartition topics, and whether the group was rolled back from it.
    ``has_taken_over``: False of the newest one while the version before it may still be started. ``is_same``: it has the
    topology of the group, under an earlier epoch. ``digest``: its start; empty if the group does not know it."""

    epoch: int
    repartition_topics: frozenset[str]
    is_sent_back: bool = False
    has_taken_over: bool = True
    is_same: bool = False
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group at one moment. ``epoch``: of its topology, None if it has none. ``state``: as its protocol names it.

    ``protocol``: how the members of a classic group assign tasks, between rebalances. ``digest``: of a classic group's
    topology, with its epoch and its client tags. ``topics``: all that a streams group's
    topology reads and writes for itself, by subtopology; ``repartition_topics``: those that its tasks read. ``why``: of the
    newest assignment, in the words of who made it; empty where nobody tells. ``in_flight``: how many records are unread in
    repartition topics that old members read to the end first, by topic. ``left``: how many are in those that nobody
    reads, of :func:`with_left`; ``unassigned``: in all of them, while it is not known who reads what; ``dropped``: in
    source topics that the group's topology does not read. ``later_values``: versions of values that the version before the
    newest can't read, by changelog; ``only_later_reads``: how many records are in repartition topics that only the newest
    reads, both of :mod:`streamsrt.runtime.way_back`. ``readers``: the subtopology of that topology that reads a
    repartition topic. ``versions``: those that a streams group knows, the newest first; its own alone, if it knows one,
    where the broker tells no others.
    """

    name: str
    kind: Literal["streams", "classic"]
    state: str
    epoch: int | None
    members: tuple[MemberFacts, ...]
    protocol: str = ""
    digest: bytes | None = None
    topics: frozenset[tuple[str, frozenset[str]]] | None = None
    repartition_topics: frozenset[str] = frozenset()
    why: str = ""
    in_flight: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    unassigned: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    later_values: Mapping[str, int] = field(default_factory=dict)
    only_later_reads: Mapping[str, int] = field(default_factory=dict)
    readers: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[KnownVersion, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether tasks are held back by records that no member reads, according to the newest assignment."""
        return names_held_tasks(self.why)

    @property
    def stands_still(self) -> bool:
        """Whether no task runs before the records in flight have a reader, according to the newest assignment."""
        return NOTHING_RUNS in self.why

    @property
    def awaited(self) -> frozenset[str]:
        """Repartition topics without a reader that tasks wait for, according to the newest assignment."""
        return awaited_topics(self.why)

    @property
    def next_epoch(self) -> int:
        """The one that follows those of the group and of its members."""
        return max((*self.epochs, self.epoch or 0)) + 1

    @property
    def written(self) -> frozenset[str]:
        """Removed repartition topics to which old members still write, according to the newest assignment."""
        return written_topics(self.why)

    @property
    def setbacks(self) -> tuple[int, int] | None:
        """The version that gets no more tasks for now, by its epoch, and how often in a row its members have gone."""
        return named_setbacks(self.why)

    @property
    def knows_versions(self) -> bool:
        """False while a classic group rebalances: its members are described without what they run."""
        return self.kind == "streams" or self.state in STABLE or all(each.epoch is not None for each in self.members)

    @property
    def strangers(self) -> str:
        """Members of a classic group that are not of this runtime, for people; empty if there are none, or during a
        rebalance."""
        count = sum(each.epoch is None for each in self.members)
        if self.kind != "classic" or self.state not in STABLE or not count:
            return ""
        known = {"stream": "of Java's Kafka Streams", "faust": "of Faust"}
        return f"{counted(count, 'member')} {known.get(self.protocol, f'of another client (protocol {self.protocol})')}"

    @property
    def known_digest(self) -> str:
        """The start of the digest of a streams group's own version; empty if the group does not tell it."""
        return next((each.digest for each in self.versions if each.epoch == self.epoch), "")

    @property
    def task_ends(self) -> dict[Task, int]:
        """The largest end offset of the changelogs of each task that any member has reported: the newest."""
        found: dict[Task, int] = {}
        for member in self.members:
            for task, end in member.ends.items():
                found[task] = max(end, found.get(task, end))
        return found

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that members run, newest first."""
        return tuple(sorted({each.epoch for each in self.members if each.epoch is not None}, reverse=True))

    @property
    def rolled_back_to(self) -> tuple[int, ...]:
        """The earlier epochs under which members run the topology of the group: it was rolled back to them."""
        sent_back = min((each.epoch for each in self.versions if each.is_sent_back), default=-1)
        own = {named_rollback(self.why)}
        if not self.with_epoch(self.epoch):
            # Rolled back twice, it does not know the later version any more.
            own.update(each.epoch for each in self.versions if each.is_same)
        return tuple(each for each in self.epochs if (each in own or each < sent_back) and each != self.epoch)

    def with_epoch(self, epoch: int | None) -> list[MemberFacts]:
        return [each for each in self.members if each.epoch == epoch]


Committed: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]
GroupDescription: TypeAlias = StreamsGroupDescribeResponse.DescribedGroup | DescribeGroupsResponse.DescribedGroup
"""A streams group or a classic one, as its coordinator describes it."""


def look(admin: Administering, name: str) -> GroupFacts:
    """Returns the present state of the group. Raises ConfigError if it does not exist, RequestFailedError if it can't be
    described."""
    return facts_of(admin, describe(admin, name))


def describe(admin: Administering, name: str) -> GroupDescription:
    """Requests the coordinator's description of the group. Raises ConfigError if it is not an application's group."""
    kind = next((each.group_type.lower() for each in admin.list_groups() if each.group_id == name), None)
    if kind == "streams":
        return admin.describe_streams_groups([name])[0]
    if kind == "classic":
        return admin.describe_classic_groups([name])[0]
    told = "no such group" if kind is None else f"a {kind} group, which belongs to no application"
    raise ConfigError(f"{told}: {name} (streamsrt groups list shows all groups)")


def facts_of(admin: Administering, described: GroupDescription, committed: Committed | None = None) -> GroupFacts:
    """Converts a description, with the records in flight. ``committed``: the group's committed offsets; None: they are read.
    Raises RequestFailedError if they are unknown according to it."""
    if isinstance(described, StreamsGroupDescribeResponse.DescribedGroup):
        return _with_drained(admin, _of_streams_group(described), committed)
    return _with_drained(admin, _of_classic_group(described), committed)


def _with_drained(admin: Administering, facts: GroupFacts, committed: Committed | None) -> GroupFacts:
    topics = draining_topics(facts.why)
    return replace(facts, in_flight=unread_records(admin, facts.name, topics, committed)) if topics else facts


def with_left(admin: Administering, facts: GroupFacts, committed: Committed | None = None) -> GroupFacts:
    """Adds unread records in topics that no task reads, as far as the members' topics are known: in repartition topics
    (``left``), and in source topics (``dropped``).

    While members run, only repartition topics count for which the group has committed offsets, as tasks wait only for
    these, or which its assignment names, or which a version has that the group knows: in a classic group, one that a
    member runs. ``committed``: the
    group's committed offsets; None: they are read.
    """
    offsets = admin.committed(facts.name) if committed is None else committed
    seen = {topic for topic, _ in offsets}
    if not facts.knows_versions:
        there = seen.intersection(repartition_topics_there(admin, facts.name))
        return replace(facts, unassigned=unread_records(admin, facts.name, there, offsets))
    if any(each.epoch is None for each in facts.members):
        return facts
    topics = frozenset(repartition_topics_there(admin, facts.name)) - _read(facts)
    if facts.kind == "streams" and not {each.epoch for each in facts.versions}.issuperset(facts.epochs):
        # Other topics may be read by members with a version that the group does not report.
        topics &= facts.repartition_topics
    if facts.members:
        known = [*(each.repartition_topics for each in facts.versions), *(each.reads for each in facts.members)]
        topics &= seen.union(facts.awaited, *known)
    dropped = dropped_sources(facts, seen)
    unread = unread_records(admin, facts.name, topics | dropped, offsets)
    return replace(
        facts,
        left={topic: count for topic, count in unread.items() if topic in topics},
        dropped={topic: count for topic, count in unread.items() if topic in dropped},
    )


def _read(facts: GroupFacts) -> frozenset[str]:
    """Repartition topics that members have tasks for, or that older members read to the end."""
    read = set(facts.in_flight)
    for member in facts.members:
        if member.tasks["active"] or facts.state not in STABLE:
            read |= member.reads
    for version in facts.versions:
        members = facts.with_epoch(version.epoch)
        if members and facts.state not in STABLE:
            read |= version.repartition_topics
            continue
        tasks = {part for each in members for part, _ in each.tasks["active"]}
        own = version.epoch == facts.epoch
        read.update(
            topic
            for topic in version.repartition_topics
            if (facts.readers[topic] in tasks if own and topic in facts.readers else tasks)
        )
    return frozenset(read)


def dropped_sources(facts: GroupFacts, committed: Collection[str]) -> frozenset[str]:
    """Topics with committed offsets that the group's topology, or the newest version of a classic group, does not read.

    A member of a classic group that does not tell its subtopologies may read topics by a pattern, to which it does not
    subscribe before it has tasks: nothing is known then.
    """
    newest = facts.with_epoch(max(facts.epochs, default=None))
    if facts.topics is None and not any(TOPOLOGY_PARTS in each.state_tags for each in newest):
        return frozenset()
    known = {topic for _, topics in facts.topics or () for topic in topics}
    known = known.union(*(each.reads for each in newest))
    return frozenset(each for each in committed if each not in known and not is_called_repartition(facts.name, each))


def repartition_topics_there(admin: Administering, group: str) -> Iterator[str]:
    """Yields topics named like repartition topics of this group, without those of another group whose name starts the
    same."""
    return (topic for topic in _own_topics_there(admin, group) if is_called_repartition(group, topic))


def changelogs_there(admin: Administering, group: str) -> Iterator[str]:
    """Yields topics named like changelogs of this group, in the same way."""
    return (topic for topic in _own_topics_there(admin, group) if is_changelog(topic))


def _own_topics_there(admin: Administering, group: str) -> Iterator[str]:
    others = tuple(f"{each.group_id}-" for each in admin.list_groups() if each.group_id.startswith(f"{group}-"))
    return (topic for topic in admin.topics() if topic.startswith(f"{group}-") and not topic.startswith(others))


def unread_records(
    admin: Administering, group: str, topics: Collection[str], committed: Committed | None = None
) -> dict[str, int]:
    """The number of unread records of a group by topic, for those of these topics that have any. ``committed``: the
    group's committed offsets; None: they are read."""
    counts = admin.partitions_for(sorted(topics)) if topics else {}
    partitions = [(topic, partition) for topic, count in sorted(counts.items()) for partition in range(count)]
    if not partitions:
        return {}
    first = admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    last = admin.list_offsets(dict.fromkeys(partitions, LATEST))
    read = admin.committed(group) if committed is None else committed
    found: dict[str, int] = {}
    for tp in (each for each in partitions if each in first and each in last):
        at = max(first[tp].offset, read[tp].offset if tp in read else 0)
        if last[tp].offset > at:
            found[tp[0]] = found.get(tp[0], 0) + last[tp].offset - at
    return found


def describe_when_settled(admin: Administering, name: str, timeout_s: float = SETTLED_S) -> GroupFacts:
    """Like :func:`look`, but waits until a classic group's rebalance is over: before that, the versions of its members
    are unknown and must not be guessed. Raises RequestFailedError on timeout."""
    deadline = time.monotonic() + timeout_s
    while (facts := look(admin, name)).kind == "classic" and facts.state not in _SETTLED:
        if time.monotonic() > deadline:
            raise RequestFailedError(
                f"group {name!r} is {facts.state}, so the versions of its members are not known, and this did not "
                f"change within {timeout_s:g} s: try again",
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
        time.sleep(_PAUSE_S)
    return facts


def settled_classic_group(
    admin: Administering, name: str, timeout_s: float = SETTLED_S
) -> DescribeGroupsResponse.DescribedGroup:
    """Returns the description of a classic group after its rebalance, or as it is on timeout."""
    deadline = time.monotonic() + timeout_s
    while True:
        (described,) = admin.describe_classic_groups([name])
        if described.group_state in _SETTLED or not described.members or time.monotonic() > deadline:
            return described
        time.sleep(_PAUSE_S)


def _checked(name: str, code: int, message: str | None) -> None:
    if code:
        raise RequestFailedError(f"group {name!r} can't be described: {message or error_name(code)}; try again", code)


# ------------------------------------------------------------------------------------------------------ streams groups

_Described: TypeAlias = StreamsGroupDescribeResponse.DescribedGroup
_Member: TypeAlias = StreamsGroupDescribeResponse.Member


def _of_streams_group(described: _Described) -> GroupFacts:
    _checked(described.group_id, described.error_code, described.error_message)
    parts = [] if described.topology is None else list(described.topology.subtopologies or ())
    readers = {topic.name: part.subtopology_id for part in parts for topic in part.repartition_source_topics}
    repartition_topics = frozenset(readers)
    return GroupFacts(
        name=described.group_id,
        kind="streams",
        state=described.group_state,
        epoch=None if described.topology is None else described.topology.epoch,
        members=tuple(_streams_member(each) for each in described.members),
        why=_why(described),
        topics=None if described.topology is None else frozenset(map(part_topics, parts)),
        repartition_topics=repartition_topics,
        readers=readers,
        versions=_versions(described, repartition_topics),
    )


def _versions(described: _Described, repartition_topics: frozenset[str]) -> tuple[KnownVersion, ...]:
    told = (described.unknown_tags or {}).get(VERSIONS_TAG)
    if told is not None:
        return tuple(
            KnownVersion(
                each["epoch"],
                frozenset(each["repartition_topics"]),
                each["is_sent_back"],
                # A broker of an earlier release does not say it.
                each.get("has_taken_over", True),
                # Equal topics are not enough: the version after it may have other steps between the same ones.
                each.get("is_same", False) and bool(each.get("digest")),
                each.get("digest", ""),
            )
            for each in json.loads(told)
        )
    return () if described.topology is None else (KnownVersion(described.topology.epoch, repartition_topics),)


class DescribedRebalance(TypedDict):
    """One assignment of a streams group, as the bundled broker describes it."""

    epoch: int
    at_ms: int
    reasons: list[str]
    moves: list[str]


def described_rebalances(described: _Described) -> list[DescribedRebalance] | None:
    """Returns why a streams group was assigned again, and which tasks moved, newest last. None: the broker is not the
    bundled one and does not report it.
    """
    told = (described.unknown_tags or {}).get(REBALANCES_TAG)
    return None if told is None else list(json.loads(told))


def _why(described: _Described) -> str:
    latest = described_rebalances(described)
    return "; ".join(latest[-1]["reasons"]) if latest else ""


def part_topics(
    part: StreamsGroupDescribeResponse.Subtopology | StreamsGroupHeartbeatRequest.Subtopology,
) -> tuple[str, frozenset[str]]:
    """Id and topics of a subtopology."""
    internal = (*part.state_changelog_topics, *part.repartition_source_topics)
    names = (*part.source_topics, *part.repartition_sink_topics, *(topic.name for topic in internal))
    return part.subtopology_id, frozenset(names)


def _streams_member(member: _Member) -> MemberFacts:
    found = member.assignment
    roles = (found.active_tasks, found.standby_tasks, found.warmup_tasks)
    endpoint = member.user_endpoint
    tags = {tag.key: tag.value for tag in member.client_tags}
    return MemberFacts(
        member_id=member.member_id,
        instance_id=member.instance_id,
        process_id=member.process_id,
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        epoch=member.topology_epoch,
        digest=tags.get(TOPOLOGY_DIGEST),
        endpoint=None if endpoint is None else address_text(endpoint.host, endpoint.port),
        tasks={
            role: frozenset((each.subtopology_id, p) for each in listed for p in each.partitions)
            for role, listed in zip(ROLES, roles, strict=True)
        },
        offsets={(each.subtopology_id, each.partition): each.offset for each in member.task_offsets},
        ends={(each.subtopology_id, each.partition): each.offset for each in member.task_end_offsets},
        is_away=None if member.is_classic else member.member_epoch == _AWAY_EPOCH,
        may_lose=may_lose_in_flight(tags),
        value_versions=read_versions(tags.get(VALUE_VERSIONS)),
        state_tags=_state_tags(tags),
    )


def _state_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: tags[key] for key in (STORE_MARKS, STORE_SETTINGS, TOPOLOGY_PARTS) if key in tags}


# ------------------------------------------------------------------------------------------------------ classic groups

_ClassicGroup: TypeAlias = DescribeGroupsResponse.DescribedGroup
_ClassicMember: TypeAlias = DescribeGroupsResponse.DescribedGroupMember


def _of_classic_group(described: _ClassicGroup) -> GroupFacts:
    # Not needed in streams groups.
    from streamsrt.membership.classic.stream_layout import decode_own_assignment, decode_own_subscription

    if described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        _checked(described.group_id, described.error_code, None)
    protocol = described.protocol_data
    told = [decode_own_assignment(protocol, each.member_assignment) for each in described.members]
    newest = max((each for each in told if each is not None), key=lambda each: each.generation, default=None)
    return GroupFacts(
        name=described.group_id,
        kind="classic",
        state=described.group_state,
        epoch=None if newest is None or newest.group_epoch < 0 else newest.group_epoch,
        protocol=protocol,
        members=tuple(
            _classic_member(member, decode_own_subscription(protocol, member.member_metadata), its)
            for member, its in zip(described.members, told, strict=True)
        ),
        digest=None if newest is None else newest.group_digest,
        why="" if newest is None else newest.why,
    )


def _classic_member(
    member: _ClassicMember, said: ClassicSubscription | None, told: ClassicAssignment | None
) -> MemberFacts:
    endpoint = None if said is None else said.endpoint
    return MemberFacts(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        process_id="" if said is None else said.process_id,
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        epoch=None if said is None else said.topology_epoch,
        digest=None if said is None else said.client_tags.get(TOPOLOGY_DIGEST),
        endpoint=None if endpoint is None else address_text(endpoint.host, endpoint.port),
        tasks=_NO_TASKS if told is None else {role: getattr(told.tasks, role) for role in ROLES},
        offsets={} if said is None else said.offsets,
        ends={} if said is None else said.end_offsets,
        reads=frozenset() if said is None else said.topics,
        may_lose=said is not None and may_lose_in_flight(said.client_tags),
        value_versions=NO_VERSIONS if said is None else read_versions(said.client_tags.get(VALUE_VERSIONS)),
        state_tags={} if said is None else _state_tags(said.client_tags),
    )
