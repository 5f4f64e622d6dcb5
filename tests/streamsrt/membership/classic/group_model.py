"""A classic group to play with: its coordinator as Apache Kafka has it, and a cluster.

The members are the real machine (:mod:`streamsrt.membership.classic.session`), the leader is the real one
(:mod:`streamsrt.membership.classic.leading`), on the bytes that travel. What may go wrong is a method: the tests choose
when. ``Coordinator`` keeps the rules of ``GroupMetadata`` and ``GroupCoordinator``:

1. A generation begins when every member has joined, or when the rebalance timeout is over. Then dynamic members that did not
   join are out; static ones stay, with what they said last. They miss one generation at most: the timeout is as long as
   their session.
2. A follower that joins with the bytes that it joined with before begins no rebalance, a leader always does.
3. A static member that comes back with an empty id into a stable group gets the stored assignment, and begins none.
4. Assignments of the leader are stored once, for the generation that they were made for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.digest import topology_digest
from streamsrt.assignment.patterns import resolve
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import Topology, topology_of
from streamsrt.assignment.versions import versions_of
from streamsrt.membership.classic import leading
from streamsrt.membership.classic import session as machine
from streamsrt.membership.classic.leader_assignments import LeaderOutcome, LeaderSettings
from streamsrt.membership.classic.state import (
    Answered,
    CoordinatorFound,
    Led,
    RebalanceAnswered,
    RebalanceFailed,
    RejoinWanted,
    Session,
    Unfit,
)
from streamsrt.membership.classic.values import Echo, Joined
from streamsrt.membership.classic.view import Memory
from streamsrt.membership.session_events import OwnedReported, RequestFailed, Tick
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    Event,
    GroupMembership,
    Join,
    Leave,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    SetTaskOffsets,
    StatusChanged,
    Task,
    Tasks,
    TasksLost,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest
from tests.streamsrt.membership.classic.join_answers import join_answer

Wire = StreamsGroupHeartbeatRequest
END = 1_000_000
SESSION_MS = 45_000


def subtopology(text: str) -> Wire.Subtopology:
    """``"0: source=a,b changelog=c pattern=x.* sink=r repartition=r"``"""
    name, _, rest = text.partition(":")
    words: dict[str, list[str]] = {}
    for word in rest.split():
        key, _, values = word.partition("=")
        words[key] = values.split(",")

    def topics(key: str) -> list[Wire.TopicInfo]:
        return [Wire.TopicInfo(name=each, partitions=0, replication_factor=-1) for each in words.get(key, ())]

    return Wire.Subtopology(
        subtopology_id=name,
        source_topics=words.get("source", []),
        source_topic_regex=words.get("pattern", []),
        state_changelog_topics=topics("changelog"),
        repartition_sink_topics=words.get("sink", []),
        repartition_source_topics=topics("repartition"),
    )


def wire_topology(epoch: int, *lines: str) -> Wire.Topology:
    return Wire.Topology(epoch=epoch, subtopologies=[subtopology(line) for line in lines])


@dataclass(frozen=True)
class Version:
    """A version of the program."""

    wire: Wire.Topology
    digest: bytes
    value: Topology

    @classmethod
    def of(cls, epoch: int, *lines: str) -> Version:
        wire = wire_topology(epoch, *lines)
        return cls(wire, topology_digest(wire, {}), topology_of(wire))

    @property
    def epoch(self) -> int:
        return self.value.epoch


TEXTS = [
    ["0: source=t changelog=c", "1: source=u"],
    ["0: source=u", "1: source=t changelog=c"],
    ["0: source=u", "1: source=t changelog=c", "2: source=v sink=r", "3: repartition=r"],
    ["a: source=u,v changelog=c", "1: source=t"],
    ["a: source=u changelog=c", "1: source=t", "b: source=v changelog=d"],
    ["a: source=u,v changelog=c", "1: source=t"],
    ["a: source=u,v changelog=c", "1: pattern=t|x.*"],
]
OTHER_TEXTS = [[*lines, "z: source=w"] for lines in TEXTS]
VERSIONS = [
    [Version.of(epoch, *text) for text in pair] for epoch, pair in enumerate(zip(TEXTS, OTHER_TEXTS, strict=True))
]
SOURCES = {"t": 3, "u": 3, "v": 3, "w": 2, "x1": 2}


class Cluster:
    """The topics that there are. ``ends`` and ``committed``: offsets that are others than ``END``; None: nothing. ``left``:
    what is unread of topics that nobody's topology has."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.committed: dict[tuple[str, int], int | None] = {}
        self.left: dict[tuple[str, int], int] = {}
        self.topics = dict(SOURCES)
        self.refuses: set[str] = set()
        self.is_down = False

    @property
    def image(self) -> TopicsImage:
        return TopicsImage.of(*(TopicImage(n.encode().ljust(16), n, c) for n, c in sorted(self.topics.items())))

    def answer(self, effect: leading.Effect) -> leading.Event:
        match effect:
            case leading.ListTopics(names):
                if self.is_down:
                    return leading.TopicsUnknown("the cluster is down")
                return leading.TopicsListed(
                    TopicsImage({n: t for n, t in self.image.items() if names is None or n in names})
                )
            case leading.CreateTopics(specs):
                errors = {}
                for spec in specs:
                    if spec.name in self.refuses:
                        errors[spec.name] = (int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), "no")
                    else:
                        self.topics.setdefault(spec.name, spec.partitions)
                return leading.TopicsCreated(errors)
            case leading.EndOffsets(partitions, committed, written):
                found = {place: at for place in committed if (at := self.committed.get(place, END)) is not None}
                ends = {place: self.ends.get(place, END) for place in partitions | written}
                return leading.EndOffsetsListed(found | ends)
            case leading.CountUnread(partitions):
                return leading.UnreadCounted({place: n for place, n in self.left.items() if place in partitions})


