"""Groups of the consumer protocol with clients of others, and groups that roll from one protocol to the other, on the
bundled broker and on Apache Kafka.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import require_kafka
from tests.interop.group_members import PATIENCE_S, Members, members_of
from tests.interop.test_classic_groups import described, produce

pytestmark = pytest.mark.system
PARTITIONS = 4


@pytest.fixture(params=["librdkafka-new", pytest.param("java-new", marks=pytest.mark.slow)])
def client(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name.startswith("java"):
        require_kafka()
    return name


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    return create(bootstrap_servers, f"consumer-{uuid.uuid4().hex}")


def create(servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(PATIENCE_S)
    return name


def type_of(servers: str, group: str) -> ConsumerGroupType:
    admin = AdminClient({"bootstrap.servers": servers})
    listed = admin.list_consumer_groups().result(PATIENCE_S)
    (found,) = [each.type for each in listed.valid if each.group_id == group]
    assert isinstance(found, ConsumerGroupType)
    return found


@pytest.mark.requirement("CG-243")
def test_two_share_and_one_leaves(tmp_path: Path, bootstrap_servers: str, topic: str, client: str) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        first = members.start(client)
        members.until_shared(first, partitions=PARTITIONS)
        second = members.start(client)
        members.until_shared(first, second, partitions=PARTITIONS)
        assert len(first.assigned) == len(second.assigned) == 2
        members.until_read(produce(bootstrap_servers, topic, range(100)))
        state, clients = described(bootstrap_servers, topic)
        assert (state, len(clients)) == ("STABLE", 2)
        assert type_of(bootstrap_servers, topic) == ConsumerGroupType.CONSUMER
        second.leave()
        members.until_shared(first, partitions=PARTITIONS)
        members.until_read(produce(bootstrap_servers, topic, range(100, 200)))
        first.leave()
    assert described(bootstrap_servers, topic) == ("EMPTY", [])


@pytest.mark.requirement("CG-243")
def test_a_member_that_is_killed_is_missed(tmp_path: Path, bootstrap_servers: str, topic: str, client: str) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        first, second = members.start(client), members.start(client)
        members.until_shared(first, second, partitions=PARTITIONS)
        first.kill()
        members.until_shared(second, partitions=PARTITIONS)
        members.until_read(produce(bootstrap_servers, topic, range(100)))


@pytest.mark.requirement("CG-243")
def test_a_static_member_comes_back_to_what_it_had(
    tmp_path: Path, bootstrap_servers: str, topic: str, client: str
) -> None:
    """It says that it will be back when it closes; within its session, nobody else is disturbed."""
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        stays = members.start(client, instance="stays")
        members.until_shared(stays, partitions=PARTITIONS)
        goes = members.start(client, instance="goes")
        members.until_shared(stays, goes, partitions=PARTITIONS)
        had = goes.assigned
        goes.leave()
        back = members.start(client, instance="goes")
        members.until_shared(stays, back, partitions=PARTITIONS)
        assert back.assigned == had
        members.until_read(produce(bootstrap_servers, topic, range(100)))


@pytest.mark.requirement("CG-109")
def test_topics_by_regular_expression(tmp_path: Path, bootstrap_servers: str, client: str) -> None:
    """Also one that appears later."""
    prefix = f"pattern-{uuid.uuid4().hex}"
    pattern = f"{'~' if client == 'java-new' else '^'}{prefix}-[ab]"
    first, second = create(bootstrap_servers, f"{prefix}-a"), f"{prefix}-b"
    with members_of(tmp_path, bootstrap_servers, prefix, pattern) as members:
        members.start(client)
        members.until_read(produce(bootstrap_servers, first, range(100)))
        create(bootstrap_servers, f"{prefix}-c")
        create(bootstrap_servers, second)
        members.until_read(produce(bootstrap_servers, second, range(100, 200)))


def test_the_assignor_of_choice(tmp_path: Path, bootstrap_servers: str, topic: str, client: str) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        one, two = members.start(client, "range"), members.start(client, "range")
        members.until_shared(one, two, partitions=PARTITIONS)
        assert sorted([one.assigned, two.assigned]) == [[0, 1], [2, 3]]
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        (future,) = admin.describe_consumer_groups([topic]).values()
        assert future.result(PATIENCE_S).partition_assignor == "range"


# Not librdkafka's cooperative-sticky: from its second generation on it leaves data of its own in assignments, which Apache
# Kafka and this broker take for a custom assignor, and refuse to upgrade.
CLASSIC = [
    ("librdkafka", "range"),
    ("aiokafka", "range"),
    ("kafka-python", "range"),
    # Java's two ways through the same protocol: a run has one of them.
    pytest.param("java", "Range", marks=[pytest.mark.slow, pytest.mark.share(2)]),
    pytest.param("java", "CooperativeSticky", marks=[pytest.mark.slow, pytest.mark.share(2)]),
]


@pytest.mark.requirement("CG-154", "CG-155", "CG-159", "CG-241")
@pytest.mark.parametrize(("classic", "strategy"), CLASSIC)
def test_members_roll_to_the_consumer_protocol_and_back(
    tmp_path: Path, bootstrap_servers: str, topic: str, classic: str, strategy: str
) -> None:
    if classic == "java":
        require_kafka()
    numbers = 0
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        running = [members.start(classic, strategy) for _ in range(2)]
        new = "java-new" if classic == "java" else "librdkafka-new"
        for client, kind in ((new, ConsumerGroupType.CONSUMER), (classic, ConsumerGroupType.CLASSIC)):
            options = () if client.endswith("-new") else (strategy,)
            for _ in range(2):
                read_on(members, bootstrap_servers, topic, numbers)
                numbers += 100
                running.pop(0).leave()
                running.append(members.start(client, *options))
                members.until_shared(*running, partitions=PARTITIONS)
            assert type_of(bootstrap_servers, topic) == kind
        read_on(members, bootstrap_servers, topic, numbers)


def read_on(members: Members, servers: str, topic: str, first: int) -> None:
    members.until_read(produce(servers, topic, range(first, first + 100)))
