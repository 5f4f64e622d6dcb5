"""The assignments of a classic group at the end of a generation, as bytes, and what the leader remembers.

1. Statuses are those of a streams group: the member tells the user what to do about each.
2. A member with an older epoch gets no status about topics that only the newer version needs.
3. An assignment answers one subscription, which it identifies by process and number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamsrt.assignment.assignor import AssignorSettings
from streamsrt.assignment.configuration import Configuration, metadata_hash
from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.patterns import resolve
from streamsrt.assignment.refused_update import Refusal, rolled_back
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.tasks import NO_TASKS, Tasks
from streamsrt.assignment.topics import NO_TOPICS, TopicsImage
from streamsrt.assignment.topology import Topology
from streamsrt.membership.classic.java_assignments import Inputs, encode_for_all
from streamsrt.membership.classic.java_members import SentAssignment
from streamsrt.membership.classic.layout import encode_assignment
from streamsrt.membership.classic.stream_layout import UserDataVersions
from streamsrt.membership.classic.task_assignment import inputs_of, source_partitions
from streamsrt.membership.classic.unread_records import NOTHING_LEFT, LeftBehind, waits_to_send
from streamsrt.membership.classic.values import NO_DIGEST, ClassicAssignment, Echo, ToldSetbacks
from streamsrt.membership.classic.values import Topology as WireTopology
from streamsrt.membership.classic.version_checks import is_stale
from streamsrt.membership.classic.view import Given, Memory, Participant, Version, View, wire_tasks_of
from streamsrt.membership.values import Status
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wording import address_text

RECORD_MAX_BYTES = 1_048_588
"""``message.max.bytes`` of a broker that nobody has configured otherwise."""

_MEMBER_OVERHEAD_BYTES = 120
"""Member id, client id, host, timeouts, and lengths, which stand beside each member's data."""
_NEAR = 0.8
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings:
    """The leader's own settings, which hold for the generation that it leads. Times in milliseconds."""

    group_id: str
    session_timeout_ms: int = 45_000
    num_standby_replicas: int = 0
    num_warmup_replicas: int = 2
    acceptable_recovery_lag: int = 10_000
    rack_tags: tuple[str, ...] = ()
    probing_interval_ms: int = 600_000
    offset_interval_ms: int = 60_000
    record_max_bytes: int = RECORD_MAX_BYTES

    @property
    def assignor(self) -> AssignorSettings:
        return AssignorSettings(
            num_standby_replicas=self.num_standby_replicas,
            num_warmup_replicas=self.num_warmup_replicas,
            acceptable_recovery_lag=self.acceptable_recovery_lag,
            rack_tags=self.rack_tags,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationPlan:
    """The leader's decisions. ``group`` None: the group has no version yet. ``waiting``: why no new tasks are assigned;
    ``postponed``: why the next version is not accepted yet; ``unknown``: why it is not even considered; ``draining``: topics
    that are read to the end before a hand-over; ``awaits``: no version runs before records in flight have a reader;
    ``pause``: why the newest version gets no more tasks of older ones for now; ``setbacks``: what members remember of that
    for the next leader; ``must_send_topology``: members; ``left``: consequences of records that older versions have left
    unread."""

    group: Version | None
    given: Mapping[str, Tasks]
    targets: Mapping[str, Tasks]
    refused: Mapping[str, Refusal]
    must_send_topology: frozenset[str] = frozenset()
    waiting: str = ""
    postponed: str = ""
    unknown: str = ""
    draining: str = ""
    awaits: bool = False
    pause: str = ""
    setbacks: ToldSetbacks | None = None
    configuration: Configuration | None = None
    creation_detail: str = ""
    conflicts: tuple[str, ...] = ()
    image: TopicsImage = NO_TOPICS
    rejoin_after_ms: int | None = None
    left: LeftBehind = NOTHING_LEFT


@dataclass(frozen=True, slots=True)
class TopicsWatch:
    """The topics that the assignment depends on: if the hash of the same topology changes, a new generation is needed.

    ``names``: topics to look at, None where patterns need all.
    """

    topology: Topology
    metadata_hash: int

    @property
    def names(self) -> frozenset[str] | None:
        if any(part.source_patterns for part in self.topology.subtopologies):
            return None
        return frozenset(self.topology.topics())

    def is_outdated(self, image: TopicsImage) -> bool:
        return metadata_hash(resolve(self.topology, image).topology, image) != self.metadata_hash


@dataclass(frozen=True, slots=True)
class LeaderOutcome:
    """What the leader sends with its SyncGroup, by member id, what it keeps and logs, and the topics that it watches until
    the next generation."""

    assignments: Mapping[str, bytes]
    memory: Memory
    warnings: tuple[str, ...] = ()
    watch: TopicsWatch | None = None
    decoded: Mapping[str, ClassicAssignment] = field(default_factory=dict)
    unfit: str = ""
    """Why this member can't lead and has to leave; there are no assignments then."""


def leader_outcome(
    view: View,
    plan: GenerationPlan,
    settings: LeaderSettings,
    memory: Memory,
    leader_id: str,
    subscriptions_bytes: int,
    versions: UserDataVersions,
) -> LeaderOutcome:
    why, waits = _why(view, plan, memory), waits_to_send(view, plan.group, plan.refused, plan.left)
    inputs = inputs_of(view, plan.image)
    shutdown = _shutdown(view)
    everybody: dict[str, ClassicAssignment] = {}
    for member in view.members:
        tasks = plan.given.get(member.member_id, NO_TASKS)
        assignment = _assignment(member, view, plan, settings, leader_id)
        everybody[member.member_id] = replace(
            assignment,
            assigned_partitions=source_partitions(member, tasks, inputs, plan.image),
            statuses=_statuses(member, plan, settings, shutdown),
            why=why,
            waits=waits,
            setbacks=plan.setbacks,
            awaits=plan.group is None and (plan.awaits or member.subscription.awaits),
        )
    for name, reason in view.unreadable.items():
        everybody[name] = _unreadable(view, name, reason, leader_id)
    encoded = _encoded(view, everybody, versions, inputs, plan.image)
    size = _size(encoded, subscriptions_bytes)
    if size > settings.record_max_bytes * _NEAR:
        everybody = {name: replace(assignment, why="") for name, assignment in everybody.items()}
        encoded = _encoded(view, everybody, versions, inputs, plan.image)
        size = _size(encoded, subscriptions_bytes)
    warnings = [plan.left.warning] if plan.left.warning else []
    if plan.conflicts:
        warnings.append(
            f"Group {settings.group_id}, generation {view.generation}: members claim the same partitions and must "
            f"release them: {', '.join(plan.conflicts)}."
        )
    warnings += [plan.refused[name].text for name in view.strangers if name in plan.refused]
    warnings += [
        f"Group {settings.group_id}: the subscription of member {name} can't be read: {reason}. It gets no tasks, and the "
        "others continue. It is a later release, or no instance of this application: upgrade the older of the two, or stop "
        "it. streamsrt groups describe shows its host."
        for name, reason in view.unreadable.items()
    ]
    if size > settings.record_max_bytes:
        warnings.append(_too_large(view, settings, size))
    watch = None
    if plan.configuration is not None:
        watch = TopicsWatch(plan.configuration.topology, plan.configuration.metadata_hash)
    return LeaderOutcome(encoded, _memory(view, plan, memory, everybody), tuple(warnings), watch, everybody)


def _encoded(
    view: View,
    everybody: Mapping[str, ClassicAssignment],
    versions: UserDataVersions,
    inputs: Inputs,
    image: TopicsImage,
) -> dict[str, bytes]:
    if view.is_mixed:
        return encode_for_all(view, everybody, versions, inputs, image)
    return {name: encode_assignment(assignment) for name, assignment in everybody.items()}


def _assignment(
    member: Participant, view: View, plan: GenerationPlan, settings: LeaderSettings, leader_id: str
) -> ClassicAssignment:
    name = member.member_id
    refusal = plan.refused.get(name)
    tasks = plan.given.get(name, NO_TASKS)
    return ClassicAssignment(
        generation=view.generation,
        group_epoch=-1 if plan.group is None else plan.group.epoch,
        group_digest=NO_DIGEST if plan.group is None else plan.group.digest,
        tasks=wire_tasks_of(tasks),
        target=wire_tasks_of(plan.targets.get(name, NO_TASKS)),
        error_code=0 if refusal is None else int(refusal.code),
        error_text=None if refusal is None else refusal.text,
        is_same_topology=refusal is not None and refusal.is_same_topology,
        send_topology=name in plan.must_send_topology,
        rejoin_after_ms=plan.rejoin_after_ms if name == leader_id else None,
        recovery_lag=settings.acceptable_recovery_lag,
        offset_interval_ms=settings.offset_interval_ms,
        process_id=member.process_id,
        unique=member.subscription.unique,
    )


def _unreadable(view: View, name: str, reason: str, leader_id: str) -> ClassicAssignment:
    return ClassicAssignment(
        generation=view.generation,
        error_code=int(ErrorCode.INVALID_REQUEST),
        error_text=(
            f"Member {leader_id}, which leads the group, can't read the subscription of member {name}: {reason}. "
            "Upgrade the older of the two: both need a version of streamsrt that has this layout."
        ),
    )


def _statuses(member: Participant, plan: GenerationPlan, settings: LeaderSettings, shutdown: str) -> tuple[Status, ...]:
    found = []
    mine = member.version.epoch
    is_behind = plan.group is not None and is_stale(member, plan.group)
    if plan.group is not None and is_behind:
        detail = f"The member's topology epoch {mine} is behind the group's topology epoch {plan.group.epoch}."
        found.append(Status(StatusCode.STALE_TOPOLOGY, detail))
    if plan.waiting and not member.held and not is_behind:
        found.append(Status(StatusCode.ASSIGNMENT_DELAYED, plan.waiting))
    if plan.pause and plan.group == member.version:
        found.append(Status(StatusCode.ASSIGNMENT_DELAYED, f"{plan.pause}."))
    if plan.left.detail and plan.group == member.version:
        found.append(Status(StatusCode.ASSIGNMENT_DELAYED, plan.left.detail))
    problem = None if plan.configuration is None else plan.configuration.problem
    is_ahead = plan.group is not None and member.version.epoch > plan.group.epoch
    if is_ahead and plan.unknown:
        found.append(Status(StatusCode.ASSIGNMENT_DELAYED, plan.unknown))
    elif is_ahead and plan.postponed:
        found.append(Status(StatusCode.MISSING_INTERNAL_TOPICS, plan.postponed))
    elif problem is not None and not is_ahead and not (problem.is_fatal and is_behind):
        found.append(Status(problem.status_code, problem.detail + plan.creation_detail))
    missing = [tag for tag in settings.rack_tags if tag not in member.subscription.client_tags]
    if missing:
        detail = (
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure them "
            "via 'client.tag.<tagKey>' in your Streams config."
        )
        found.append(Status(StatusCode.MISSING_CLIENT_TAGS, detail))
    if shutdown:
        found.append(Status(StatusCode.SHUTDOWN_APPLICATION, shutdown))
    return tuple(found)


def _shutdown(view: View) -> str:
    """The member that requested a shutdown of the application, or reports such a request; empty if there is none."""
    for member in view.members:
        if member.subscription.requests_shutdown:
            return (
                f"Streams group member {member.member_id} encountered a fatal error and requested a shutdown for the entire "
                "application."
            )
    received = [member.member_id for member in view.members if member.subscription.shutdown_received]
    if not received:
        return ""
    return (
        "A streams group member that has left encountered a fatal error and requested a shutdown for the entire "
        f"application, as {received[0]} reports."
    )


def _memory(view: View, plan: GenerationPlan, memory: Memory, everybody: Mapping[str, ClassicAssignment]) -> Memory:
    present = {member.version.digest for member in view.members}
    return replace(
        memory,
        texts={digest: text for digest, text in view.wire_texts.items() if digest in present},
        generation=view.generation,
        given={
            m.instance_id: _given(m, everybody[m.member_id], is_java=m.member_id in view.javas)
            for m in view.members
            if m.instance_id is not None
        },
        members={m.member_id: _name(m) for m in view.members},
        version=plan.group or memory.version,
        ahead=_ahead(view, plan, memory),
        javas=_sent_to_java_members(view, plan, everybody),
    )


def _ahead(view: View, plan: GenerationPlan, memory: Memory) -> frozenset[str]:
    """Members that have tasks of the group's version while others run older ones."""
    if plan.group is None:
        return memory.ahead.intersection(member.lasting_id for member in view.members)
    if all(member.version.epoch >= plan.group.epoch for member in view.members):
        return frozenset()
    return frozenset(m.lasting_id for m in view.members if m.version == plan.group and plan.targets.get(m.member_id))


def _sent_to_java_members(
    view: View, plan: GenerationPlan, everybody: Mapping[str, ClassicAssignment]
) -> dict[str, SentAssignment]:
    group = plan.group
    if group is None:
        return {}
    return {
        m.member_id: SentAssignment(
            m.subscription.unique, Echo(view.generation, group.epoch, group.digest, everybody[m.member_id].target)
        )
        for m in view.members
        if m.member_id in view.javas
    }


def _given(member: Participant, assignment: ClassicAssignment, *, is_java: bool) -> Given:
    return Given(
        member.member_id,
        member.subscription.unique,
        member.process_id,
        member.version,
        assignment,
        member.is_in_doubt,
        is_java,
    )


def _name(member: Participant) -> str:
    where = [f"instance {member.instance_id}"] if member.instance_id is not None else []
    endpoint = member.subscription.endpoint
    if endpoint is not None:
        where.append(address_text(endpoint.host, endpoint.port))
    return f"{member.member_id} ({', '.join(where)})" if where else member.member_id


def _why(view: View, plan: GenerationPlan, memory: Memory) -> str:
    """Returns why there is a new generation, if its leader also led the one before."""
    if plan.waiting:
        return plan.waiting
    back = "" if plan.group is None else _runs_again(view, plan.group)
    drains = [text.rstrip(".") for text in (plan.pause, plan.draining, plan.left.detail, back) if text]
    if memory.generation != view.generation - 1:
        return "; ".join(drains)
    now = {m.member_id: _name(m) for m in view.members}
    gone = [name for key, name in memory.members.items() if key not in now]
    new = [name for key, name in now.items() if key not in memory.members]
    reasons = [*_each(gone, "is gone", "are gone"), *_each(new, "joined", "joined")]
    if plan.group is not None and memory.version is not None and plan.group.epoch > memory.version.epoch:
        reasons.append(f"the topology was updated to epoch {plan.group.epoch}")
    return "; ".join([*reasons, *drains])


def _runs_again(view: View, group: Version) -> str:
    """Says that members run the topology of the group under an earlier epoch; empty if they don't, or some run its own."""
    if any(member.version == group for member in view.members):
        return ""
    epochs = {
        member.version.epoch
        for member in view.members
        if (text := view.wire_texts.get(member.version.digest)) is not None
        and topology_digest(_with_epoch(text, group.epoch), member.subscription.client_tags) == group.digest
    }
    return rolled_back(max(epochs)) if epochs else ""


def _with_epoch(topology: WireTopology, epoch: int) -> WireTopology:
    return WireTopology(epoch=epoch, subtopologies=topology.subtopologies)


def _each(names: Sequence[str], what_one: str, what_many: str) -> list[str]:
    """The reasons, as sent to every member. If there are many members, some are named and the rest are counted."""
    others = len(names) - _NAMED_MAX
    named = [f"member {name} {what_one}" for name in names[:_NAMED_MAX]]
    return [*named, f"{others} other members {what_many}"] if others > 0 else named


def _size(encoded: Mapping[str, bytes], subscriptions_bytes: int) -> int:
    return subscriptions_bytes + sum(map(len, encoded.values())) + len(encoded) * _MEMBER_OVERHEAD_BYTES


def _too_large(view: View, settings: LeaderSettings, size: int) -> str:
    members = len(view.members)
    return (
        f"Group {settings.group_id}: its {members} members need a record of {size} bytes. Unless their limit is raised, "
        f"brokers refuse one of more than {settings.record_max_bytes}, and every SyncGroup ends with "
        "UNKNOWN_SERVER_ERROR then. Raise message.max.bytes of the brokers and max.message.bytes of "
        "__consumer_offsets, run fewer stream threads, or use group.protocol=streams."
    )
