"""Kafka's command-line tools and its Java Admin client, against the bundled broker and Apache Kafka alike."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fixtures_brokers import require_kafka
from tests.interop.admin_tools import AdminTools, Done

PATIENCE_S = 60
pytestmark = [pytest.mark.system, pytest.mark.kafka]


@pytest.fixture(scope="module", params=["bundled", "kafka"])
def tools(request: pytest.FixtureRequest) -> Iterator[AdminTools]:
    require_kafka()
    server = request.getfixturevalue("apache_kafka" if request.param == "kafka" else "bundled_broker")
    made = AdminTools(server.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def topic(tools: AdminTools) -> str:
    name = f"tools-{uuid.uuid4().hex}"
    assert tools.tool("TopicCommand", "--create", "--topic", name, "--partitions", "2").code == 0
    eventually(lambda: end_offsets(tools, name), f"{name}:0:0\n{name}:1:0")
    return name


def end_offsets(tools: AdminTools, topic: str) -> str:
    return tools.tool("GetOffsetShell", "--topic", topic).output.strip()


def output(done: Done) -> str:
    assert done.code == 0, done
    return done.output.strip()


def eventually(look: Callable[[], str], expected: str) -> None:
    """Looks until the expected is seen: Apache Kafka's broker hears of a change some time after the client."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) != expected:
        assert time.monotonic() < deadline, found


def refusal(done: Done) -> str:
    assert done.code == 1, done
    return done.text


def test_topics(tools: AdminTools, topic: str) -> None:
    assert topic in output(tools.tool("TopicCommand", "--list")).splitlines()
    described = output(tools.tool("TopicCommand", "--describe", "--topic", topic))
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 2
    assert tools.tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "3").code == 0
    expected = "\n".join(f"{topic}:{n}:0" for n in range(3))
    eventually(lambda: end_offsets(tools, topic), expected)
    assert "already exists" in refusal(tools.tool("TopicCommand", "--create", "--topic", topic))
    assert "does not exist as expected" in refusal(tools.tool("TopicCommand", "--delete", "--topic", topic + "x"))
    assert tools.tool("TopicCommand", "--delete", "--topic", topic).code == 0


def test_configs_of_a_topic(tools: AdminTools, topic: str) -> None:
    keys = "cleanup.policy,max.message.bytes"
    assert output(tools.admin("set-config", "TOPIC", topic, "max.message.bytes", "7000")) == "altered"
    assert output(tools.admin("append-config", "TOPIC", topic, "cleanup.policy", "compact")) == "altered"
    eventually(
        lambda: output(tools.admin("describe-configs", "TOPIC", topic, keys)),
        "{cleanup.policy=delete,compact/DYNAMIC_TOPIC_CONFIG/false cleanup.policy=delete,compact/DYNAMIC_TOPIC_CONFIG "
        "log.cleanup.policy=delete/DEFAULT_CONFIG, "
        "max.message.bytes=7000/DYNAMIC_TOPIC_CONFIG/false max.message.bytes=7000/DYNAMIC_TOPIC_CONFIG "
        "message.max.bytes=1048588/DEFAULT_CONFIG}",
    )
    assert output(tools.admin("delete-config", "TOPIC", topic, "max.message.bytes")) == "altered"
    unknown = refusal(tools.admin("set-config", "TOPIC", topic, "retention.mss", "1"))
    assert "InvalidConfigurationException: Unknown topic config name: retention.mss" in unknown
    wrong = refusal(tools.admin("set-config", "TOPIC", topic, "retention.ms", "x"))
    assert "InvalidConfigurationException: Invalid value x for configuration retention.ms" in wrong


def test_configs_of_the_broker_at_run_time(tools: AdminTools, topic: str) -> None:
    key = "log.segment.bytes"
    assert output(tools.admin("set-config", "BROKER", "", key, "20000000")) == "altered"
    try:
        eventually(
            lambda: output(tools.admin("describe-configs", "TOPIC", topic, "segment.bytes")),
            "{segment.bytes=20000000/DYNAMIC_DEFAULT_BROKER_CONFIG/false "
            f"{key}=20000000/DYNAMIC_DEFAULT_BROKER_CONFIG {key}=1073741824/DEFAULT_CONFIG}}",
        )
        assert output(tools.admin("set-config", "BROKER", "1", key, "30000000")) == "altered"
        eventually(
            lambda: output(tools.admin("describe-configs", "BROKER", "1", key)),
            f"{{{key}=30000000/DYNAMIC_BROKER_CONFIG/false {key}=30000000/DYNAMIC_BROKER_CONFIG "
            f"{key}=20000000/DYNAMIC_DEFAULT_BROKER_CONFIG {key}=1073741824/DEFAULT_CONFIG}}",
        )
        eventually(
            lambda: output(tools.admin("describe-configs", "BROKER", "", key)),
            f"{{{key}=20000000/DYNAMIC_DEFAULT_BROKER_CONFIG/false {key}=20000000/DYNAMIC_DEFAULT_BROKER_CONFIG}}",
        )
    finally:
        assert output(tools.admin("delete-config", "BROKER", "", key)) == "altered"
        assert output(tools.admin("delete-config", "BROKER", "1", key)) == "altered"
    static = refusal(tools.admin("set-config", "BROKER", "1", "num.partitions", "3"))
    assert "InvalidRequestException: Cannot update these configs dynamically" in static
    assert "InvalidRequestException: Invalid value x" in refusal(tools.admin("set-config", "BROKER", "1", key, "x"))


