"""Java's ``kafka-consumer-groups`` on a group of the consumer protocol, on the bundled broker and on Apache Kafka."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import require_kafka
from tests.interop.group_members import PATIENCE_S
from tests.interop.test_classic_groups import produce
from tests.kafka_server import tools_classpath

pytestmark = [pytest.mark.system, pytest.mark.slow]
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def group(bootstrap_servers: str) -> Iterator[str]:
    """A group of one member that has read and committed everything of a topic of its name, which has four partitions."""
    require_kafka()
    name = f"tool-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 4, 1)]).values():
        future.result(PATIENCE_S)
    produce(bootstrap_servers, name, range(8))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": name,
            "group.protocol": "consumer",
            "group.instance.id": "one",
            "client.id": "me",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    assert len(consumer.consume(8, PATIENCE_S)) == 8
    consumer.commit(offsets=[TopicPartition(name, index, 2) for index in range(4)], asynchronous=False)
    yield name
    consumer.close()


def rows_of(servers: str, *arguments: str) -> list[dict[str, str]]:
    """The tool's table: a row for each line, by the names in its head."""
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", tools_classpath(), TOOL]
    done = subprocess.run(
        [*command, "--bootstrap-server", servers, "--timeout", "60000", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    head = lines[0].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
    return [dict(zip(head, line.split(), strict=False)) for line in lines[1:]]


@pytest.mark.requirement("CG-201", "CG-202", "CG-222")
def test_describe(bootstrap_servers: str, group: str) -> None:
    rows = rows_of(bootstrap_servers, "--describe", "--group", group)
    assert [
        (row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in sorted_by_partition(rows)
    ] == [(group, str(index), "2", "0") for index in range(4)]
    assert {row["CLIENT-ID"] for row in rows} == {"me"}
    (state,) = rows_of(bootstrap_servers, "--describe", "--group", group, "--state", "--verbose")
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"], state["#MEMBERS"]) == ("Stable", "uniform", "1")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"]
    (member,) = rows_of(bootstrap_servers, "--describe", "--group", group, "--members", "--verbose")
    assert (member["GROUP-INSTANCE-ID"], member["#PARTITIONS"], member["CURRENT-EPOCH"]) == (
        "one",
        "4",
        state["GROUP-EPOCH"],
    )


def sorted_by_partition(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(rows, key=lambda row: row["PARTITION"])


@pytest.mark.requirement("CG-206", "CG-207")
def test_list_by_type_and_state(bootstrap_servers: str, group: str) -> None:
    found = rows_of(bootstrap_servers, "--list", "--type", "consumer", "--state", "stable")
    assert {"GROUP": group, "TYPE": "Consumer", "STATE": "Stable"} in found
    classic = rows_of(bootstrap_servers, "--list", "--type", "classic", "--state", "stable")
    assert group not in {row["GROUP"] for row in classic}
