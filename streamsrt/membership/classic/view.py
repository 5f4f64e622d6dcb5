"""What a leader knows of its group: owned tasks, previous assignments, and topologies.

It is computed from what the members send when they join, so that any member can lead at any time.

1. The tasks that a member claims are complete, and never too few. A member that did not join holds nothing, unless it
   is static: brokers keep it in the group, with the metadata of its last join.
2. A static member has joined if its echo is from the generation before this one. If not, the leader may know more: if
   it led that generation, and the metadata has not changed since, the member is *away*: its assignment from then is
   added to its claims, as if it had received it. (It may be there and have repeated a JoinGroup whose response was
   lost. Then it claims too much for one generation.)
3. If the leader does not know either, the member is *in doubt*, and nobody gets new tasks until another generation, or
   the end of that member's session, resolves it. That includes new static members: a member that got its first tasks in
   the previous generation looks like one that joins. In the first generation of a group nobody is in doubt, nor is the
   leader itself ever.
4. A member without an echo may have returned to the assignment that the broker stored for its instance id, and have
   continued with it, if it has the same process and version: it counts as away, too.
5. An echo that is not older than this generation is from another life of the group, and does not count.
6. Of two echoes of a task in one process, or of an active task anywhere, the newer one counts.
7. Texts of topologies are this member's own, those that it has seen before, and those that members attach.
8. If Java's members are in the group, their metadata is converted to ours
   (:mod:`~streamsrt.membership.classic.java_members`). A leader that does not run the group's version can't do that,
   nor one whose topology is not Java's: it has to leave (``unfit``). If it runs the group's version, a Java member with
   another topology and without tasks is refused. So is one whose metadata can't be read; nobody else gets the
   partitions that it owns until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topology import InvalidTopologyError, Topology, check_topology, topology_of
from streamsrt.assignment.version_backoff import Setbacks
from streamsrt.membership.classic.java_members import (
    JavaMembers,
    SentAssignment,
    read_subscriptions,
    to_classic_subscription,
    unlike,
    version_of,
)
from streamsrt.membership.classic.layout import decode_subscription
from streamsrt.membership.classic.stream_layout import STREAM_PROTOCOL, JavaSubscription
from streamsrt.membership.classic.values import (
    PROTOCOL_NAME,
    ClassicAssignment,
    ClassicSubscription,
    Echo,
    Joined,
    ToldSetbacks,
    Unreadable,
    Waits,
    echo_of,
)
from streamsrt.membership.classic.values import Topology as WireTopology
from streamsrt.membership.values import Task
from streamsrt.membership.values import Tasks as WireTasks

FIRST_GENERATION = 1


class Version(NamedTuple):
    """A version of the program: the epoch and the digest of its topology."""

    epoch: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Given:
    """An assignment that this leader sent to a static member, and what shows whether the member has joined since. A member
    that was in doubt stays in doubt until it joins."""

    member_id: str
    unique: int
    process_id: str
    version: Version
    assignment: ClassicAssignment
    was_in_doubt: bool = False
    is_java: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What a leader remembers between generations. It is not needed for correctness, but saves generations.

    ``texts``: by digest. ``given``: by instance id, in ``generation``. ``creations``: failed attempts to create topics, one
    after the other. ``members``: those of that generation, by member id, as people know them. ``javas``: Java's members.
    ``unread_counted_for``: the version that runs alone, if it is known what older ones have left unread. ``ahead``: members
    that had tasks of that version while others ran older ones, by instance id, else by member id; ``setbacks``: of it.
    """

    texts: Mapping[bytes, WireTopology]
    generation: int = -1
    given: Mapping[str, Given] = field(default_factory=dict)
    creations: int = 0
    create_at_ms: int = 0
    members: Mapping[str, str] = field(default_factory=dict)
    version: Version | None = None
    javas: Mapping[str, SentAssignment] = field(default_factory=dict)
    unread_counted_for: Version | None = None
    ahead: frozenset[str] = frozenset()
    setbacks: Setbacks | None = None


@dataclass(frozen=True, slots=True)
class Participant:
    """A member of the generation. ``previous`` is the target that it echoes, without tasks for which a newer echo says
    otherwise."""

    member_id: str
    instance_id: str | None
    subscription: ClassicSubscription
    held: Tasks
    echo: Echo | None
    previous: Tasks
    is_away: bool = False
    is_in_doubt: bool = False

    @property
    def version(self) -> Version:
        return Version(self.subscription.topology_epoch, self.subscription.topology_digest)

    @property
    def lasting_id(self) -> str:
        """Its instance id, which it keeps when it is restarted, else its member id."""
        return self.member_id if self.instance_id is None else self.instance_id

    @property
    def process_id(self) -> str:
        return self.subscription.process_id

    @property
    def last_generation(self) -> int:
        """The generation of its last assignment."""
        return -1 if self.echo is None else self.echo.generation


