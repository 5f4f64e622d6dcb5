"""Random lives of a group whose members roll between the classic and the consumer protocol: at no time do two of them use
one partition, and when nothing happens any more it settles, in the one protocol or the other.

Nobody is silent for long while this is checked; who is killed is out of the game.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.classic.state import ClassicGroup, GroupState
from coordinator.group.config import GroupConfig
from coordinator.group.consumer.describe import state_name
from coordinator.group.consumer.partitions import partition_set, wire_partitions
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import EventOutcome, Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription, Message
from tests.coordinator.group.memory_log import MemoryLog

GROUP = "app"
TOPIC = "t"
TOPIC_ID = b"t" * 16
REJOINS = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
NOTHING_SAID = frozenset({-1})
LOST = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


@dataclass
class Client:
    """A consumer of either protocol; ``owned`` is what it uses."""

    name: str
    protocol: str
    member_id: str = ""
    epoch: int = -1
    owned: frozenset[int] = frozenset()
    said: frozenset[int] = frozenset()
    joins: bool = True
    waits: bool = False
    answers: list[Any] = field(default_factory=list)

    @property
    def is_classic(self) -> bool:
        return self.protocol != "consumer"

    def lose_everything(self) -> None:
        self.owned, self.said, self.epoch, self.joins = frozenset(), frozenset(), -1, True


class RollingGroup(RuleBasedStateMachine):
    @initialize(cooperative=st.booleans(), partitions=st.integers(1, 7))
    def start(self, cooperative: bool, partitions: int) -> None:
        settings_of = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}
        self.config = GroupConfig.parse(settings_of)
        self.classic = "cooperative" if cooperative else "eager"
        self.partitions = partitions
        self.log = MemoryLog()
        self.now_ms = 1000
        self.shard = Shard(self.log, self.config, self.image())
        self.clients: dict[str, Client] = {}
        self.asked: dict[int, Client] = {}
        self.numbers = self.requests = 0

    def image(self) -> TopicsImage:
        return TopicsImage.of(TopicImage(TOPIC_ID, TOPIC, self.partitions))

    # What happens

    @rule(new=st.booleans())
    def join(self, new: bool) -> None:
        if len(self.clients) < 4:
            self.numbers += 1
            client = Client(f"c{self.numbers}", "consumer" if new else self.classic)
            client.member_id = f"id-{client.name}" if new else ""
            self.clients[client.name] = client
            self.act(client)

    @rule(data=st.data())
    def one_acts(self, data: st.DataObject) -> None:
        if self.clients:
            self.act(self.clients[data.draw(st.sampled_from(sorted(self.clients)))])

    @rule(backwards=st.booleans())
    def all_act(self, backwards: bool) -> None:
        for name in sorted(self.clients, reverse=backwards):
            self.act(self.clients[name])
            self.nobody_shares()

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        if not self.clients:
            return
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        if client.is_classic:
            entry = types.LeaveGroupRequest.MemberIdentity(member_id=client.member_id)
            self.send(client, types.LeaveGroupRequest(group_id=GROUP, members=[entry]), 5)
        elif client.epoch > 0:
            leaves = types.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=client.member_id, member_epoch=-1)
            self.send(client, leaves, 1)

    @rule()
    def topic_grows(self) -> None:
        if self.partitions < 9:
            self.partitions += 1
            self.shard.set_topics(self.image(), self.now_ms)

    @rule()
    def restart(self) -> None:
        """Requests that waited get no answer: their connections are gone, and the clients ask again."""
        self.shard = Shard(self.log, self.config, self.image())
        self.shard.load(self.now_ms)
        self.asked.clear()
        for client in self.clients.values():
            if client.waits:
                client.waits, client.joins = False, True

    @rule()
    def the_next_append_fails(self) -> None:
        self.log.fail_next = 1

    # How a client behaves

    def act(self, client: Client) -> None:
        self.now_ms += 20
        self.take(self.shard.tick(self.now_ms))
        if client.waits:
            return
        if not client.is_classic:
            self.beat(client)
        elif client.joins:
            self.join_group(client)
        else:
            heartbeat = types.HeartbeatRequest(group_id=GROUP, generation_id=client.epoch, member_id=client.member_id)
            self.send(client, heartbeat, 4)

    def beat(self, client: Client) -> None:
        joins = client.epoch <= 0
        kind = types.ConsumerGroupHeartbeatRequest
        request = kind(group_id=GROUP, member_id=client.member_id, member_epoch=max(client.epoch, 0))
        if joins:
            client.owned = client.said = frozenset()
            request.rebalance_timeout_ms, request.subscribed_topic_names = 60_000, [TOPIC]
        if joins or client.owned != client.said:
            owned = frozenset((TOPIC_ID, number) for number in client.owned)
            request.topic_partitions = wire_partitions(kind.TopicPartitions, owned)  # type: ignore[arg-type]
            client.said = client.owned
        self.send(client, request, 1)

    def join_group(self, client: Client) -> None:
        if client.protocol == "eager":
            client.owned = frozenset()
        kind = ConsumerProtocolSubscription.TopicPartition
        subscription = ConsumerProtocolSubscription(
            topics=[TOPIC],
            owned_partitions=[kind(topic=TOPIC, partitions=sorted(client.owned))],
            generation_id=client.epoch,
        )
        protocol = types.JoinGroupRequest.JoinGroupRequestProtocol
        request = types.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=client.member_id,
            protocol_type="consumer",
            protocols=[protocol(name=self.classic, metadata=encode_record_value(subscription, 3))],
        )
        self.send(client, request, 9)

    def send(self, client: Client, message: Message, version: int) -> None:
        self.requests += 1
        number = self.requests
        self.asked[number] = client
        client.waits = True
        context = RequestContext(number, client.name, "/127.0.0.1", version, unique=f"{client.name}-{number}")
        self.take(self.shard.execute(GroupRequest(context, message), self.now_ms))

    def take(self, outcome: EventOutcome) -> None:
        for number, message in outcome.replies:
            client = self.asked.pop(number, None)
            if client is not None and self.clients.get(client.name) is client:
                client.waits = False
                self.answered(client, message)

    def answered(self, client: Client, message: Any) -> None:
        if isinstance(message, types.ConsumerGroupHeartbeatResponse):
            self.heard(client, message)
        elif isinstance(message, types.JoinGroupResponse):
            self.joined(client, message)
        elif isinstance(message, types.SyncGroupResponse):
            self.synced(client, message)
        elif message.error_code in LOST:
            self.lost(client, message.error_code)
        elif message.error_code in REJOINS:
            client.joins = True

    def heard(self, client: Client, message: types.ConsumerGroupHeartbeatResponse) -> None:
        if message.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            client.said = NOTHING_SAID
            return
        if message.error_code:
            assert message.error_code in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}, message
            client.lose_everything()
            return
        client.epoch = message.member_epoch
        if message.assignment is not None:
            client.owned = frozenset(each.partition for each in partition_set(message.assignment.topic_partitions))

    def joined(self, client: Client, message: types.JoinGroupResponse) -> None:
        if message.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = message.member_id
        elif message.error_code in LOST:
            self.lost(client, message.error_code)
        elif message.error_code in REJOINS:
            client.joins = True
        else:
            assert not message.error_code, message
            client.member_id, client.epoch = message.member_id, message.generation_id
            client.joins = False
            request = types.SyncGroupRequest(
                group_id=GROUP, generation_id=client.epoch, member_id=client.member_id, assignments=self.shares(message)
            )
            self.send(client, request, 5)

    def shares(self, message: types.JoinGroupResponse) -> list[types.SyncGroupRequest.SyncGroupRequestAssignment]:
        """What a leader assigns: evenly, and, if members are cooperative, nothing that another one still has."""
        owned = {}
        for member in message.members:
            said = decode_consumer_protocol(ConsumerProtocolSubscription, member.metadata)
            for entry in said.owned_partitions:
                owned.update(dict.fromkeys(entry.partitions, member.member_id))
        names = sorted(member.member_id for member in message.members)
        found: dict[str, list[int]] = {name: [] for name in names}
        for number in range(self.partitions):
            name = names[number % len(names)] if names else ""
            if name and owned.get(number, name) == name:
                found[name].append(number)
        kind = ConsumerProtocolAssignment.TopicPartition
        return [
            types.SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=name,
                assignment=encode_record_value(
                    ConsumerProtocolAssignment(assigned_partitions=[kind(topic=TOPIC, partitions=numbers)]), 3
                ),
            )
            for name, numbers in found.items()
        ]

    def synced(self, client: Client, message: types.SyncGroupResponse) -> None:
        if message.error_code in LOST:
            self.lost(client, message.error_code)
        elif message.error_code in REJOINS:
            client.joins = True
        else:
            assert not message.error_code, message
            found = decode_consumer_protocol(ConsumerProtocolAssignment, message.assignment)
            given = frozenset(number for entry in found.assigned_partitions for number in entry.partitions)
            client.joins = bool(client.owned - given)
            client.owned = given

    def lost(self, client: Client, code: int) -> None:
        client.lose_everything()
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""

    # What must hold

    @invariant()
    def nobody_shares(self) -> None:
        used = [number for client in self.clients.values() for number in client.owned]
        assert len(used) == len(set(used)), {client.name: client.owned for client in self.clients.values()}

    def teardown(self) -> None:
        if not hasattr(self, "shard"):
            return
        self.log.fail_next = 0
        for _ in range(30):
            self.now_ms += 5000
            self.take(self.shard.tick(self.now_ms))
            self.all_act(backwards=False)
        group = self.shard.state.groups.get(GROUP)
        new = [client for client in self.clients.values() if not client.is_classic]
        if isinstance(group, ConsumerGroup):
            assert state_name(group) == ("Stable" if self.clients else "Empty")
            assert new or not self.clients
        elif isinstance(group, ClassicGroup):
            assert group.live.state is (GroupState.STABLE if self.clients else GroupState.EMPTY)
            assert not new
        if self.clients:
            used = {number for client in self.clients.values() for number in client.owned}
            assert used == set(range(self.partitions)) or (isinstance(group, ClassicGroup) and used)


@pytest.mark.requirement("CG-082", "CG-154", "CG-155", "CG-159", "CG-241")
class TestRollingGroup(RollingGroup.TestCase):
    settings = settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
