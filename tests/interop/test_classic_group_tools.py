"""What other people's tools say of an application's classic group: state, members, lag.

On the bundled broker and on an Apache Kafka without streams groups.

What lag exporters ask is asked here as well: groups and their members, committed offsets and ends, the records of
``__consumer_offsets``.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import subprocess
import threading
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from streamsrt.app import KafkaStreams
from streamsrt.membership.classic.values import PROTOCOL_NAME
from tests.fixtures_brokers import require_kafka
from tests.interop.admin_tools import AdminTools
from tests.interop.test_other_clients import built_go_client, require, run
from tests.system.cluster import Cluster, Row, Server, connected
from tests.system.processes import wait_until
from topology import StreamsBuilder

with warnings.catch_warnings():
    # It reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient

pytestmark = [pytest.mark.system, pytest.mark.slow]
PARTITIONS = 4
DONE, LEFT = 8, 5
PATIENCE_S = 60.0
TRIES = 3
GROUP_TOOL = "consumer.group.ConsumerGroupCommand"


class Running(NamedTuple):
    """An application that has committed ``DONE`` records of its topic, and pauses before ``LEFT`` others of partition 0."""

    servers: str
    group: str
    topic: str

    @property
    def lags(self) -> dict[int, tuple[int, int]]:
        """The committed offset and the lag of each partition."""
        each = DONE // PARTITIONS
        return {index: (each, LEFT if index == 0 else 0) for index in range(PARTITIONS)}


@pytest.fixture(scope="module", params=["bundled", pytest.param("3.9.1", marks=pytest.mark.kafka)])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    server: Server
    if request.param == "bundled":
        server = request.getfixturevalue("bundled_broker")
    else:
        server = request.getfixturevalue("older_kafka")(request.param)
    name = f"seen-{uuid.uuid4().hex[:12]}"
    with connected(server) as cluster:
        cluster.make_topics(PARTITIONS, name, f"{name}-out")
        write(cluster, name, *range(PARTITIONS), count=DONE // PARTITIONS)
        builder = StreamsBuilder()
        builder.stream(name).to(f"{name}-out")
        config = {
            "application.id": f"{name}-app",
            "bootstrap.servers": cluster.address,
            "client.id": "seen",
            "state.dir": tmp_path_factory.mktemp("state"),
            "group.protocol": "classic",
            "commit.interval.ms": 100,
        }
        with KafkaStreams(builder.build(), config) as streams:
            cluster.wait_all_committed(f"{name}-app", name)
            streams.pause()
            write(cluster, name, 0, count=LEFT)
            yield Running(cluster.address, f"{name}-app", name)


def write(cluster: Cluster, topic: str, *partitions: int, count: int) -> None:
    for partition in partitions:
        cluster.write(topic, [Row(b"k", b"v", 1)] * count, PARTITIONS, partition=partition)


# --------------------------------------------------------------------------------------------------- Kafka's own tools


@pytest.fixture(scope="module")
def tools(running: Running) -> Iterator[AdminTools]:
    require_kafka()
    made = AdminTools(running.servers)
    yield made
    made.close()


def rows_of(tools: AdminTools, *arguments: str) -> list[dict[str, str]]:
    """The tool's table: a row for each line, by the names in its head."""
    done = tools.tool(GROUP_TOOL, *arguments)
    assert done.code == 0, done
    head, *lines = [line for line in done.output.splitlines() if line.strip()]
    names = head.replace("COORDINATOR (ID)", "COORDINATOR ID").split()
    return [dict(zip(names, line.split(), strict=False)) for line in lines]


