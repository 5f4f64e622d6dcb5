"""Random lives of a consumer group: whatever happens, no partition is used by two, and it settles when nothing happens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.group.config import GroupConfig
from coordinator.group.consumer.describe import state_name
from coordinator.group.consumer.partitions import NONE, Partitions, partition_set, wire_partitions
from coordinator.group.consumer.state import ConsumerGroup
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tests.coordinator.group.memory_log import MemoryLog

GROUP = "app"
NAMES = ("t", "u", "v")
SUBSCRIPTIONS = st.tuples(st.sets(st.sampled_from(NAMES)).map(sorted), st.sampled_from([None, None, "[tu]", ".*", "w"]))


@dataclass
class Client:
    """A consumer that does what it is told, unless it is lazy or its answers get lost."""

    member_id: str
    instance_id: str | None
    names: list[str]
    regex: str | None
    assignor: str | None
    epoch: int = 0
    owned: Partitions = NONE
    said: Partitions = NONE
    given: Partitions | None = None
    failed: bool = False
    away: bool = False

    def lose_everything(self) -> None:
        self.epoch, self.owned, self.said, self.given, self.failed = 0, NONE, NONE, None, False


class GroupLife(RuleBasedStateMachine):
    @initialize(interval_ms=st.sampled_from([0, 0, 1000]), assignors=st.sampled_from(["uniform,range", "range"]))
    def start(self, interval_ms: int, assignors: str) -> None:
        self.config = GroupConfig.parse(
            {"group.consumer.assignment.interval.ms": str(interval_ms), "group.consumer.assignors": assignors}
        )
        self.log = MemoryLog()
        self.now_ms = 1000
        self.ids = 3
        self.topics = {name: (number, 3) for number, name in enumerate(NAMES)}
        self.shard = Shard(self.log, self.config, self.image())
        self.clients: dict[str, Client] = {}
        self.numbers = 0
        self.epochs = (0, 0)

    def image(self) -> TopicsImage:
        return TopicsImage(
            {name: TopicImage(number.to_bytes(16, "big"), name, count) for name, (number, count) in self.topics.items()}
        )

    @property
    def group(self) -> ConsumerGroup:
        found = self.shard.state.groups.get(GROUP, ConsumerGroup(GROUP))
        assert isinstance(found, ConsumerGroup)
        return found

    # Members

    @rule(subscription=SUBSCRIPTIONS, static=st.booleans(), assignor=st.sampled_from([None, "range"]))
    def join(self, subscription: tuple[list[str], str | None], static: bool, assignor: str | None) -> None:
        if len(self.clients) >= 5:
            return
        self.numbers += 1
        names, regex = subscription
        instance = f"i{self.numbers}" if static else None
        client = Client(f"m{self.numbers}", instance, names, regex, assignor)
        self.clients[client.member_id] = client
        self.beat(client)

    @rule(data=st.data(), lost=st.booleans(), lazy=st.booleans())
    def heartbeat(self, data: st.DataObject, lost: bool, lazy: bool) -> None:
        client = self.pick(data)
        if client is not None and not client.away:
            self.beat(client, lost=lost, lazy=lazy)

    @rule(backwards=st.booleans())
    def everybody_beats(self, backwards: bool) -> None:
        self.now_ms += 5000
        self.shard.tick(self.now_ms)
        for name in sorted(self.clients, reverse=backwards):
            if not self.clients[name].away:
                self.beat(self.clients[name])
                self.nobody_shares()

    @rule(data=st.data(), subscription=SUBSCRIPTIONS)
    def subscribe(self, data: st.DataObject, subscription: tuple[list[str], str | None]) -> None:
        client = self.pick(data)
        if client is not None and not client.away:
            client.names, client.regex = subscription[0], subscription[1] or ""
            self.beat(client, full=True)

    @rule(data=st.data())
    def rejoin(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None and not client.away:
            client.lose_everything()
            self.beat(client)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None and not client.away and client.epoch > 0:
            self.send(client, -1)
            del self.clients[client.member_id]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None:
            del self.clients[client.member_id]

    @rule(data=st.data())
    def go_for_a_while(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None and client.instance_id is not None and client.epoch > 0 and not client.away:
            answer = self.send(client, -2)
            client.away = answer is not None and not answer.error_code
            client.owned, client.said, client.given = NONE, NONE, None

    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client is not None and client.away:
            del self.clients[client.member_id]
            self.numbers += 1
            again = Client(f"m{self.numbers}", client.instance_id, client.names, client.regex, client.assignor)
            self.clients[again.member_id] = again
            self.beat(again)

    # The world

    @rule(name=st.sampled_from([*NAMES, "w"]), what=st.sampled_from(["grow", "gone", "anew"]))
    def change_topic(self, name: str, what: str) -> None:
        number, count = self.topics.get(name, (-1, 0))
        if what == "gone":
            self.topics.pop(name, None)
        elif what == "anew" or number < 0:
            self.ids += 1
            self.topics[name] = (self.ids, 2)
        elif count < 5:
            self.topics[name] = (number, count + 1)
        self.shard.set_topics(self.image(), self.now_ms)

    @rule(ms=st.sampled_from([100, 1000, 20_000, 46_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.tick(self.now_ms)

    @rule()
    def restart(self) -> None:
        before = self.shard.state
        self.shard = Shard(self.log, self.config, self.image())
        self.shard.load(self.now_ms)
        assert self.shard.state == before

    @rule(times=st.integers(1, 2))
    def appends_fail(self, times: int) -> None:
        self.log.fail_next = times

    def pick(self, data: st.DataObject) -> Client | None:
        if not self.clients:
            return None
        return self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    # How a consumer behaves

    def beat(self, client: Client, *, lost: bool = False, lazy: bool = False, full: bool = False) -> None:
        full = full or client.failed
        answer = self.send(
            client, client.epoch, full=full or client.epoch == 0, say=full or client.owned != client.said
        )
        if answer is None or lost:
            client.failed = True
            return
        if answer.error_code in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
            client.lose_everything()
            return
        assert answer.error_code in {0, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID}, answer
        if answer.error_code:
            client.lose_everything()
            return
        if client.epoch == 0:
            client.said = NONE
        elif full or client.owned != client.said:
            client.said = client.owned
        client.failed = False
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.given = partition_set(answer.assignment.topic_partitions)
        if client.given is not None and not lazy:
            client.owned, client.given = client.given, None

    def send(
        self, client: Client, epoch: int, *, full: bool = False, say: bool = False
    ) -> ConsumerGroupHeartbeatResponse | None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=epoch, instance_id=client.instance_id
        )
        if full:
            request.rebalance_timeout_ms = 15_000
            request.subscribed_topic_names = client.names
            request.subscribed_topic_regex = client.regex
            request.server_assignor = client.assignor if "uniform" in self.config.consumer.assignors else None
        if full or say:
            owned = NONE if epoch == 0 else client.owned
            request.topic_partitions = wire_partitions(ConsumerGroupHeartbeatRequest.TopicPartitions, owned)
        context = RequestContext(1, "client", "/127.0.0.1", 1)
        outcome = self.shard.execute(GroupRequest(context, request), self.now_ms)
        (reply,) = outcome.replies
        assert isinstance(reply.message, ConsumerGroupHeartbeatResponse)
        return None if reply.message.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE else reply.message

    # What must hold

    @invariant()
    def nobody_shares(self) -> None:
        """What a member uses is its own for the coordinator too, and there a partition has one owner.

        Who has not heard that it was removed may still use what it had; its commits are refused.
        """
        for client in self.clients.values():
            known = self.group.current.get(client.member_id)
            if known is not None:
                assert client.owned <= known.assigned | known.pending

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        assert all(len(owners) == 1 for owners in self.group.owners.values())
        held = [each for current in self.group.current.values() for each in current.assigned | current.pending]
        assert len(held) == len(set(held)) == len(self.group.owners)

    @invariant()
    def epochs_are_in_order(self) -> None:
        group = self.group
        assert group.assignment_epoch <= group.epoch
        assert all(current.epoch <= group.assignment_epoch for current in group.current.values())
        assert set(group.current) == set(group.members) >= set(group.targets)
        assert (group.epoch, group.assignment_epoch) >= self.epochs
        self.epochs = (group.epoch, group.assignment_epoch)

    @invariant()
    def subscriptions_are_counted(self) -> None:
        group = self.group
        assert set(group.names) == {name for member in group.members.values() for name in member.topic_names}
        assert set(group.patterns) == {member.topic_regex for member in group.members.values() if member.topic_regex}
        assert set(group.regexes) == set(group.patterns)

    def teardown(self) -> None:
        if not hasattr(self, "shard"):
            return
        self.log.fail_next = 0
        for client in list(self.clients.values()):
            if client.away:
                del self.clients[client.member_id]
        for _ in range(14):
            self.everybody_beats(backwards=False)
        group = self.group
        assert set(group.members) == set(self.clients)
        assert state_name(group) == ("Stable" if self.clients else "Empty")
        wanted = {name for member in group.members.values() for name in group.subscribed_topics(member)}
        everything = {
            (number.to_bytes(16, "big"), index)
            for name, (number, count) in self.topics.items()
            if name in wanted
            for index in range(count)
        }
        assert set(group.owners) == everything
        for client in self.clients.values():
            assert client.owned == group.current[client.member_id].assigned == set(group.targets[client.member_id])
            assert client.epoch == group.epoch


@pytest.mark.requirement("CG-012", "CG-082", "CG-087", "CG-108", "CG-242")
class TestGroupLife(GroupLife.TestCase):
    settings = settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