@dataclass
class Entry:
    """A member as the coordinator has it."""

    instance_id: str | None
    metadata: bytes
    joined: bool = True
    has_missed: bool = False


@dataclass
class Coordinator:
    generation: int = 0
    phase: str = "empty"
    members: dict[str, Entry] = field(default_factory=dict)
    leader: str | None = None
    stored: dict[str, bytes] = field(default_factory=dict)
    ids: int = 0
    in_generation: set[str] = field(default_factory=set)
    promised: set[str] = field(default_factory=set)
    """Ids that were given with MEMBER_ID_REQUIRED."""
    answers: dict[str, tuple[int, str, list[Joined]]] = field(default_factory=dict)
    """What those are answered whose JoinGroup waited: the generation, its leader, its members."""

    def join(self, member_id: str, instance_id: str | None, metadata: bytes) -> tuple[str, int | None]:
        """The member's id, and the generation if the answer comes at once."""
        if not member_id:
            self.ids += 1
            member_id = f"m{self.ids:03d}"
            old = next((n for n, e in self.members.items() if instance_id and e.instance_id == instance_id), None)
            if old is not None:
                return member_id, self._replace(old, member_id, metadata)
            self.members[member_id] = Entry(instance_id, metadata)
            self._prepare(member_id)
            return member_id, None
        if member_id in self.promised:
            self.promised.discard(member_id)
            self.members[member_id] = Entry(instance_id, metadata)
            self._prepare(member_id)
            return member_id, None
        entry = self.members[member_id]
        same = entry.metadata == metadata
        if same and (self.phase == "completing" or (self.phase == "stable" and member_id != self.leader)):
            self.in_generation.add(member_id)
            return member_id, self.generation
        entry.metadata = metadata
        self._prepare(member_id)
        return member_id, None

    def _replace(self, old: str, new: str, metadata: bytes) -> int | None:
        entry = self.members.pop(old)
        self.members[new] = replace(entry, metadata=metadata)
        if old in self.stored:
            self.stored[new] = self.stored.pop(old)
        if self.leader == old:
            self.leader = new
        self.in_generation.discard(old)
        if self.phase == "stable":
            self.in_generation.add(new)
            return self.generation
        self._prepare(new)
        return None

    def _prepare(self, joining: str | None = None) -> None:
        if self.phase != "preparing":
            self.phase = "preparing"
            for entry in self.members.values():
                entry.joined = False
        if joining is not None:
            self.members[joining].joined = True

    def complete(self, *, timeout: bool) -> bool:
        """Begins the generation if everybody has joined, or if the wait is over."""
        if self.phase != "preparing":
            return False
        if not all(entry.joined for entry in self.members.values()):
            if not timeout:
                return False
            # The wait was as long as a session: a static member may have been heard once meanwhile, not twice.
            gone = [n for n, e in self.members.items() if not e.joined and (e.instance_id is None or e.has_missed)]
            for name in gone:
                self.remove(name, prepare=False)
        if not any(entry.joined for entry in self.members.values()):
            return False
        for entry in self.members.values():
            entry.has_missed = not entry.joined
        self.generation += 1
        self.in_generation = {name for name, entry in self.members.items() if entry.joined}
        if self.leader not in self.in_generation:
            self.leader = min(self.in_generation)
        self.phase = "completing"
        self.stored = {}
        everybody = [Joined(name, entry.instance_id, entry.metadata) for name, entry in self.members.items()]
        for name in self.in_generation:
            self.answers[name] = (self.generation, self.leader, everybody)
        return True

    def remove(self, member_id: str, *, prepare: bool = True) -> None:
        self.members.pop(member_id, None)
        self.stored.pop(member_id, None)
        self.answers.pop(member_id, None)
        self.in_generation.discard(member_id)
        if self.leader == member_id:
            self.leader = None
        if not self.members:
            self.phase = "empty"
        elif prepare:
            self._prepare()

    def sync(self, member_id: str, generation: int, assignments: Mapping[str, bytes] | None) -> bytes | int | None:
        """The assignment, an error code, or None while the leader's is awaited."""
        if member_id not in self.members:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            return int(ErrorCode.ILLEGAL_GENERATION)
        if self.phase == "preparing":
            return int(ErrorCode.REBALANCE_IN_PROGRESS)
        if assignments is not None and self.phase == "completing" and member_id == self.leader:
            self.stored = {name: assignments.get(name, b"") for name in self.members}
            self.phase = "stable"
        return self.stored.get(member_id, b"") if self.phase == "stable" else None

    def heartbeat(self, member_id: str, generation: int) -> int:
        if member_id not in self.members:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation != self.generation:
            return int(ErrorCode.ILLEGAL_GENERATION)
        return int(ErrorCode.REBALANCE_IN_PROGRESS) if self.phase == "preparing" else 0


