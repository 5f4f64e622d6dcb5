"""How fast consumer groups are: python -m tests.bench.bench_consumer_groups [--members 1000] [--partitions 10000]

Everything up to the log in memory is in the figures; sockets and the decoding of requests are not. Best of three.
"""

from __future__ import annotations

import argparse

from coordinator.group.config import GroupConfig
from coordinator.group.consumer.assignor import AssignmentSpec, AssignorMember, AssignorTopic, PartitionAssignor
from coordinator.group.consumer.range_assignor import RangeAssignor
from coordinator.group.consumer.uniform import UniformAssignor
from coordinator.group.values import GroupRequest, RequestContext
from coordinator.shard.shard import Shard
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire.types import ConsumerGroupHeartbeatRequest as Heartbeat
from streamsrt.wire.types import ConsumerGroupHeartbeatResponse as Response
from tests.bench.bench_groups import seconds
from tests.coordinator.group.memory_log import MemoryLog

TOPICS = 10


def topic_id(number: int) -> bytes:
    return f"topic-{number}".encode().ljust(16)


class Group:
    """A group of consumers that do what they are told."""

    def __init__(self, members: int, partitions: int, *, interval_ms: int) -> None:
        self.log = MemoryLog()
        self.config = GroupConfig.parse({"group.consumer.assignment.interval.ms": str(interval_ms)})
        self.topics = [f"topic-{number}" for number in range(TOPICS)]
        images = (TopicImage(topic_id(n), name, partitions // TOPICS) for n, name in enumerate(self.topics))
        self.image = TopicsImage.of(*images)
        self.shard = Shard(self.log, self.config, self.image)
        self.names = [f"member-{i:05d}" for i in range(members)]
        self.epochs = dict.fromkeys(self.names, 0)
        self.now_ms = 1000

    def ask(self, request: Heartbeat) -> Response:
        context = RequestContext(1, "client", "/127.0.0.1", 1)
        ((_, response),) = self.shard.execute(GroupRequest(context, request), self.now_ms).replies
        assert isinstance(response, Response)
        assert not response.error_code, response.error_message
        self.epochs[request.member_id] = response.member_epoch
        return response

    def join_all(self) -> None:
        for name in self.names:
            joins = Heartbeat(
                group_id="g",
                member_id=name,
                rebalance_timeout_ms=300_000,
                subscribed_topic_names=self.topics,
                topic_partitions=[],
            )
            self.ask(joins)

    def settle(self) -> int:
        """Rounds of heartbeats until nothing is told any more."""
        for rounds in range(1, 10):
            self.now_ms += 5000
            self.shard.tick(self.now_ms)
            told = 0
            for name in self.names:
                response = self.ask(Heartbeat(group_id="g", member_id=name, member_epoch=self.epochs[name]))
                if response.assignment is not None:
                    told += 1
                    owned = [
                        Heartbeat.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
                        for each in response.assignment.topic_partitions
                    ]
                    epoch = self.epochs[name]
                    self.ask(Heartbeat(group_id="g", member_id=name, member_epoch=epoch, topic_partitions=owned))
            if not told:
                return rounds
        raise AssertionError("the group does not settle")


def steady(members: int, partitions: int) -> float:
    group = Group(members, partitions, interval_ms=1000)
    group.join_all()
    group.settle()
    appended = len(group.log.batches)
    requests = [Heartbeat(group_id="g", member_id=name, member_epoch=group.epochs[name]) for name in group.names]
    best = min(seconds(lambda: [group.ask(request) for request in requests]) for _ in range(3))
    assert len(group.log.batches) == appended, "a steady heartbeat wrote a record"
    return members / best


def storm(members: int, partitions: int, *, interval_ms: int) -> tuple[float, float, float]:
    """Seconds until all have joined, until all have what they shall have, and of a load of it all."""
    group = Group(members, partitions, interval_ms=interval_ms)
    joined, settled = seconds(group.join_all), seconds(group.settle)
    return joined, settled, seconds(lambda: Shard(group.log, group.config, group.image).load(0))


def assignment(
    assignor: PartitionAssignor, members: int, partitions: int, *, mixed: bool
) -> tuple[float, float, float]:
    """Seconds for a new group, after a member left, and when a tenth more members joined."""
    topics = {topic_id(n): AssignorTopic(f"topic-{n}", partitions // TOPICS) for n in range(TOPICS)}
    everything = frozenset(topics)

    def member(number: int) -> AssignorMember:
        return AssignorMember(everything - {topic_id(number % 7)} if mixed else everything)

    group = {f"m{number:05d}": member(number) for number in range(members)}
    first = min(seconds(lambda: assignor.assign(AssignmentSpec(group, topics))) for _ in range(3))
    had = assignor.assign(AssignmentSpec(group, topics))
    after = {name: AssignorMember(each.topics, had[name]) for name, each in group.items() if name != "m00000"}
    left = min(seconds(lambda: assignor.assign(AssignmentSpec(after, topics))) for _ in range(3))
    more = {**after, **{f"n{number:05d}": member(number) for number in range(members // 10)}}
    return first, left, min(seconds(lambda: assignor.assign(AssignmentSpec(more, topics))) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    members, partitions = options.members, options.partitions
    print(f"{members} members, {partitions} partitions of {TOPICS} topics")
    print(f"  steady heartbeats       {steady(members, partitions):12,.0f} /s")
    for assignor in (UniformAssignor(), RangeAssignor()):
        for mixed in (False, True):
            first, left, more = assignment(assignor, members, partitions, mixed=mixed)
            kind = "different subscriptions" if mixed else "equal subscriptions"
            print(
                f"  {assignor.name}, {kind}: {first * 1000:,.0f} ms; after a member left {left * 1000:,.0f} ms; "
                f"a tenth more {more * 1000:,.0f} ms"
            )
    joined, settled, loaded = storm(members, partitions, interval_ms=1000)
    print(f"  all join within an assignment interval {joined * 1000:,.0f} ms; until settled {settled * 1000:,.0f} ms")
    print(f"  load of it {loaded * 1000:,.0f} ms")


if __name__ == "__main__":
    main()