@dataclass(frozen=True, slots=True)
class View:
    """A generation as its leader sees it. ``members`` in order of their ids; ``unreadable``: reasons by member id;
    ``texts``: topologies by digest; ``invalid``: errors in topologies, by digest. ``javas``: Java's members, if the group
    uses their protocol (``is_mixed``); ``strangers``: the ones with another topology, and what shows it; ``unfit``: why the
    leader has to leave; ``leaders``: the version that it runs then."""

    generation: int
    members: tuple[Participant, ...]
    unreadable: Mapping[str, str]
    texts: Mapping[bytes, Topology]
    wire_texts: Mapping[bytes, WireTopology]
    invalid: Mapping[bytes, str]
    javas: Mapping[str, JavaSubscription] = field(default_factory=dict)
    strangers: Mapping[str, str] = field(default_factory=dict)
    is_mixed: bool = False
    unfit: str = ""
    leaders: Version | None = None

    @property
    def in_doubt(self) -> list[str]:
        return [member.member_id for member in self.members if member.is_in_doubt]

    @property
    def away(self) -> list[str]:
        return [member.member_id for member in self.members if member.is_away]

    @property
    def echoed(self) -> Version | None:
        """The version that the group runs, by the newest echo; None without any echo."""
        newest = self._newest_echo
        return None if newest is None else Version(newest.group_epoch, newest.group_digest)

    @property
    def waits(self) -> Waits:
        """The ``Waits`` that were sent with that version."""
        newest = self._newest_echo
        return {} if newest is None else newest.waits

    @property
    def setbacks(self) -> ToldSetbacks | None:
        """The setbacks that were told with that version."""
        newest = self._newest_echo
        return None if newest is None else newest.setbacks

    @property
    def _newest_echo(self) -> Echo | None:
        return max((m.echo for m in self.members if m.echo is not None), key=lambda e: e.generation, default=None)


def view_of(
    generation: int, joined: Iterable[Joined], memory: Memory, leader_id: str, protocol_name: str = PROTOCOL_NAME
) -> View:
    """Computes the view of this generation's leader; the order of ``joined`` does not matter."""
    everybody = sorted(joined, key=lambda each: each.member_id)
    if protocol_name == STREAM_PROTOCOL:
        return _mixed_view(generation, everybody, memory, leader_id)
    read: list[tuple[Joined, ClassicSubscription]] = []
    unreadable: dict[str, str] = {}
    for each in everybody:
        subscription = decode_subscription(each.metadata)
        if isinstance(subscription, Unreadable):
            unreadable[each.member_id] = subscription.reason
        else:
            read.append((each, subscription))
    return _view(generation, read, unreadable, memory, leader_id)


def _mixed_view(generation: int, everybody: list[Joined], memory: Memory, leader_id: str) -> View:
    read = read_subscriptions(everybody)
    mine = read.ours[leader_id]
    version = version_of(read, generation, leader_id, memory.texts)
    if version is None or version.digest != mine.topology_digest:
        nothing = View(generation, (), {}, {}, {}, {}, is_mixed=True)
        return replace(nothing, unfit="It does not run the version of the program that the group runs.")
    sent = memory.javas if memory.generation == generation - 1 else {}
    subscriptions = dict(read.ours)
    for name, java in read.javas.items():
        subscriptions[name] = to_classic_subscription(name, java, version, sent.get(name), generation)
    ordered = [(each, subscriptions[each.member_id]) for each in everybody if each.member_id in subscriptions]
    view = _view(generation, ordered, read.unreadable, memory, leader_id)
    others = {name: text for name, java in read.javas.items() if (text := unlike(version.topology, java))}
    return replace(
        view,
        javas=read.javas,
        strangers=others,
        is_mixed=True,
        unfit=_why_unfit(read, others, mine),
        leaders=Version(version.epoch, version.digest),
    )


def _why_unfit(read: JavaMembers, strangers: Mapping[str, str], mine: ClassicSubscription) -> str:
    """Returns why the leader has to leave. Members that were there first are right about the topology."""
    is_new = mine.echo is None and not mine.held
    for name, text in strangers.items():
        if read.javas[name].unreadable:
            continue
        if is_new or read.javas[name].owned_partitions:
            return f"Member {name} is one of Java's Kafka Streams and runs another topology: {text}."
    return ""