class Player:
    """A session with its network and its processing thread."""

    def __init__(self, name: str, process: str, version: Version, instance_id: str | None) -> None:
        self.name = name
        self.process = process
        self.version = version
        self.instance_id = instance_id
        self.memory = Memory(texts={version.digest: version.wire})
        self.session = Session(
            membership=GroupMembership(
                group_id="app",
                member_id="",
                process_id=f"00000000-0000-0000-0000-0000000000{process}",
                topology=version.wire,
                instance_id=instance_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=10**9,
            ),
            digest=version.digest,
        )
        self.open = NOTHING
        self.warm: dict[Task, int] = {}
        self.opened_cold: set[Task] = set()
        """Tasks that became active here without their state."""
        self.events: list[Event] = []
        self.seen = 0
        self.on_group: Any = None
        self.on_rebalance: Any = None
        self.is_waiting = False
        self.waits_as = ""
        self.wants = False
        """Whether it is to join without a reason."""

    @property
    def member_id(self) -> str:
        return self.session.member_id

    @property
    def told(self) -> Tasks:
        return self.session.assigned

    @property
    def echo(self) -> Echo | None:
        return self.session.echo


_CODES = {
    "StreamsInvalidTopologyError": 130,
    "StreamsInvalidTopologyEpochError": 131,
    "StreamsTopologyFencedError": 132,
}


def _all(tasks: Tasks) -> frozenset[Task]:
    return tasks.active | tasks.standby | tasks.warmup


