"""Groups of the classic protocol with clients of others: who shares what, on the bundled broker and on Apache Kafka."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.fixtures_brokers import require_kafka
from tests.interop.group_members import PATIENCE_S, members_of

pytestmark = pytest.mark.system
PARTITIONS = 4
CLIENTS = [
    ("librdkafka", "range"),
    ("librdkafka", "roundrobin"),
    ("librdkafka", "cooperative-sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "sticky"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    pytest.param("java", "RoundRobin", marks=pytest.mark.kafka),
    pytest.param("java", "CooperativeSticky", marks=pytest.mark.kafka),
]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    name = f"classic-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(PATIENCE_S)
    return name


def produce(servers: str, topic: str, numbers: range) -> set[str]:
    producer = Producer({"bootstrap.servers": servers})
    values = {f"v{number}" for number in numbers}
    for number in numbers:
        producer.produce(topic, f"v{number}".encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    return values


def described(servers: str, group: str) -> tuple[str, list[str]]:
    """State of a group and the client ids of its members, as librdkafka's admin client shows them."""
    admin = AdminClient({"bootstrap.servers": servers})
    (future,) = admin.describe_consumer_groups([group]).values()
    found = future.result(PATIENCE_S)
    assert isinstance(found.state, ConsumerGroupState)
    return found.state.name, sorted(member.client_id for member in found.members)


@pytest.mark.requirement("CG-243")
@pytest.mark.parametrize(("client", "strategy"), CLIENTS)
def test_two_share_and_one_leaves(
    tmp_path: Path, bootstrap_servers: str, topic: str, client: str, strategy: str
) -> None:
    if client == "java":
        require_kafka()
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        first = members.start(client, strategy)
        members.until_shared(first, partitions=PARTITIONS)
        second = members.start(client, strategy)
        members.until_shared(first, second, partitions=PARTITIONS)
        assert len(first.assigned) == len(second.assigned) == 2
        members.until_read(produce(bootstrap_servers, topic, range(100)))
        state, clients = described(bootstrap_servers, topic)
        assert state == "STABLE"
        assert len(clients) == 2
        second.leave()
        members.until_shared(first, partitions=PARTITIONS)
        members.until_read(produce(bootstrap_servers, topic, range(100, 200)))
        first.leave()
    assert described(bootstrap_servers, topic) == ("EMPTY", [])


@pytest.mark.requirement("CG-243")
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka", "kafka-python"])
def test_a_member_that_is_killed_is_missed(tmp_path: Path, bootstrap_servers: str, topic: str, client: str) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        first, second = members.start(client), members.start(client)
        members.until_shared(first, second, partitions=PARTITIONS)
        first.kill()
        members.until_shared(second, partitions=PARTITIONS)
        members.until_read(produce(bootstrap_servers, topic, range(100)))


def test_clients_of_all_kinds_share_by_range(tmp_path: Path, bootstrap_servers: str, topic: str) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        one = members.start("librdkafka", "range")
        members.until_shared(one, partitions=PARTITIONS)
        two = members.start("aiokafka", "range")
        members.until_shared(one, two, partitions=PARTITIONS)
        three = members.start("kafka-python", "range")
        members.until_shared(one, two, three, partitions=PARTITIONS)
        one.leave()
        members.until_shared(two, three, partitions=PARTITIONS)
        members.until_read(produce(bootstrap_servers, topic, range(100)))


@pytest.mark.requirement("CG-243")
@pytest.mark.parametrize("client", ["librdkafka", "aiokafka"])
def test_a_static_member_comes_back_to_what_it_had(
    tmp_path: Path, bootstrap_servers: str, topic: str, client: str
) -> None:
    """Within its session, nobody else is disturbed."""
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        stays = members.start(client, instance="stays")
        members.until_shared(stays, partitions=PARTITIONS)
        goes = members.start(client, instance="goes")
        members.until_shared(stays, goes, partitions=PARTITIONS)
        had, seen = goes.assigned, len(stays.history)
        goes.kill()
        back = members.start(client, instance="goes")
        members.until_shared(stays, back, partitions=PARTITIONS)
        assert back.assigned == had
        assert len(stays.history) == seen
        members.until_read(produce(bootstrap_servers, topic, range(100)))


def test_a_member_that_supports_no_protocol_of_the_others_is_refused(
    tmp_path: Path, bootstrap_servers: str, topic: str
) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        eager = members.start("librdkafka", "range")
        members.until_shared(eager, partitions=PARTITIONS)
        cooperative = members.start("librdkafka", "cooperative-sticky")
        members.until(lambda: any("INCONSISTENT" in error for error in cooperative.errors), "the member is refused")
        assert eager.assigned == list(range(PARTITIONS))


def test_cooperative_members_keep_what_stays_with_them(tmp_path: Path, bootstrap_servers: str, topic: str) -> None:
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        stays = members.start("librdkafka", "cooperative-sticky")
        members.until_shared(stays, partitions=PARTITIONS)
        seen = len(stays.history)
        more = members.start("librdkafka", "cooperative-sticky")
        members.until_shared(stays, more, partitions=PARTITIONS)
        assert all(set(stays.assigned) <= set(assigned) for assigned in stays.history[seen - 1 :])


@pytest.mark.kafka
@pytest.mark.requirement("CR-049")
@pytest.mark.parametrize("strategy", ["Range", "CooperativeSticky"])
def test_who_shares_with_a_member_more(tmp_path: Path, bootstrap_servers: str, topic: str, strategy: str) -> None:
    """Scenario C1: an eager member gives up everything first, a cooperative one never stops what it keeps."""
    require_kafka()
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        stays = members.start("java", strategy)
        members.until_shared(stays, partitions=PARTITIONS)
        seen = len(stays.history)
        more = members.start("java", strategy)
        members.until_shared(stays, more, partitions=PARTITIONS)
        kept = [set(stays.assigned) <= set(assigned) for assigned in stays.history[seen - 1 :]]
        assert all(kept) == (strategy == "CooperativeSticky")
        assert ([] in stays.history[seen:]) == (strategy == "Range")


@pytest.mark.kafka
@pytest.mark.requirement("CR-050", "CR-053")
def test_from_eager_to_cooperative_by_two_rolling_bounces(tmp_path: Path, bootstrap_servers: str, topic: str) -> None:
    """Scenario C2: each member is restarted with both protocols, then with the cooperative one only."""
    require_kafka()
    with members_of(tmp_path, bootstrap_servers, topic, topic) as members:
        running = [members.start("java", "Range") for _ in range(2)]
        members.until_shared(*running, partitions=PARTITIONS)
        shortcut = members.start("java", "CooperativeSticky")
        members.until(lambda: any("Inconsistent" in error for error in shortcut.errors), "the shortcut is refused")
        sent = 0
        for strategies in (["Range", "CooperativeSticky"], ["CooperativeSticky"]):
            for place in range(2):
                other = running[1 - place]
                seen = len(other.history)
                running[place].leave()
                running[place] = members.start("java", *strategies)
                members.until_shared(*running, partitions=PARTITIONS)
                is_eager = len(strategies) == 2 or place == 0
                assert ([] in other.history[seen:]) == is_eager
                members.until_read(produce(bootstrap_servers, topic, range(sent, sent + 50)))
                sent += 50
