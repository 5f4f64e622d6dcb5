"""librdkafka, through confluent-kafka, against the bundled broker and Apache Kafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

pytestmark = pytest.mark.system
PATIENCE_S = 30.0


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers})


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    result(admin.create_topics([NewTopic(name, 2, 1)]))
    eventually(lambda: partitions(admin, name), 2)
    return name


def partitions(admin: AdminClient, topic: str) -> int:
    """How many partitions a topic has; 0 where there is none."""
    found = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
    return 0 if found is None else len(found.partitions)


def eventually(look: Callable[[], Any], expected: Any) -> None:
    """Looks until the expected is seen: Apache Kafka's broker hears of a change some time after the client."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) != expected:
        assert time.monotonic() < deadline, found


def result(futures: dict[Any, Any]) -> Any:
    """The result of the only future."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def produce(bootstrap_servers: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """Produces to partition 0 and checks that each record was acknowledged at its place."""
    delivered: list[tuple[KafkaError | None, int]] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, **settings})
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, record: delivered.append((error, record.offset()))
        )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert [error for error, _ in delivered if error is not None] == []
    assert [offset for _, offset in delivered] == list(range(len(values)))


def consume(bootstrap_servers: str, topic: str, count: int, offset: int = 0, **settings: Any) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "manual", "enable.auto.commit": False, **settings}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    records = consumer.consume(count, PATIENCE_S)
    consumer.close()
    assert [record.error() for record in records if record.error()] == []
    return [record.value() for record in records]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_went(bootstrap_servers: str, topic: str, codec: str, idempotent: bool) -> None:
    values = [b"%05d " % i + b"x" * 200 for i in range(3000)]
    produce(bootstrap_servers, topic, values, **{"compression.type": codec, "enable.idempotence": idempotent})
    assert consume(bootstrap_servers, topic, len(values)) == values
    assert consume(bootstrap_servers, topic, 10, 2990) == values[2990:]


def test_without_acknowledgements(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": 0})
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert consume(bootstrap_servers, topic, 1) == [b"v"]


def test_read_committed_sees_what_is_no_transaction(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, [b"v"])
    assert consume(bootstrap_servers, topic, 1, **{"isolation.level": "read_committed"}) == [b"v"]


def test_offsets_are_committed_and_found(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, [b"0", b"1", b"2"])
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    assert [each.offset for each in consumer.committed([TopicPartition(topic, i) for i in (0, 1)], PATIENCE_S)] == [
        2,
        -1001,
    ]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S) == (0, 3)
    assert consumer.offsets_for_times([TopicPartition(topic, 0, 0)], PATIENCE_S)[0].offset == 0
    consumer.close()


def test_a_record_that_is_too_large(bootstrap_servers: str, topic: str) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "message.max.bytes": 5_000_000})
    producer.produce(topic, b"x" * 2_000_000, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert [error.code() for error in errors if error is not None] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_transactions(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for value, commits in ((b"committed", True), (b"aborted", False), (b"committed too", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    committed = {"isolation.level": "read_committed"}
    assert consume(bootstrap_servers, topic, 2, **committed) == [b"committed", b"committed too"]
    assert consume(bootstrap_servers, topic, 3, **{"isolation.level": "read_uncommitted"}) == [
        b"committed",
        b"aborted",
        b"committed too",
    ]
    Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic}).init_transactions(PATIENCE_S)
    with pytest.raises(KafkaException) as fenced:
        act_as_zombie(producer, topic)
    assert fenced.value.args[0].code() in {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def act_as_zombie(producer: Producer, topic: str) -> None:
    """What a producer does that has been replaced, but does not know it yet."""
    producer.begin_transaction()
    producer.produce(topic, b"from a zombie", partition=0)
    producer.commit_transaction(PATIENCE_S)


class TestAdmin:
    def test_topics(self, admin: AdminClient, topic: str) -> None:
        with pytest.raises(KafkaException) as refused:
            result(admin.create_topics([NewTopic(topic, 1, 1)]))
        assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
        assert partitions(admin, topic) == 2
        result(admin.create_partitions([NewPartitions(topic, 5)]))
        eventually(lambda: partitions(admin, topic), 5)
        result(admin.delete_topics([topic]))
        eventually(lambda: partitions(admin, topic), 0)

    def test_configs(self, admin: AdminClient, topic: str) -> None:
        resource = ConfigResource(
            ResourceType.TOPIC,
            topic,
            incremental_configs=[ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)],
        )
        result(admin.incremental_alter_configs([resource]))

        def retention() -> tuple[str, bool]:
            entry = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))["retention.ms"]
            return entry.value, entry.is_default

        eventually(retention, ("5000", False))
        described = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
        assert described["num.partitions"].value == "1"

    def test_records_and_offsets(self, bootstrap_servers: str, admin: AdminClient, topic: str) -> None:
        produce(bootstrap_servers, topic, [b"0", b"1", b"2"])
        partition = TopicPartition(topic, 0)
        for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 3), (OffsetSpec.max_timestamp(), 2)):
            assert result(admin.list_offsets({partition: spec})).offset <= offset
        assert result(admin.list_offsets({partition: OffsetSpec.latest()})).offset == 3
        assert result(admin.delete_records([TopicPartition(topic, 0, 2)])).low_watermark == 2
        assert result(admin.list_offsets({partition: OffsetSpec.earliest()})).offset == 2

    def test_cluster_and_groups(self, admin: AdminClient) -> None:
        cluster = admin.describe_cluster().result(PATIENCE_S)
        assert [node.id for node in cluster.nodes] == [1]
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        assert listed.errors == []
