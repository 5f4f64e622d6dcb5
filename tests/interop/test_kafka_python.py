"""kafka-python against the bundled broker and Apache Kafka."""

from __future__ import annotations

import uuid
import warnings

import pytest

from tests.fixtures_brokers import BundledBroker

with warnings.catch_warnings():
    # It reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError

pytestmark = pytest.mark.system
PATIENCE_S = 30


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    admin.close()
    return name


def consumed(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None, consumer_timeout_ms=PATIENCE_S * 1000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    assert consumer.end_offsets([partition])[partition] >= count
    consumer.close()
    return values


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_went(
    bootstrap_servers: str, topic: str, codec: str | None, idempotent: bool
) -> None:
    values = [b"%05d " % i + b"x" * 100 for i in range(500)]
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", compression_type=codec, enable_idempotence=idempotent
    )
    sent = [producer.send(topic, value, partition=0) for value in values]
    assert [each.get(PATIENCE_S).offset for each in sent] == list(range(len(values)))
    producer.close()
    assert consumed(bootstrap_servers, topic, len(values)) == values


def test_admin(bootstrap_servers: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])
    assert len(described[0]["partitions"]) == 2
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()


def test_a_group_whose_member_polls_is_described_as_stable(bootstrap_servers: str, topic: str) -> None:
    group = f"group-{topic}"
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap_servers, group_id=group)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    for _ in range(PATIENCE_S):
        # kafka-python forgets an assignment that arrives after the end of the poll that joined.
        consumer.poll(1_000)
        described = admin.describe_groups([group])[group]
        if described["group_state"] == "Stable" and consumer.assignment():
            break
    assert (described["group_state"], len(described["members"])) == ("Stable", 1)
    assert described["members"][0]["member_assignment"]["assigned_partitions"] == [
        {"topic": topic, "partitions": [0, 1]}
    ]
    admin.close()
    consumer.close()


def test_an_unknown_topic_is_an_error(bundled_broker: BundledBroker) -> None:
    """Apache Kafka creates it: ``auto.create.topics.enable`` is on there unless it is turned off."""
    producer = KafkaProducer(bootstrap_servers=bundled_broker.bootstrap_servers, max_block_ms=500)
    with pytest.raises(KafkaError):
        producer.send("no-such-topic", b"v").get(PATIENCE_S)
    producer.close()
