"""A classic group with members of Java's: the coordinator chooses the layout that all members have.

``JavaPlayer`` has the rules of a consumer with KIP-429's cooperative rebalancing and of ``StreamsPartitionAssignor``, as far
as the others can see them:

1. It joins with what it owns, in Java's layout alone; it goes on with that until it has an assignment.
2. From an assignment it lets go of what is not in it, opens what is new, and joins again if it let go of anything, or if it
   is told to.
3. As a leader it gives nobody what another member owns; whoever is to get that later is told to join again.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from random import Random
from uuid import UUID

from streamsrt.membership.classic import leading
from streamsrt.membership.classic.layout import with_consumer_fields
from streamsrt.membership.classic.leader_assignments import LeaderOutcome
from streamsrt.membership.classic.stream_layout import (
    STREAM_PROTOCOL,
    Hosts,
    JavaAssignment,
    UserDataVersions,
    decode_stream_assignment,
    encode_stream_assignment,
)
from streamsrt.membership.classic.values import PROTOCOL_NAME, ClassicAssignment, ClassicSubscription, Joined
from streamsrt.membership.values import Task, Tasks, TopicPartition
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_consumer_protocol
from streamsrt.wire.streams_user_data import (
    RUNNING,
    SubscriptionInfo,
    decode_assignment_info,
    decode_subscription_info,
    encode_assignment_info,
    encode_subscription_info,
)
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.streamsrt.membership.classic.group_model import GroupModel, Player, Version
from tests.streamsrt.membership.classic.join_answers import join_answer

NOT_PART = ""


class JavaPlayer:
    """``phase``: out, joining, syncing or in."""

    def __init__(self, name: str, version: Version, number: int, newest_version: int) -> None:
        self.name = name
        self.version = version
        self.process = str(UUID(int=number))
        self.newest_version = self.used_version = newest_version
        self.member_id = NOT_PART
        self.generation = -1
        self.synced = -1
        self.unique = 0
        self.phase = "out"
        self.open = Tasks()
        self.assignments: dict[str, bytes] | None = None
        self.error = 0
        self.wants = False
        """Whether it is to join again, which it does when everybody has had the assignment."""

    def topics_of(self, task: Task) -> list[str]:
        part = next(part for part in self.version.wire.subtopologies if part.subtopology_id == task[0])
        return [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]

    def metadata(self) -> bytes:
        self.unique = (self.unique + 1) % 128
        stateful = {part.subtopology_id for part in self.version.wire.subtopologies if part.state_changelog_topics}
        sums = dict.fromkeys(self.open.active, RUNNING) | dict.fromkeys(self.open.standby, 7)
        numbers = {(int(task[0]), task[1]): offset for task, offset in sums.items() if task[0] in stateful}
        info = SubscriptionInfo(
            version=self.used_version,
            newest_version=self.newest_version,
            process_id=self.process,
            offset_sums=numbers,
            unique=self.unique,
        )
        topics = {topic for part in self.version.wire.subtopologies for topic in part.source_topics}
        topics |= {topic.name for part in self.version.wire.subtopologies for topic in part.repartition_source_topics}
        owned = frozenset((topic, task[1]) for task in self.open.active for topic in self.topics_of(task))
        subscription = ClassicSubscription(
            process_id=self.process,
            topology_epoch=0,
            topology_digest=bytes(16),
            topics=frozenset(topics),
            owned_partitions=owned,
            # Before 3.2 it is not said.
            generation_id=self.synced if self.newest_version > 9 else -1,
        )
        return with_consumer_fields(subscription, encode_subscription_info(info))


class MixedModel(GroupModel):
    """``version``: what Java's members run."""

    def __init__(self, version: Version, *, standbys: int = 0, warmups: int = 2) -> None:
        super().__init__(standbys=standbys, warmups=warmups)
        self.version = version
        self.javas: dict[str, JavaPlayer] = {}
        self.led_by_java = 0
        self.protocol = PROTOCOL_NAME

    def start_java(self, newest_version: int = 11) -> JavaPlayer:
        self.numbers += 1
        player = JavaPlayer(f"java{self.numbers}", self.version, self.numbers, newest_version)
        self.javas[player.name] = player
        return player

    def stop_java(self, player: JavaPlayer, *, says_so: bool = True) -> None:
        del self.javas[player.name]
        if says_so:
            self.session_ends(player.member_id)
        else:
            self.dead.append(player.member_id)

    # The coordinator: what it keeps of a member is all of its layouts

    def metadata_of(self, request: types.JoinGroupRequest) -> bytes:
        return pickle.dumps({each.name: bytes(each.metadata) for each in request.protocols})

    def answer(
        self, name: str, generation: int, leader: str, members: list[Joined], *, skips: bool = False
    ) -> types.JoinGroupResponse:
        layouts = {each.member_id: pickle.loads(each.metadata) for each in members}
        if layouts:
            all_have = set[str].intersection(*(set(each) for each in layouts.values()))
            self.protocol = PROTOCOL_NAME if PROTOCOL_NAME in all_have else STREAM_PROTOCOL
        chosen = [Joined(m.member_id, m.instance_id, layouts[m.member_id][self.protocol]) for m in members]
        return join_answer(name, generation, leader, chosen, skips=skips, protocol_name=self.protocol)

    def lead(self, player: Player, generation: int, joined: Sequence[Joined]) -> LeaderOutcome:
        self.generations += 1
        step = leading.begin(
            generation,
            joined,
            memory=player.memory,
            settings=self.settings,
            leader_id=player.member_id,
            now_ms=self.now_ms,
            protocol_name=self.protocol,
        )
        while step.outcome is None:
            assert step.effect is not None
            step = leading.step(step.leading, self.cluster.answer(step.effect), self.now_ms)
        player.memory = step.outcome.memory
        return step.outcome

    # Java's members

    def java_acts(self, player: JavaPlayer) -> bool:
        before = (player.phase, player.generation, player.open)
        match player.phase:
            case "out":
                self._java_joins(player)
            case "joining":
                self._java_waits(player)
            case "syncing":
                self._java_syncs(player)
            case "in" if player.wants or self.broker.heartbeat(player.member_id, player.generation):
                self._java_joins(player)
        return before != (player.phase, player.generation, player.open)

    def _java_joins(self, player: JavaPlayer) -> None:
        broker, player.wants = self.broker, False
        if player.member_id and player.member_id not in broker.members:
            # All partitions are lost.
            player.member_id, player.open, player.synced = NOT_PART, Tasks(), -1
        metadata = pickle.dumps({STREAM_PROTOCOL: player.metadata()})
        player.member_id, generation = broker.join(player.member_id, None, metadata)
        broker.answers.pop(player.member_id, None)
        assert generation is None, "its number is another one each time"
        player.phase = "joining"

    def _java_waits(self, player: JavaPlayer) -> None:
        broker = self.broker
        if player.member_id not in broker.members:
            player.phase = "out"
            return
        answer = broker.answers.pop(player.member_id, None)
        if answer is None:
            return
        response = self.answer(player.member_id, *answer)
        player.generation, player.phase, player.assignments = response.generation_id, "syncing", None
        if response.leader == player.member_id:
            self.led_by_java += 1
            self.generations += 1
            player.assignments = self._assigned_by_java(player, response.members)

    def _java_syncs(self, player: JavaPlayer) -> None:
        given = self.broker.sync(player.member_id, player.generation, player.assignments)
        if given is None:
            return
        if isinstance(given, int):
            player.phase = "out"
            assert given in (
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
            return
        player.phase, player.synced = "in", player.generation
        told = decode_stream_assignment(given)
        assert isinstance(told, tuple), told
        own, java = told
        assert own is None, "Java's members get nothing but Java's words"
        self._take(player, java)

    def _take(self, player: JavaPlayer, told: JavaAssignment) -> None:
        assert told.info.version <= player.used_version, "it could not read that"
        assert {place for task, place in told.inputs() if task in told.tasks.active} == set(told.partitions)
        for (name, partition), (topic, number) in told.inputs():
            assert topic in player.topics_of((name, partition))
            assert partition == number
        version = min(told.info.common_version, player.newest_version)
        released = player.open.active - told.tasks.active
        player.wants = bool(released) or told.info.next_rebalance_ms == 0 or version != player.used_version
        player.used_version, player.error, player.open = version, told.info.error, told.tasks

    def _assigned_by_java(
        self, leader: JavaPlayer, members: Sequence[types.JoinGroupResponse.JoinGroupResponseMember]
    ) -> dict[str, bytes]:
        subscription = {m.member_id: _as_java_reads(bytes(m.metadata)) for m in members}
        owned = {name: self._tasks_of(leader, partitions) for name, (_, partitions) in subscription.items()}
        names = sorted(subscription)
        wanted: dict[str, set[Task]] = {name: set() for name in names}
        most = -(-len(self.all_tasks()) // len(names))
        left = []
        for task in self.all_tasks():
            owners = [name for name in names if task in owned[name] and len(wanted[name]) < most]
            if owners:
                wanted[owners[0]].add(task)
            else:
                left.append(task)
        for task in left:
            wanted[min(names, key=lambda name: (len(wanted[name]), name))].add(task)
        stateful = {int(p.subtopology_id) for p in leader.version.wire.subtopologies if p.state_changelog_topics}
        assert all(task[0] in stateful for info, _ in subscription.values() for task in info.offset_sums), (
            "its lag is unknown"
        )
        used = min(info.version for info, _ in subscription.values())
        common = min(leader.newest_version, *(info.newest_version for info, _ in subscription.values()))
        given: dict[str, bytes] = {}
        for name in names:
            others = set[Task]().union(*(owned[other] for other in names if other != name))
            now = frozenset(wanted[name] - others)
            places = {task: [(topic, task[1]) for topic in leader.topics_of(task)] for task in now}
            data = encode_stream_assignment(
                ClassicAssignment(generation=0, tasks=Tasks(now)),
                places,
                UserDataVersions(used, common),
                Hosts(),
                is_java=True,
            )
            given[name] = _joining_again(data) if wanted[name] & others else data
        return given

    def _tasks_of(self, leader: JavaPlayer, partitions: set[TopicPartition]) -> set[Task]:
        return {t for t in self.all_tasks() if any((topic, t[1]) in partitions for topic in leader.topics_of(t))}

    def all_tasks(self) -> list[Task]:
        counts = {name: image.partitions for name, image in self.cluster.image.items()}
        found = []
        for part in self.version.wire.subtopologies:
            topics = [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]
            found += [(part.subtopology_id, n) for n in range(max(counts.get(topic, 0) for topic in topics))]
        return sorted(found)

    # Everybody

    def check(self) -> None:
        super().check()
        readers: dict[tuple[str, int], str] = {}
        everybody = [*self.in_group(), *(j for j in self.javas.values() if j.member_id in self.broker.members)]
        for player in everybody:
            for task in player.open.active:
                other = readers.setdefault(task, player.name)
                assert other == player.name, f"{task}: {other} and {player.name}\n{self.describe()}"

    def round(self, random: Random, laziness: float = 0.0) -> bool:
        moved = False
        for player in list(self.players.values()):
            moved |= self.act(player)
            if player.name in self.players and random.random() >= laziness:
                moved |= self.thread_acts(player, random)
            self.check()
        for java in list(self.javas.values()):
            if random.random() >= laziness:
                moved |= self.java_acts(java)
                self.check()
        return self.broker.complete(timeout=False) or moved

    def settle(self, random: Random, rounds_max: int = 600) -> None:
        """Nothing goes wrong any more: all tasks run in the end."""
        for member_id in self.dead:
            self.session_ends(member_id)
        self.dead.clear()
        quiet = 0
        for _ in range(rounds_max):
            quiet = 0 if self.round(random) else quiet + 1
            self.now_ms += 3_000
            if quiet == 30:
                break
        assert quiet == 30, f"no end\n{self.describe()}"
        running = sorted(t for p in (*self.players.values(), *self.javas.values()) for t in p.open.active)
        assert running == (self.all_tasks() if self.players or self.javas else []), self.describe()
        if self.players or self.javas:
            assert self.protocol == (STREAM_PROTOCOL if self.javas else PROTOCOL_NAME)

    def describe(self) -> str:
        javas = [f"{j.name}={j.member_id} {j.phase} {j.generation} {j.open}" for j in self.javas.values()]
        return "\n".join([super().describe(), *javas])


def _as_java_reads(metadata: bytes) -> tuple[SubscriptionInfo, set[TopicPartition]]:
    outer = decode_consumer_protocol(ConsumerProtocolSubscription, metadata)
    info = decode_subscription_info(outer.user_data or b"")
    assert isinstance(info, SubscriptionInfo)
    return info, {(each.topic, number) for each in outer.owned_partitions for number in each.partitions}


def _joining_again(assignment: bytes) -> bytes:
    """The same, and to join again at once: 0 in the last eight bytes."""
    outer = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
    data = outer.user_data or b""
    assert encode_assignment_info(decode_assignment_info(data)) == data
    return assignment[: len(assignment) - 8] + bytes(8)