def test_kafkas_tool_describes_the_group(tools: AdminTools, running: Running) -> None:
    rows = rows_of(tools, "--describe", "--group", running.group)
    assert {int(row["PARTITION"]): (int(row["CURRENT-OFFSET"]), int(row["LAG"])) for row in rows} == running.lags
    assert {row["TOPIC"] for row in rows} == {running.topic}
    assert {row["CLIENT-ID"] for row in rows} == {"seen"}
    (state,) = rows_of(tools, "--describe", "--group", running.group, "--state")
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"], state["#MEMBERS"]) == ("Stable", PROTOCOL_NAME, "1")
    (member,) = rows_of(tools, "--describe", "--group", running.group, "--members", "--verbose")
    assert member["#PARTITIONS"] == str(PARTITIONS)
    assert running.topic in " ".join(member.values())


def test_kafkas_tool_lists_it_and_leaves_what_is_in_use(tools: AdminTools, running: Running) -> None:
    listed = tools.tool(GROUP_TOOL, "--list", "--state", "stable")
    assert running.group in listed.output
    deleted = tools.tool(GROUP_TOOL, "--delete", "--group", running.group)
    assert "GroupNotEmptyException" in deleted.text
    reset = ("--reset-offsets", "--to-earliest", "--execute", "--all-topics", "--group", running.group)
    refused = tools.tool(GROUP_TOOL, *reset)
    assert "can only be reset if the group" in refused.text


def test_kafkas_formatter_reads_the_groups_records(tools: AdminTools, running: Running) -> None:
    value = written(tools, "GroupMetadataMessageFormatter", running)[-1]["value"]["data"]
    assert (value["protocolType"], value["protocol"]) == ("consumer", PROTOCOL_NAME)
    (member,) = value["members"]
    assert member["clientId"] == "seen"
    assert running.topic.encode() in base64.b64decode(member["assignment"])
    offsets = written(tools, "OffsetsMessageFormatter", running)
    mine = {each["key"]["data"]["partition"]: each["value"]["data"]["offset"] for each in offsets if each["value"]}
    assert mine == {index: offset for index, (offset, _) in running.lags.items()}