class GroupModel:
    """Players, coordinator and cluster, and the steps that they can take."""

    def __init__(self, *, standbys: int = 0, warmups: int = 2, join_version: int = 9) -> None:
        self.join_version = join_version
        self.settings = LeaderSettings(
            group_id="app", session_timeout_ms=SESSION_MS, num_standby_replicas=standbys, num_warmup_replicas=warmups
        )
        self.cluster = Cluster()
        self.broker = Coordinator()
        self.players: dict[str, Player] = {}
        self.dead: list[str] = []
        self.numbers = 0
        self.now_ms = 1_000_000
        self.generations = 0
        self.refusals: list[tuple[str, int, int]] = []

    # What players do

    def start(self, version: Version, process: str, instance_id: str | None = None) -> Player:
        self.numbers += 1
        player = Player(f"n{self.numbers}", process, version, instance_id)
        self.players[player.name] = player
        self.feed(player, Join())
        return player

    def kill(self, player: Player) -> None:
        """``kill -9``: the broker does not know."""
        del self.players[player.name]
        self.dead += {name for name in (player.member_id, player.waits_as) if name}

    def session_ends(self, member_id: str) -> None:
        if member_id in self.broker.members:
            self.broker.remove(member_id)

    def leave(self, player: Player) -> None:
        """It stops at once, and says so."""
        del self.players[player.name]
        for name in (player.member_id, player.waits_as):
            self.session_ends(name)

    def act(self, player: Player, *, lost: bool = False) -> bool:
        self.now_ms += 200
        if player.wants:
            player.wants = False
            self.feed(player, RejoinWanted("for nothing"))
        before = player.session
        if player.on_rebalance is not None:
            self._rebalance_lane(player, lost=lost)
        elif player.on_group is not None:
            self._group_lane(player, lost=lost)
        if player.name in self.players:
            self.feed(player, Tick())
        return _settled_part(before) != _settled_part(player.session)

    def feed(self, player: Player, event: Any) -> None:
        step = machine.step(player.session, event, self.now_ms)
        player.session = step.session
        player.events += step.events
        if step.find_coordinator:
            self.feed(player, CoordinatorFound(self.join_version))
        if step.request is not None:
            player.on_group = step.request
        if step.rebalance_request is not None:
            player.on_rebalance, player.is_waiting = step.rebalance_request, False
        if step.lead is not None:
            outcome = self.lead(player, step.lead.generation, step.lead.members)
            generation = player.session.generation
            self.feed(player, Unfit(outcome.unfit) if outcome.unfit else Led(generation, outcome.assignments))

    # The network

    def _group_lane(self, player: Player, *, lost: bool) -> None:
        request, player.on_group = player.on_group, None
        if lost:
            self.feed(player, RequestFailed("lost"))
        elif isinstance(request, types.LeaveGroupRequest):
            for entry in request.members:
                self.session_ends(entry.member_id)
            self.feed(player, Answered(types.LeaveGroupResponse()))
        else:
            code = self.broker.heartbeat(request.member_id, request.generation_id)
            if request.group_instance_id is not None and request.member_id not in self.broker.members:
                code = int(ErrorCode.UNKNOWN_MEMBER_ID)
            self.feed(player, Answered(types.HeartbeatResponse(error_code=code)))

    def _rebalance_lane(self, player: Player, *, lost: bool) -> None:
        request = player.on_rebalance
        answer = self._join(player, request) if isinstance(request, types.JoinGroupRequest) else self._synced(request)
        if answer is None:
            return
        player.on_rebalance = None
        self.feed(player, RebalanceFailed("lost") if lost else RebalanceAnswered(answer))

    def _join(self, player: Player, request: types.JoinGroupRequest) -> types.JoinGroupResponse | None:
        broker, name = self.broker, request.member_id
        response = types.JoinGroupResponse
        if not player.is_waiting:
            if not name and request.group_instance_id is None:
                broker.ids += 1
                broker.promised.add(f"m{broker.ids:03d}")
                return response(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{broker.ids:03d}")
            if name and name not in broker.members and name not in broker.promised:
                return response(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            metadata = self.metadata_of(request)
            leader = broker.leader
            name, generation = broker.join(name, request.group_instance_id, metadata)
            player.waits_as = name
            if generation is not None:
                came_back = not request.member_id and broker.leader == name
                if came_back and self.join_version < 9:
                    # Before KIP-814 a leader that comes back is told its old id.
                    return self.answer(name, generation, leader or "", [])
                members = [Joined(n, e.instance_id, e.metadata) for n, e in broker.members.items()]
                return self.answer(name, generation, broker.leader or "", members, skips=came_back)
            broker.answers.pop(name, None)
            player.is_waiting = True
            return None
        name = player.waits_as
        if name not in broker.members:
            return response(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        answer = broker.answers.pop(name, None)
        return None if answer is None else self.answer(name, *answer)

    def metadata_of(self, request: types.JoinGroupRequest) -> bytes:
        """What the coordinator keeps of it."""
        return bytes(request.protocols[0].metadata)

    def answer(
        self, name: str, generation: int, leader: str, members: list[Joined], *, skips: bool = False
    ) -> types.JoinGroupResponse:
        return join_answer(name, generation, leader, members, skips=skips)

    def _synced(self, request: types.SyncGroupRequest) -> types.SyncGroupResponse | None:
        assignments = {entry.member_id: bytes(entry.assignment) for entry in request.assignments}
        answer = self.broker.sync(request.member_id, request.generation_id, assignments or None)
        if answer is None:
            return None
        if isinstance(answer, int):
            return types.SyncGroupResponse(error_code=answer)
        return types.SyncGroupResponse(assignment=answer)

    # The thread

    def thread_acts(self, player: Player, random: Random) -> bool:
        heard = bool(player.events)
        if heard:
            self._hears(player, player.events.pop(0))
        if player.name not in self.players:
            return True
        moved = False
        for task in sorted(player.open.standby | player.open.warmup):
            if player.warm.get(task, 0) < END:
                player.warm[task] = player.warm.get(task, 0) + random.randrange(END // 2) + 1
                moved = True
        if moved:
            offsets = {task: min(player.warm.get(task, 0), END) for task in player.open.standby | player.open.warmup}
            self.feed(player, SetTaskOffsets(offsets, dict.fromkeys(offsets, END)))
        return heard or moved

    def _hears(self, player: Player, event: Event) -> None:
        player.seen += 1
        match event:
            case AssignmentChanged(tasks):
                self._opens(player, tasks)
            case TasksLost() | ReleaseTasks():
                self._opens(player, NOTHING)
            case StatusChanged(statuses) if any(s.code is StatusCode.SHUTDOWN_APPLICATION for s in statuses):
                self.feed(player, Leave(remain=True))
            case LeftGroup():
                del self.players[player.name]
            case MembershipFailed(error):
                code = _CODES[type(error).__name__]
                self.refusals.append((player.name, player.version.epoch, code))
                self.leave(player)

    def _opens(self, player: Player, tasks: Tasks) -> None:
        new = tasks.active - player.open.active
        player.opened_cold |= {
            task for task in new if player.warm.get(task, 0) < END - self.settings.acceptable_recovery_lag
        }
        player.open = tasks
        for task in [t for t in player.warm if t not in tasks.standby | tasks.warmup]:
            del player.warm[task]
        self.feed(player, OwnedReported(tasks, player.seen))

    def lead(self, player: Player, generation: int, joined: Sequence[Joined]) -> LeaderOutcome:
        self.generations += 1
        step = leading.begin(
            generation,
            joined,
            memory=player.memory,
            settings=self.settings,
            leader_id=player.member_id,
            now_ms=self.now_ms,
        )
        while step.outcome is None:
            assert step.effect is not None
            step = leading.step(step.leading, self.cluster.answer(step.effect), self.now_ms)
        player.memory = step.outcome.memory
        return step.outcome

    # Invariants

    def in_group(self) -> Iterator[Player]:
        """Those whose commits the broker takes: who was thrown out runs on without knowing, and is refused."""
        for player in self.players.values():
            if player.member_id in self.broker.members:
                yield player

    def check(self) -> None:
        readers: dict[tuple[str, int], tuple[str, Task]] = {}
        in_process: dict[tuple[str, Task], str] = {}
        parts = {
            v.digest: {p.id: p for p in resolve(v.value, self.cluster.image).topology.subtopologies}
            for pair in VERSIONS
            for v in pair
        }
        for player in self.in_group():
            for task in player.open.active:
                part = parts[player.version.digest][task[0]]
                for name in {*part.input_topics, *(topic.name for topic in part.changelogs)}:
                    other = readers.setdefault((name, task[1]), (player.name, task))
                    assert other == (player.name, task), f"{name}-{task[1]}: {other} and {(player.name, task)}"
            for task in _all(player.open):
                owner = in_process.setdefault((player.process, task), player.name)
                assert owner == player.name, f"{task} twice in process {player.process}: {owner}, {player.name}"

    def calm(self, random: Random, generations_max: int = 60) -> int:
        """Nothing goes wrong any more: runs until nothing happens. How many generations that took."""
        before = self.generations
        for member_id in self.dead:
            self.session_ends(member_id)
        self.dead.clear()
        self.cluster.is_down = False
        self.cluster.refuses.clear()
        quiet = 0
        while quiet < 30:
            moved = False
            for player in list(self.players.values()):
                if player.name in self.players:
                    moved |= self.act(player)
                    moved |= self.thread_acts(player, random)
                    self.check()
            moved |= self.broker.complete(timeout=False)
            self.now_ms += 3_000
            quiet = 0 if moved else quiet + 1
            taken = self.generations - before
            assert taken <= generations_max, f"no end after {taken} generations: {self.describe()}"
        return self.generations - before

    def finish(self, random: Random) -> None:
        """The end of a life: it calms down, everything runs that can, and a generation without a reason moves nothing."""
        self.calm(random)
        self.check_complete()
        told = {name: player.told for name, player in self.players.items()}
        if self.players:
            next(iter(self.players.values())).wants = True
        self.calm(random)
        assert told == {name: player.told for name, player in self.players.items()}, f"moved:\n{self.describe()}"
        self.check_complete()

    def check_complete(self) -> None:
        members = list(self.players.values())
        if not members:
            return
        echoes = {(p.echo.generation, p.echo.group_epoch, p.echo.group_digest) for p in members if p.echo is not None}
        assert len(echoes) == 1, (echoes, self.describe())
        ((_, epoch, digest),) = echoes
        current = [p for p in members if p.version.digest == digest]
        if not current:
            # What nobody runs any more is back at the newest of the older versions.
            older = [p for p in members if p.version.epoch < epoch]
            current = [p for p in older if p.version.epoch == max(one.version.epoch for one in older)]
        if not current:
            return
        configuration = configure(current[0].version.value, self.cluster.image)
        assert configuration.is_ready, configuration.problem
        missing = self._not_running(configuration, members)
        assert not missing, (missing, self.describe())
        warming = {task for player in members for task in player.open.warmup}
        assert not warming, (warming, self.describe())

    @staticmethod
    def _not_running(configuration: Configuration, members: list[Player]) -> set[str]:
        """Partitions of subtopologies of the group's version that neither it runs nor an older one instead."""
        topology = configuration.topology
        older = {p.version.value for p in members if p.version.epoch < topology.epoch}
        versions = versions_of(topology, tuple(sorted(older, key=lambda one: -one.epoch)))
        running = {
            (topology.epoch if versions.is_of_lead(p.version.epoch, task[0]) else p.version.epoch, task)
            for p in members
            for task in p.open.active
        }
        instead = {
            name: [(epoch, names) for epoch, names in bundle.ids.items() if epoch != topology.epoch]
            for bundle in versions.bundles
            for name in bundle.ids.get(topology.epoch, ())
        }

        def has(epoch: int, task: Task) -> bool:
            is_same = versions.is_of_lead(epoch, task[0])
            return (topology.epoch if is_same else epoch, task) in running

        return {
            f"{name}_{partition}"
            for name, count in configuration.task_counts.items()
            for partition in range(count)
            if (topology.epoch, (name, partition)) not in running
            and not any(all(has(epoch, (n, partition)) for n in names) for epoch, names in instead.get(name, ()))
        }

    def describe(self) -> str:
        broker = self.broker
        joined = {name: entry.joined for name, entry in broker.members.items()}
        lines = [f"{broker.phase} generation {broker.generation} leader {broker.leader} joined {joined}"]
        for p in self.players.values():
            session = p.session
            echo = None if p.echo is None else (p.echo.generation, p.echo.group_epoch, _text(p.echo.target))
            lines.append(
                f"{p.name}={p.member_id} {p.process} epoch {p.version.epoch} {session.group.name} {session.tasks.name} "
                f"{session.generation} open {_text(p.open)} told {_text(p.told)} claimed {_text(session.claimed)} "
                f"echo {echo} {session.statuses}"
            )
        return "\n".join(lines)


def _text(tasks: Tasks) -> str:
    roles = (("A", tasks.active), ("S", tasks.standby), ("W", tasks.warmup))
    return " ".join(letter + ",".join(f"{s}_{p}" for s, p in sorted(role)) for letter, role in roles if role) or "-"


def _settled_part(session: Session) -> tuple[object, ...]:
    """What does not change while nothing happens but heartbeats."""
    return (
        session.group,
        session.tasks,
        session.generation,
        session.rejoin,
        session.join,
        session.assigned,
        session.owned,
    )
