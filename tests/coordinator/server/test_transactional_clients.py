"""librdkafka and aiokafka with transactions against the broker as a process; and the broker killed under their load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.soak_transactions import read_all, soak
from tests.coordinator.server.processes import BrokerProcess
from tests.streams_server import run_and_close

TIMEOUT_S = 30


@pytest.fixture(scope="module", params=["interval", "group"])
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("clients")
    with BrokerProcess(folder / "data", "--config", f"log.fsync={request.param}") as broker:
        yield broker.address


@pytest.fixture
def topic(address: str, request: pytest.FixtureRequest) -> str:
    name = request.node.originalname
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return str(name)


def transactional(address: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 0, "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    producer.flush(TIMEOUT_S)


def test_commit_and_abort(address: str, topic: str) -> None:
    producer = transactional(address, topic)
    for values, commits in ((["a", "b"], True), (["c"], False), (["d"], True)):
        producer.begin_transaction()
        write(producer, topic, *values)
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    assert read_all(address, topic, 0) == ["a", "b", "d"]


def test_a_newer_producer_fences_the_older(address: str, topic: str) -> None:
    older = transactional(address, topic)
    older.begin_transaction()
    write(older, topic, "lost")
    newer = transactional(address, topic)
    newer.begin_transaction()
    write(newer, topic, "kept")
    newer.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as raised:
        older.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].code() == KafkaError._FENCED
    assert read_all(address, topic, 0) == ["kept"]


def test_offsets_of_a_transaction(address: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "enable.auto.commit": False, "log_level": 0})
    producer = transactional(address, topic)
    partition = TopicPartition(topic, 1, 7)

    def committed() -> int:
        return int(consumer.committed([partition], TIMEOUT_S)[0].offset)

    producer.begin_transaction()
    producer.send_offsets_to_transaction([partition], consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert committed() == 7
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 1, 9)], consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)
    assert committed() == 7
    consumer.close()


def test_aiokafka(address: str, topic: str) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic)
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"a", partition=0)
            await producer.send_offsets_to_transaction({AioTopicPartition(topic, 1): 3}, topic)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"b", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"c", partition=0)
        await producer.stop()

    run_and_close(scenario())
    assert read_all(address, topic, 0) == ["a", "c"]
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "log_level": 0})
    assert consumer.committed([TopicPartition(topic, 1)], TIMEOUT_S)[0].offset == 3
    consumer.close()


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_under_load(tmp_path: Path) -> None:
    numbers = soak(tmp_path / "data", rounds=5, seed=7, steps_max=30)
    assert numbers["committed"] > 10
    assert numbers["plain"] > 0