def written(tools: AdminTools, formatter: str, running: Running) -> list[dict[str, Any]]:
    """What Kafka's console consumer prints of the group's records in ``__consumer_offsets``.

    Where the machine is busy it may give up before it has read any: then it reads once more.
    """
    partition = group_partition(running)
    asked = (
        *("--topic", "__consumer_offsets", "--partition", str(partition), "--offset", "earliest"),
        *("--timeout-ms", "10000", "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    for _ in range(TRIES):
        done = tools.tool("consumer.ConsoleConsumer", *asked)
        found = [each for each in read_json(done.output) if each["key"]["data"]["group"] == running.group]
        if found:
            return found
    raise AssertionError(f"no record of {running.group} in partition {partition}: {done}")


def group_partition(running: Running) -> int:
    """Java's hash of the group's name, modulo the number of partitions."""
    found = AdminClient({"bootstrap.servers": running.servers}).list_topics("__consumer_offsets", timeout=PATIENCE_S)
    hashed = functools.reduce(lambda found, letter: found * 31 + ord(letter), running.group, 0)
    return (hashed & 0x7FFFFFFF) % len(found.topics["__consumer_offsets"].partitions)


def read_json(text: str) -> Iterator[Any]:
    """Values one after the other; whatever else is printed before them is left out."""
    decoder, text = json.JSONDecoder(), text[text.find("{") :]
    while text.startswith("{"):
        value, end = decoder.raw_decode(text)
        yield value
        text = text[end:].lstrip()


# ------------------------------------------------------------------------------------------------------------ franz-go


def test_a_lag_exporters_library_works_out_the_lag(running: Running, tmp_path: Path) -> None:
    """kadm of franz-go describes the group, reads its assignments, offsets and ends, as exporters do."""
    lines = run(built_go_client(tmp_path), "lag", running.servers, running.group).splitlines()
    *partitions, total = map(json.loads, lines)
    assert partitions == [
        {
            "step": "lag",
            "state": "Stable",
            "protocol": PROTOCOL_NAME,
            "member": "seen",
            "topic": running.topic,
            "partition": partition,
            "committed": committed,
            "lag": lag,
        }
        for partition, (committed, lag) in running.lags.items()
    ]
    assert total == {"step": "total", "lag": LEFT}


# ---------------------------------------------------------------------------------------------------------- librdkafka


def test_librdkafka_describes_the_group_and_its_lag(running: Running) -> None:
    admin = AdminClient({"bootstrap.servers": running.servers})
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(PATIENCE_S)
    assert running.group in {group.group_id for group in listed.valid}
    described = admin.describe_consumer_groups([running.group])[running.group].result(PATIENCE_S)
    assert described.state == ConsumerGroupState.STABLE
    (member,) = described.members
    assert (member.client_id, member.host.lstrip("/")) == ("seen", "127.0.0.1")
    places = member.assignment.topic_partitions
    assert sorted((place.topic, place.partition) for place in places) == [
        (running.topic, index) for index in range(PARTITIONS)
    ]
    asked = ConsumerGroupTopicPartitions(running.group)
    offsets = admin.list_consumer_group_offsets([asked])[running.group].result(PATIENCE_S).topic_partitions
    reader = Consumer({"bootstrap.servers": running.servers, "group.id": "reader", "enable.auto.commit": False})
    try:
        lags = {}
        for place in offsets:
            _, end = reader.get_watermark_offsets(Place(place.topic, place.partition), PATIENCE_S)
            lags[place.partition] = (place.offset, end - place.offset)
    finally:
        reader.close()
    assert lags == running.lags


def test_kcat_finds_the_group_and_can_not_join_it(running: Running) -> None:
    require("kcat", "kcat")
    kcat = ("kcat", "-b", running.servers, "-q")
    # All of it: what stands behind others' open transactions, too.
    read = (*kcat, "-X", "isolation.level=read_uncommitted", "-C", "-t", "__consumer_offsets", "-o", "beginning", "-e")
    found = subprocess.run([*read, "-f", "%k\n"], capture_output=True, timeout=PATIENCE_S, check=True)
    assert running.group.encode() in found.stdout
    joining = (*kcat, "-d", "cgrp", "-G", running.group, running.topic)
    with subprocess.Popen(joining, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            given_up = threading.Timer(PATIENCE_S, process.kill)
            given_up.start()
            refused = next((line for line in process.stderr if "JoinGroup" in line and "protocol" in line.lower()), "")
            given_up.cancel()
            assert re.search(r"[Ii]nconsistent group protocol", refused)
        finally:
            process.kill()
    (group,) = described_by_kafka_python(running)
    assert (group["group_state"], len(group["members"])) == ("Stable", 1)


# --------------------------------------------------------------------------------------------------------- kafka-python


def described_by_kafka_python(running: Running) -> list[dict[str, Any]]:
    admin = KafkaAdminClient(bootstrap_servers=running.servers)
    try:
        return [admin.describe_groups([running.group])[running.group]]
    finally:
        admin.close()


def test_kafka_python_describes_the_group(running: Running) -> None:
    found: list[dict[str, Any]] = []

    def is_stable() -> bool:
        found[:] = described_by_kafka_python(running)
        return bool(found[0]["group_state"] == "Stable")

    wait_until(is_stable, "a stable group", pause_s=0.2)
    (member,) = found[0]["members"]
    assert found[0]["protocol_type"] == "consumer"
    assert (member["client_id"], member["client_host"].lstrip("/")) == ("seen", "127.0.0.1")
    assert member["member_metadata"]["topics"] == [running.topic]
    assert member["member_assignment"]["assigned_partitions"] == [
        {"topic": running.topic, "partitions": list(range(PARTITIONS))}
    ]
    admin = KafkaAdminClient(bootstrap_servers=running.servers)
    offsets = admin.list_group_offsets(running.group)
    admin.close()
    committed = {(place.topic, place.partition): offset.offset for place, offset in offsets[running.group].items()}
    assert committed == {(running.topic, index): offset for index, (offset, _) in running.lags.items()}
