"""ConsumerGroupHeartbeat request by request, with the same answers on the bundled broker and on Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.coordinator.server.processes import Wire
from tests.interop.group_members import PATIENCE_S

pytestmark = pytest.mark.system
Heartbeat = types.ConsumerGroupHeartbeatRequest
LATER = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
GROUP_RESOURCE = 32


class Asking:
    """Members of one group that say what they are told to say. Their sessions are long: the machine may be slow."""

    def __init__(self, servers: str) -> None:
        self.wire = Wire(int(servers.rpartition(":")[2]), PATIENCE_S)
        self.group = f"wire-{uuid.uuid4().hex}"
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[int]] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(self.group, 2, 1)]).values():
            future.result(PATIENCE_S)
        self.ask(types.FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
        kind = types.IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(name="consumer.session.timeout.ms", value="60000")
        resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[change])
        assert [each.error_code for each in self.ask(kind(resources=[resource]), 1).responses] == [0]

    def ask(self, message: types.Message, version: int) -> Any:
        return self.wire.ask(message, version)

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        """The answer, once the coordinator has loaded."""
        pause = Event()
        request = Heartbeat(**{"group_id": self.group, "member_id": member, "member_epoch": epoch, **fields})
        for _ in range(600):
            answer = self.ask(request, 1)
            if answer.error_code not in LATER:
                return answer
            pause.wait(0.1)
        raise AssertionError(answer)

    def join(self, member: str, **fields: Any) -> Any:
        usual = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.group], "topic_partitions": []}
        return self.beat(member, 0, **{**usual, **fields})

    def enter(self, member: str, **fields: Any) -> None:
        """A member that ``settle`` looks after from now on."""
        self.fields[member] = fields
        self.heard(member, self.join(member, **fields))

    def heard(self, member: str, answer: Any) -> bool:
        self.epochs[member] = answer.member_epoch
        told = given(answer)
        if told is not None:
            self.owned[member] = told
        return told is not None

    def settle(self, **counts: int) -> None:
        """Members do what they are told until they have so many partitions and the group is stable.

        Apache Kafka computes assignments beside the heartbeats; it takes a few.
        """
        pause = Event()
        for _ in range(600):
            for member in counts:
                fields = {key: value for key, value in self.fields[member].items() if key == "instance_id"}
                if self.heard(member, self.beat(member, self.epochs[member], **fields)):
                    owned = self.owning(*self.owned[member])
                    self.heard(member, self.beat(member, self.epochs[member], topic_partitions=owned, **fields))
            have = {member: len(self.owned.get(member, ())) for member in counts}
            if have == counts and self.describe().group_state == "Stable":
                return
            pause.wait(0.1)
        raise AssertionError((have, self.describe()))

    def owning(self, *partitions: int) -> list[Heartbeat.TopicPartitions]:
        topic = types.MetadataRequest.MetadataRequestTopic(name=self.group)
        (found,) = self.ask(types.MetadataRequest(topics=[topic]), 12).topics
        return [Heartbeat.TopicPartitions(topic_id=found.topic_id, partitions=list(partitions))] if partitions else []

    def describe(self) -> Any:
        (group,) = self.ask(types.ConsumerGroupDescribeRequest(group_ids=[self.group]), 1).groups
        return group


def given(answer: Any) -> list[int] | None:
    """The partitions of the assignment in the answer; None if it has none."""
    assert not answer.error_code, answer
    if answer.assignment is None:
        return None
    return sorted(number for entry in answer.assignment.topic_partitions for number in entry.partitions)


def refusal(answer: Any) -> tuple[int, str | None]:
    return answer.error_code, answer.error_message


@pytest.fixture
def asking(bootstrap_servers: str) -> Iterator[Asking]:
    found = Asking(bootstrap_servers)
    yield found
    found.wire.close()


def test_what_is_refused(asking: Asking) -> None:
    group = asking.group
    for fields, code, text in (
        ({"member_id": ""}, 42, "MemberId can't be empty."),
        ({"group_id": ""}, 42, "GroupId can't be empty."),
        ({"instance_id": ""}, 42, "InstanceId can't be empty."),
        ({"rack_id": ""}, 42, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 42, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 42, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            42,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, 42, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, 42, "InstanceId can't be null."),
        ({"member_epoch": 3}, 69, f"Consumer group {group} not found."),
        ({"member_epoch": -1}, 69, f"Group {group} not found."),
    ):
        assert refusal(asking.join("m", **fields)) == (code, text)
    assert asking.join("m", server_assignor="nosuch").error_code == 112
    answer = asking.join("m", subscribed_topic_regex="fo(o")
    assert answer.error_code == 128
    assert answer.error_message.startswith("SubscribedTopicRegex `fo(o` is not a valid regular expression: ")
    assert refusal(asking.describe()) == (69, f"Group {group} not found.")


def test_two_members_share_and_are_fenced(asking: Asking) -> None:
    asking.enter("a")
    asking.settle(a=2)
    asking.enter("b")
    asking.settle(a=1, b=1)
    described = asking.describe()
    epoch = described.group_epoch
    assert (described.group_state, described.assignment_epoch, described.assignor_name) == ("Stable", epoch, "uniform")
    assert [(member.member_epoch, member.member_type) for member in described.members] == [(epoch, 1), (epoch, 1)]
    text = (
        f"than the one known by the group coordinator ({epoch}). The member must abandon all its partitions and rejoin."
    )
    assert refusal(asking.beat("a", epoch + 1)) == (
        110,
        f"The consumer group member has a greater member epoch ({epoch + 1}) {text}",
    )
    assert refusal(asking.beat("a", epoch - 1)) == (
        110,
        f"The consumer group member has a smaller member epoch ({epoch - 1}) {text}",
    )
    # The answer with the last epoch may have been lost.
    (kept,) = asking.owned["a"]
    assert asking.beat("a", epoch - 1, topic_partitions=asking.owning(kept)).member_epoch == epoch
    assert refusal(asking.beat("x", epoch)) == (25, f"Member x is not a member of group {asking.group}.")
    assert asking.beat("b", -1).member_epoch == -1
    asking.settle(a=2)
    assert asking.epochs["a"] == asking.describe().group_epoch == epoch + 1


def test_a_static_member(asking: Asking) -> None:
    group = asking.group
    asking.enter("a", instance_id="i")
    asking.settle(a=2)
    assert refusal(asking.join("b", instance_id="i")) == (
        111,
        "Static member b with instance id i cannot join the group because the instance id is owned by a member.",
    )
    epoch = asking.epochs["a"]
    assert asking.beat("a", -2, instance_id="i").member_epoch == -2
    assert [member.member_epoch for member in asking.describe().members] == [-2]
    back = asking.join("b", instance_id="i")
    assert (back.member_epoch, given(back)) == (epoch, [0, 1])
    assert refusal(asking.beat("a", epoch, instance_id="i")) == (
        82,
        "Static member a with instance id i was fenced by member b.",
    )
    assert refusal(asking.beat("b", epoch, instance_id="z")) == (25, "Instance id z is unknown.")
    kind = types.OffsetCommitRequest
    partition = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = kind.OffsetCommitRequestTopic(name=group, partitions=[partition])
    for member, said, code in (("b", epoch, 0), ("b", epoch + 1, 113), ("a", epoch, 25), ("", -1, 25)):
        request = kind(group_id=group, member_id=member, generation_id_or_member_epoch=said, topics=[topic])
        assert [each.error_code for each in asking.ask(request, 9).topics[0].partitions] == [code]
    assert asking.beat("b", -1, instance_id="i").member_epoch == -1
    assert asking.describe().group_state == "Empty"


def test_a_pattern_means_the_topics_of_the_broker_too(asking: Asking) -> None:
    asking.enter("a", subscribed_topic_names=None, subscribed_topic_regex=f"__consumer_off.*|{asking.group}")
    pause = Event()
    # A broker that has not heard of the new topic yet looks for the pattern's topics again later.
    wanted = {"__consumer_offsets", asking.group}
    for _ in range(600):
        answer = asking.beat("a", asking.epochs["a"])
        asking.epochs["a"] = answer.member_epoch
        topics = {
            entry.topic_name for member in asking.describe().members for entry in member.assignment.topic_partitions
        }
        if topics == wanted:
            break
        pause.wait(0.1)
    assert topics == wanted
