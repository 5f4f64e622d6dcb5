"""A classic group to play with: its coordinator as Apache Kafka has it, members that do as the design says, and a cluster.

The leader is the real one (:mod:`streamsrt.membership.classic.leading`), on real bytes. What may go wrong is a method: the
tests choose when. ``Coordinator`` keeps the rules of ``GroupMetadata`` and ``GroupCoordinator``:

1. A generation begins when every member has joined, or when the rebalance timeout is over. Then dynamic members that did not
   join are out; static ones stay, with what they said last.
2. A follower that joins with the bytes that it joined with before begins no rebalance, a leader always does.
3. A static member that comes back with an empty id into a stable group gets the stored assignment, and begins none.
4. Assignments of the leader are stored once, for the generation that they were made for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from streamsrt.assignment.configuration import configure
from streamsrt.assignment.patterns import resolve
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import Topology, topology_of
from streamsrt.membership.classic import leading
from streamsrt.membership.classic.layout import decode_assignment, encode_subscription, topology_digest
from streamsrt.membership.classic.telling import LeaderSettings, Outcome
from streamsrt.membership.classic.values import ClassicAssignment, ClassicSubscription, Echo
from streamsrt.membership.classic.view import Joined, Memory
from streamsrt.membership.values import NOTHING, Task, Tasks
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

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
    """The topics that there are."""

    def __init__(self) -> None:
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
            case leading.EndOffsets(partitions):
                return leading.EndOffsetsListed(dict.fromkeys(partitions, END))


@dataclass
class Entry:
    """A member as the coordinator has it."""

    instance_id: str | None
    metadata: bytes
    joined: bool = True


@dataclass
class Coordinator:
    generation: int = 0
    phase: str = "empty"
    members: dict[str, Entry] = field(default_factory=dict)
    leader: str | None = None
    stored: dict[str, bytes] = field(default_factory=dict)
    ids: int = 0
    in_generation: set[str] = field(default_factory=set)

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
            for name in [n for n, e in self.members.items() if not e.joined and e.instance_id is None]:
                self.remove(name, prepare=False)
        if not any(entry.joined for entry in self.members.values()):
            return False
        self.generation += 1
        self.in_generation = {name for name, entry in self.members.items() if entry.joined}
        if self.leader not in self.in_generation:
            self.leader = min(self.in_generation)
        self.phase = "completing"
        self.stored = {}
        return True

    def remove(self, member_id: str, *, prepare: bool = True) -> None:
        self.members.pop(member_id, None)
        self.stored.pop(member_id, None)
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


@dataclass
class Player:
    """A member: its own machine in short, and its processing thread."""

    name: str
    process: str
    version: Version
    instance_id: str | None
    memory: Memory
    member_id: str = ""
    generation: int = -1
    phase: str = "out"
    told: Tasks = NOTHING
    open: Tasks = NOTHING
    inbox: list[Tasks] = field(default_factory=list)
    echo: Echo | None = None
    claimed: Tasks = NOTHING
    bytes_sent: bytes = b""
    unique: int = 0
    synced: int = -1
    missed: bool = False
    wants: bool = True
    sends_topology: bool = False
    rejoin_at_ms: int | None = None
    outcome: Outcome | None = None
    warm: dict[Task, int] = field(default_factory=dict)
    refused: int = 0
    statuses: tuple[Any, ...] = ()
    must_join_again: bool = False

    @property
    def held(self) -> Tasks:
        told = [self.open, self.told, *self.inbox]
        active = frozenset(task for tasks in told for task in tasks.active)
        standby = frozenset(task for tasks in told for task in tasks.standby) - active
        warmup = frozenset(task for tasks in told for task in tasks.warmup) - active - standby
        return Tasks(active, standby, warmup)

    @property
    def must_confirm(self) -> bool:
        """Something that it claimed was not given, and nothing of that is held any more."""
        held = self.held
        gone = [
            (claimed - told, now)
            for claimed, told, now in (
                (self.claimed.active, self.told.active, held.active),
                (self.claimed.standby | self.claimed.warmup, _all(self.told), held.standby | held.warmup),
            )
        ]
        return any(lost for lost, _ in gone) and not any(lost & now for lost, now in gone)

    @property
    def process_id(self) -> str:
        return f"00000000-0000-0000-0000-0000000000{self.process}"

    def subscription(self) -> ClassicSubscription:
        passive = self.open.standby | self.open.warmup
        offsets = {task: min(self.warm.get(task, 0), END) for task in passive}
        return ClassicSubscription(
            process_id=self.process_id,
            topology_epoch=self.version.epoch,
            topology_digest=self.version.digest,
            unique=self.unique,
            generation_id=self.synced,
            topology=self.version.wire if self.sends_topology else None,
            held=self.held,
            echo=self.echo,
            offsets=offsets,
            end_offsets=dict.fromkeys(offsets, END),
            missed_sync=self.missed,
        )


def _all(tasks: Tasks) -> frozenset[Task]:
    return tasks.active | tasks.standby | tasks.warmup


class GroupModel:
    """Players, coordinator and cluster, and the steps that they can take."""

    def __init__(self, *, standbys: int = 0, warmups: int = 2) -> None:
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
        memory = Memory(texts={version.digest: version.wire})
        player = Player(f"n{self.numbers}", process, version, instance_id, memory)
        self.players[player.name] = player
        return player

    def kill(self, player: Player) -> None:
        del self.players[player.name]
        if player.member_id:
            self.dead.append(player.member_id)

    def restart_static(self, player: Player, version: Version, process: str) -> Player:
        """``kill -9``, and the same instance id comes back."""
        self.kill(player)
        return self.start(version, process, player.instance_id)

    def session_ends(self, member_id: str) -> None:
        if member_id in self.broker.members:
            self.broker.remove(member_id)

    def leave(self, player: Player) -> None:
        player.open = player.told = NOTHING
        del self.players[player.name]
        if player.member_id in self.broker.members:
            self.broker.remove(player.member_id)

    def act(self, player: Player, *, lost: bool = False) -> bool:
        """The next thing that the network half of a member does; whether it did anything. ``lost``: the answer is lost."""
        self.now_ms += 10
        if player.phase == "out" or (player.phase == "in" and self._joins(player)):
            return self._send_join(player, again=False, lost=lost)
        if player.phase == "joining":
            return self._await_generation(player, lost=lost)
        if player.phase == "syncing":
            return self._sync(player, lost=lost)
        return self._heartbeat(player)

    def _joins(self, player: Player) -> bool:
        due = player.rejoin_at_ms is not None and self.now_ms >= player.rejoin_at_ms
        caught_up = any(player.warm.get(task, 0) >= END for task in player.open.warmup & player.told.warmup)
        return player.wants or due or player.must_confirm or player.must_join_again or caught_up

    def _send_join(self, player: Player, *, again: bool, lost: bool) -> bool:
        if not again:
            player.unique += 1
            player.claimed = player.held
            player.bytes_sent = encode_subscription(player.subscription())
            player.wants = player.must_join_again = False
            player.rejoin_at_ms = None
        if player.member_id and player.member_id not in self.broker.members:
            self._lose(player)
            return True
        fresh = not player.member_id
        member_id, generation = self.broker.join(player.member_id, player.instance_id, player.bytes_sent)
        if fresh and lost and player.instance_id is not None:
            # It never hears of its id, and asks for another one.
            return True
        player.phase = "joining"
        player.member_id = member_id
        if generation is not None and not lost:
            self._joined(player, generation, came_back=fresh)
        return True

    def _await_generation(self, player: Player, *, lost: bool) -> bool:
        if player.member_id not in self.broker.members:
            self._lose(player)
            return True
        if self.broker.phase == "preparing" and not self.broker.members[player.member_id].joined:
            return self._send_join(player, again=True, lost=lost)
        if self.broker.phase == "preparing":
            return False
        if lost and player.generation < 0 and player.instance_id is not None:
            player.member_id, player.phase = "", "out"
            return True
        if lost or player.member_id not in self.broker.in_generation:
            return self._send_join(player, again=True, lost=True)
        self._joined(player, self.broker.generation, came_back=False)
        return True

    def _joined(self, player: Player, generation: int, *, came_back: bool) -> None:
        player.generation = generation
        player.phase = "syncing"
        player.outcome = None
        player.must_join_again = came_back
        if self.broker.leader == player.member_id and self.broker.phase == "completing":
            player.outcome = self._lead(player)

    def _lead(self, player: Player) -> Outcome:
        self.generations += 1
        joined = [Joined(n, e.instance_id, e.metadata) for n, e in self.broker.members.items()]
        step = leading.begin(
            player.generation,
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

    def _sync(self, player: Player, *, lost: bool) -> bool:
        assignments = None if player.outcome is None else player.outcome.assignments
        answer = self.broker.sync(player.member_id, player.generation, assignments)
        if answer is None:
            return False
        if lost:
            return True
        if isinstance(answer, int):
            if answer == ErrorCode.UNKNOWN_MEMBER_ID:
                self._lose(player)
            else:
                player.missed = True
                player.wants = True
                player.phase = "in"
                if answer == ErrorCode.ILLEGAL_GENERATION and player.instance_id is not None:
                    self._give_up(player)
            return True
        if not answer:
            player.missed = player.wants = True
            player.phase = "in"
            return True
        told = decode_assignment(answer)
        assert isinstance(told, ClassicAssignment), told
        self._told(player, told)
        return True

    def _told(self, player: Player, told: ClassicAssignment) -> None:
        player.phase = "in"
        player.missed = False
        is_meant = told.process_id == player.process_id and told.group_digest == player.version.digest
        if player.must_join_again and player.echo is None and not is_meant:
            # A static member that came back: what is stored is another process's.
            if told.group_epoch > player.version.epoch:
                self._refuse(player, int(ErrorCode.STREAMS_TOPOLOGY_FENCED))
            return
        player.must_join_again = False
        player.synced = player.generation
        if told.error_code:
            self._refuse(player, told.error_code)
            return
        if told.group_epoch >= 0:
            player.echo = Echo(told.generation, told.group_epoch, told.group_digest, told.target)
        if told.tasks != player.told:
            player.inbox.append(told.tasks)
        player.told = told.tasks
        player.statuses = told.statuses
        player.rejoin_at_ms = None if told.rejoin_after_ms is None else self.now_ms + told.rejoin_after_ms
        player.sends_topology = told.send_topology
        player.wants = player.wants or told.send_topology

    def _refuse(self, player: Player, code: int) -> None:
        player.refused = code
        self.refusals.append((player.name, player.version.epoch, code))
        self.leave(player)

    def _heartbeat(self, player: Player) -> bool:
        code = self.broker.heartbeat(player.member_id, player.generation)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._lose(player)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            player.wants = True
        elif code == ErrorCode.ILLEGAL_GENERATION:
            player.wants = True
            if player.instance_id is not None:
                self._give_up(player)
        return bool(code)

    def _lose(self, player: Player) -> None:
        self._give_up(player)
        player.member_id = ""
        player.phase = "out"
        player.generation = -1

    def _give_up(self, player: Player) -> None:
        """TasksLost."""
        player.open = player.told = player.claimed = NOTHING
        player.inbox.clear()
        player.echo = None
        player.wants = True
        player.must_join_again = False

    # What threads do

    def thread_acts(self, player: Player, random: Random) -> bool:
        """Closes and opens what the oldest assignment that it has not heard of says."""
        moved = False
        if player.inbox:
            player.open = player.inbox.pop(0)
            moved = True
        for task in player.open.standby | player.open.warmup:
            if player.warm.get(task, 0) < END:
                player.warm[task] = player.warm.get(task, 0) + random.randrange(END // 2) + 1
                moved = True
        for task in [t for t in player.warm if t not in _all(player.open)]:
            del player.warm[task]
        return moved

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
        assert told == {name: player.told for name, player in self.players.items()}, "a quiet group moved tasks"
        self.check_complete()

    def check_complete(self) -> None:
        members = list(self.players.values())
        if not members:
            return
        echoes = {(p.echo.generation, p.echo.group_epoch, p.echo.group_digest) for p in members if p.echo is not None}
        assert len(echoes) == 1, (echoes, self.describe())
        ((_, _, digest),) = echoes
        current = [p for p in members if p.version.digest == digest]
        if not current:
            return
        configuration = configure(current[0].version.value, self.cluster.image)
        assert configuration.is_ready, configuration.problem
        wanted = {(name, p) for name, count in configuration.task_counts.items() for p in range(count)}
        running = {task for player in members for task in player.open.active}
        assert running == wanted, (sorted(wanted ^ running), self.describe())
        warming = {task for player in members for task in player.open.warmup}
        assert not warming, (warming, self.describe())

    def describe(self) -> str:
        lines = [f"{self.broker.phase} generation {self.broker.generation} leader {self.broker.leader}"]
        for p in self.players.values():
            lines.append(
                f"{p.name}={p.member_id} {p.process} epoch {p.version.epoch} {p.phase} generation {p.generation} "
                f"wants {p.wants} open {_text(p.open)} told {_text(p.told)} claimed {_text(p.claimed)} echo "
                f"{None if p.echo is None else (p.echo.generation, p.echo.group_epoch, _text(p.echo.target))} {p.statuses}"
            )
        return "\n".join(lines)


def _text(tasks: Tasks) -> str:
    roles = (("A", tasks.active), ("S", tasks.standby), ("W", tasks.warmup))
    return " ".join(letter + ",".join(f"{s}_{p}" for s, p in sorted(role)) for letter, role in roles if role) or "-"