def _view(
    generation: int,
    read: list[tuple[Joined, ClassicSubscription]],
    unreadable: Mapping[str, str],
    memory: Memory,
    leader_id: str,
) -> View:
    certain = {each.member_id for each, _ in read if generation == FIRST_GENERATION or each.member_id == leader_id}
    members = [
        _participant(each, subscription, generation, memory, is_certain=each.member_id in certain)
        for each, subscription in read
    ]
    present = {subscription.topology_digest for _, subscription in read}
    wire = {**memory.texts}
    wire |= {
        subscription.topology_digest: subscription.topology
        for _, subscription in read
        if subscription.topology is not None
    }
    texts, invalid = _checked({digest: wire[digest] for digest in sorted(wire.keys() & present)})
    return View(generation, tuple(_without_outdated(members)), unreadable, texts, wire, invalid)


def tasks_of(tasks: WireTasks) -> Tasks:
    return Tasks(_ids(tasks.active), _ids(tasks.standby), _ids(tasks.warmup))


def wire_tasks_of(tasks: Tasks) -> WireTasks:
    return WireTasks(*(frozenset((t[0], t[1]) for t in role) for role in (tasks.active, tasks.standby, tasks.warmup)))


def _ids(tasks: Iterable[Task]) -> frozenset[TaskId]:
    return frozenset(TaskId(*task) for task in tasks)


def _checked(wire: Mapping[bytes, WireTopology]) -> tuple[dict[bytes, Topology], dict[bytes, str]]:
    texts: dict[bytes, Topology] = {}
    invalid: dict[bytes, str] = {}
    for digest, text in wire.items():
        try:
            topology = topology_of(text)
            check_topology(topology)
        except InvalidTopologyError as error:
            invalid[digest] = str(error)
        else:
            texts[digest] = topology
    return texts, invalid


def _participant(
    joined: Joined, subscription: ClassicSubscription, generation: int, memory: Memory, *, is_certain: bool
) -> Participant:
    echo = (
        subscription.echo if subscription.echo is not None and 0 <= subscription.echo.generation < generation else None
    )
    held = tasks_of(subscription.held)
    member = Participant(joined.member_id, joined.instance_id, subscription, held, echo, NO_TASKS)
    if joined.instance_id is None or (echo is not None and echo.generation == generation - 1):
        return _with_previous(member)
    if memory.generation == generation - 1:
        given = memory.given.get(joined.instance_id)
        if given is not None and _has_same_metadata(member, given) and given.was_in_doubt:
            return _with_previous(replace(member, is_in_doubt=True))
        if given is not None and (_has_same_metadata(member, given) or _may_have_resumed(member, given)):
            return _with_previous(_as_given(member, given, memory.generation))
        return _with_previous(member)
    return _with_previous(member if is_certain else replace(member, is_in_doubt=True))


def _has_same_metadata(member: Participant, given: Given) -> bool:
    return (member.member_id, member.subscription.unique) == (given.member_id, given.unique)


def _may_have_resumed(member: Participant, given: Given) -> bool:
    # A Java process without a state directory gets a new process id.
    is_java = given.is_java
    is_same = is_java or (member.process_id, member.version) == (given.process_id, given.version)
    return is_same and member.member_id != given.member_id and member.echo is None and not member.held


def _as_given(member: Participant, given: Given, generation: int) -> Participant:
    assignment = given.assignment
    more = tasks_of(assignment.tasks)
    active = member.held.active | more.active
    standby = (member.held.standby | more.standby) - active
    held = Tasks(active, standby, (member.held.warmup | more.warmup) - active - standby)
    echo = member.echo
    if assignment.group_epoch >= 0:
        echo = echo_of(assignment, generation)
    return replace(member, held=held, echo=echo, is_away=True)


def _with_previous(member: Participant) -> Participant:
    return member if member.echo is None else replace(member, previous=tasks_of(member.echo.target))


def _without_outdated(members: Iterable[Participant]) -> Iterable[Participant]:
    """Returns each member without the parts of its echo that a newer echo contradicts."""
    ordered = list(members)
    seen_active: set[TaskId] = set()
    seen: set[tuple[str, TaskId]] = set()
    kept: dict[str, Tasks] = {}
    for member in sorted(ordered, key=lambda m: (-m.last_generation, m.member_id)):
        mine: list[frozenset[TaskId]] = []
        for role in (member.previous.active, member.previous.standby, member.previous.warmup):
            free = {task for task in role if (member.process_id, task) not in seen}
            seen |= {(member.process_id, task) for task in free}
            mine.append(frozenset(free))
        active = mine[0] - seen_active
        seen_active |= active
        kept[member.member_id] = Tasks(active, mine[1], mine[2])
    return [replace(member, previous=kept[member.member_id]) for member in ordered]