def test_configs_of_a_group(tools: AdminTools) -> None:
    group, key = f"tools-{uuid.uuid4().hex}", "streams.num.standby.replicas"
    assert output(tools.admin("set-config", "GROUP", group, key, "1")) == "altered"
    eventually(
        lambda: output(tools.admin("describe-configs", "GROUP", group, key)),
        f"{{{key}=1/DYNAMIC_GROUP_CONFIG/false {key}=1/DYNAMIC_GROUP_CONFIG group.{key}=0/DEFAULT_CONFIG}}",
    )
    assert group in output(tools.admin("list-config-resources", "GROUP"))
    assert output(tools.admin("list-config-resources", "BROKER")) == "[1]"
    assert output(tools.admin("list-config-resources", "CLIENT_METRICS")) == "[]"


def test_disks_leaders_and_replicas(tools: AdminTools, topic: str) -> None:
    described = output(tools.tool("LogDirsCommand", "--describe", "--topic-list", topic))
    (broker,) = json.loads(described.splitlines()[-1])["brokers"]
    assert {each["partition"] for each in broker["logDirs"][0]["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    found = output(tools.admin("log-dirs", "1", topic))
    assert found == f"{{{topic}-0=false, {topic}-1=false, ~space=true}}"
    assert output(tools.admin("elect-leaders", topic, "0")) == "ElectionNotNeededException"
    assert output(tools.admin("elect-leaders", topic, "9")) == "UnknownTopicOrPartitionException"
    assert output(tools.admin("reassign", topic, "0", "1")) == "{}"
    assert "InvalidReplicaAssignmentException" in refusal(tools.admin("reassign", topic, "0", "2"))


def test_features_and_quotas(tools: AdminTools, request: pytest.FixtureRequest) -> None:
    described = output(tools.tool("FeatureCommand", "describe"))
    assert "Feature: streams.version" in described
    is_bundled = request.node.callspec.params["tools"] == "bundled"
    assert ("Feature: streamsrt.streams.version" in described) == is_bundled
    assert "max_version_level:1" in output(tools.admin("feature", "streams.version"))
    assert output(tools.admin("update-feature", "streams.version", "1")) == "updated"
    assert "InvalidUpdateVersionException" in refusal(tools.admin("update-feature", "streams.version", "9"))
    assert output(tools.admin("quotas")) == "{}"
    versions = output(tools.tool("BrokerApiVersionsCommand"))
    assert "StreamsGroupHeartbeat(88): 0 to 1 [usable: 0]" in versions


def test_transactions(tools: AdminTools, topic: str) -> None:
    assert output(tools.tool("TransactionsCommand", "list")).split()[:2] == ["TransactionalId", "Coordinator"]
    producers = output(tools.tool("TransactionsCommand", "describe-producers", "--topic", topic, "--partition", "0"))
    assert producers.split()[:2] == ["ProducerId", "ProducerEpoch"]
    absent = refusal(tools.tool("TransactionsCommand", "describe", "--transactional-id", f"absent-{uuid.uuid4().hex}"))
    assert "transactional" in absent.lower()


def test_offsets_of_a_group(tools: AdminTools, topic: str) -> None:
    group = f"tools-{uuid.uuid4().hex}"
    command = "consumer.group.ConsumerGroupCommand"
    reset = ("--reset-offsets", "--to-offset", "0", "--topic", f"{topic}:0,1", "--execute")
    output(tools.tool(command, "--group", group, *reset))
    assert group in output(tools.tool(command, "--list"))
    assert group in output(tools.tool("GroupsCommand", "--list"))
    deleted = output(tools.tool(command, "--group", group, "--delete-offsets", "--topic", f"{topic}:0"))
    assert "Successful" in deleted
    left = [line.split()[1:4] for line in output(tools.tool(command, "--describe", "--group", group)).splitlines()]
    assert [topic, "1", "0"] in left
    assert [topic, "0", "0"] not in left
    assert "was successful" in output(tools.tool(command, "--delete", "--group", group))
    assert group not in output(tools.tool(command, "--list"))


def test_delete_records(tools: AdminTools, topic: str, tmp_path: Path) -> None:
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 0}], "version": 1}))
    arguments = ("DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {topic}-0\tlow_watermark: 0" in output(tools.tool(*arguments))
    assert output(tools.admin("set-config", "TOPIC", topic, "cleanup.policy", "compact")) == "altered"
    eventually(lambda: str("PolicyViolationException" in output(tools.tool(*arguments))), "True")


def test_a_hanging_transaction_is_aborted(tools: AdminTools, topic: str) -> None:
    """What kafka-transactions finds open on a partition it ends with a marker, though the producer knows nothing of it."""
    producer = Producer({"bootstrap.servers": tools.servers, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"never seen", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    place = ("--topic", topic, "--partition", "0")

    def start_offset() -> str:
        described = output(tools.tool("TransactionsCommand", "describe-producers", *place)).splitlines()
        return described[1].split()[-1]

    assert start_offset() == "0"
    assert tools.tool("TransactionsCommand", "abort", *place, "--start-offset", "0").code == 0
    eventually(start_offset, "None")
    plain = Producer({"bootstrap.servers": tools.servers})
    plain.produce(topic, b"seen", partition=0)
    assert plain.flush(PATIENCE_S) == 0
    settings = {"bootstrap.servers": tools.servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"seen"
    again = tools.tool("TransactionsCommand", "abort", *place, "--start-offset", "0")
    assert again.code == 1
