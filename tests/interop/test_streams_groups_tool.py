"""kafka-streams-groups and kafka-groups against the bundled broker and Apache Kafka alike, over the life of one group."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.coordinator.server.processes import Wire
from tests.fixtures_brokers import require_kafka
from tests.interop.admin_tools import AdminTools, Done

PATIENCE_S = 60
COMMAND = "streams.StreamsGroupCommand"
Heartbeat = types.StreamsGroupHeartbeatRequest
LATER = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
GROUP_RESOURCE = 32
pytestmark = [pytest.mark.system, pytest.mark.kafka]


class Member:
    """The only member of a streams group that reads a topic of two partitions with three records each."""

    def __init__(self, servers: str) -> None:
        self.wire = Wire(int(servers.rpartition(":")[2]), PATIENCE_S)
        self.group = f"streams-{uuid.uuid4().hex}"
        self.topic, self.changelog = f"{self.group}-in", f"{self.group}-store-changelog"
        self.epoch = 0
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics([NewTopic(self.topic, 2, 1)]).values():
            future.result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": servers})
        for number in range(6):
            producer.produce(self.topic, b"value", partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
        self.wire.ask(types.FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
        kind = types.IncrementalAlterConfigsRequest
        change = kind.AlterableConfig(name="streams.session.timeout.ms", value="60000")
        resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=self.group, configs=[change])
        assert [each.error_code for each in self.wire.ask(kind(resources=[resource]), 1).responses] == [0]

    def beat(self, epoch: int, **fields: Any) -> Any:
        request = Heartbeat(group_id=self.group, member_id="member", member_epoch=epoch, **fields)
        pause = Event()
        for _ in range(600):
            answer = self.wire.ask(request, 0)
            if answer.error_code not in LATER:
                assert answer.error_code == 0, answer
                return answer
            pause.wait(0.1)
        raise AssertionError(answer)

    def joined(self, part: Heartbeat.Subtopology) -> Any:
        return self.beat(
            0,
            rebalance_timeout_ms=60_000,
            topology=Heartbeat.Topology(epoch=0, subtopologies=[part]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="process",
            client_tags=[],
        )

    def join(self, **fields: Any) -> None:
        changelog = Heartbeat.TopicInfo(name=self.changelog, replication_factor=-1)
        part = Heartbeat.Subtopology(
            subtopology_id="0", source_topics=[self.topic], state_changelog_topics=[changelog], **fields
        )
        answer = self.joined(part)
        pause, tasks = Event(), []
        for _ in range(600):
            tasks = tasks if answer.active_tasks is None else answer.active_tasks
            own = [Heartbeat.TaskIds(subtopology_id=each.subtopology_id, partitions=each.partitions) for each in tasks]
            answer = self.beat(answer.member_epoch, active_tasks=own, standby_tasks=[], warmup_tasks=[])
            if own and answer.active_tasks is None:
                break
            pause.wait(0.1)
        assert [sorted(each.partitions) for each in tasks] == [[0, 1]]
        self.epoch = answer.member_epoch

    def commit(self, offset: int) -> None:
        kind = types.OffsetCommitRequest
        entries = [kind.OffsetCommitRequestPartition(partition_index=n, committed_offset=offset) for n in (0, 1)]
        topic = kind.OffsetCommitRequestTopic(name=self.topic, partitions=entries)
        request = kind(
            group_id=self.group, generation_id_or_member_epoch=self.epoch, member_id="member", topics=[topic]
        )
        codes = {each.error_code for each in self.wire.ask(request, 9).topics[0].partitions}
        assert codes == {0}

    def committed(self) -> list[int]:
        kind = types.OffsetFetchRequest
        topic = kind.OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1])
        groups = [kind.OffsetFetchRequestGroup(group_id=self.group, topics=[topic])]
        found = self.wire.ask(kind(groups=groups), 9).groups[0].topics[0].partitions
        return [each.committed_offset for each in sorted(found, key=lambda each: each.partition_index)]


@pytest.fixture(scope="module", params=["bundled", "kafka"])
def tools(request: pytest.FixtureRequest) -> Iterator[AdminTools]:
    require_kafka()
    server = request.getfixturevalue("apache_kafka" if request.param == "kafka" else "bundled_broker")
    made = AdminTools(server.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def member(tools: AdminTools) -> Iterator[Member]:
    made = Member(tools.servers)
    yield made
    made.wire.close()


def rows(done: Done, group: str) -> list[list[str]]:
    """The words of the lines that are about a group."""
    assert done.code == 0, done
    return sorted(line.split() for line in done.output.splitlines() if line.startswith(group))


@pytest.mark.requirement("SG-353", "SG-354", "SG-357", "SG-359", "SG-361", "SG-364")
def test_the_life_of_a_group(tools: AdminTools, member: Member) -> None:
    group, topic = member.group, member.topic

    def run(*arguments: str) -> Done:
        return tools.tool(COMMAND, *arguments)

    member.join()
    member.commit(1)
    assert rows(run("--list"), group) == [[group]]
    assert rows(run("--list", "--state", "Stable"), group) == [[group, "Stable"]]
    assert rows(run("--list", "--state", "Empty"), group) == []
    for option in (["--streams"], ["--group-type", "streams"]):
        assert rows(tools.tool("GroupsCommand", "--list", *option), group) == [[group, "Streams", "streams"]]
    assert rows(tools.tool("GroupsCommand", "--list", "--group-type", "classic"), group) == []
    describe = ("--describe", "--group", group)
    assert rows(run(*describe), group) == [[group, topic, "0", "2"], [group, topic, "1", "2"]]
    assert rows(run(*describe, "--verbose"), group) == [
        [group, topic, number, "1", "-", "3", "2"] for number in ("0", "1")
    ]
    assert rows(run(*describe, "--members"), group) == [
        [group, "member", "process", "test", "ACTIVE:", "0:[0,1];"],
    ]
    epoch, has, wants = str(member.epoch), ("ACTIVE:", "0:[0,1];"), ("TARGET-ACTIVE:", "0:[0,1];")
    assert rows(run(*describe, "--members", "--verbose"), group) == [
        [group, epoch, "0", "member", "streams", epoch, "process", "test", *has, *wants]
    ]
    coordinator = [tools.servers, "(1)"]
    assert rows(run(*describe, "--state"), group) == [[group, *coordinator, "Stable", "1"]]
    assert rows(run(*describe, "--state", "--verbose"), group) == [[group, *coordinator, "Stable", epoch, epoch, "1"]]
    reset = ("--reset-offsets", "--group", group)
    assert "is not EMPTY" in run("--delete", "--group", group).output
    assert "the current state is Stable" in run(*reset, "--all-input-topics", "--to-earliest", "--execute").output
    assert member.committed() == [1, 1]

    member.beat(-1)
    assert rows(run(*reset, "--all-input-topics", "--to-latest", "--dry-run"), group) == [
        [group, topic, "0", "3"],
        [group, topic, "1", "3"],
    ]
    assert member.committed() == [1, 1]
    for options, offset in (
        (("--all-input-topics", "--to-latest"), 3),
        (("--input-topic", topic, "--shift-by", "-2"), 1),
        (("--all-input-topics", "--to-datetime", "1999-12-31T23:57:00.000"), 0),
    ):
        assert run(*reset, *options, "--execute").code == 0
        assert member.committed() == [offset, offset]
    assert run("--delete-offsets", "--group", group, "--all-input-topics").output.count("Successful") == 2
    assert member.committed() == [-1, -1]
    assert "was successful" in run("--delete", "--group", group).output
    assert rows(run("--list"), group) == []


@pytest.mark.requirement("SG-042")
def test_a_subtopology_reads_a_repartition_topic_that_it_writes(member: Member) -> None:
    name = f"{member.group}-loop-repartition"
    loop = Heartbeat.TopicInfo(name=name, replication_factor=-1)
    member.join(repartition_sink_topics=[name], repartition_source_topics=[loop])


def test_a_group_that_waits_for_a_source_topic_is_described(tools: AdminTools, member: Member) -> None:
    answer = member.joined(Heartbeat.Subtopology(subtopology_id="0", source_topics=[f"{member.group}-later"]))
    assert [status.status_code for status in answer.status] == [1]
    done = tools.tool(COMMAND, "--describe", "--state", "--group", member.group)
    assert [row[3:] for row in rows(done, member.group)] == [["NotReady", "1"]]
