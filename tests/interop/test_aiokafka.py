"""aiokafka's own producer, consumer and admin client against the bundled broker and Apache Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError

from tests.streams_server import run_and_close

pytestmark = pytest.mark.system
PATIENCE_S = 30


async def create(bootstrap_servers: str) -> str:
    name = f"topic-{uuid.uuid4().hex}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, 2, 1)])
        assert answer.topic_errors[0][1] == 0
        again = await admin.create_topics([NewTopic(name, 2, 1)])
        assert again.topic_errors[0][1] == TopicAlreadyExistsError.errno
    finally:
        await admin.close()
    return name


async def consumed(bootstrap_servers: str, topic: str, count: int, **settings: Any) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None, **settings)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        values: list[bytes | None] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(values) < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_come_back_as_they_went(bootstrap_servers: str, codec: str | None, idempotent: bool) -> None:
    values = [b"%05d " % i + b"x" * 100 for i in range(500)]

    async def scenario() -> list[bytes | None]:
        topic = await create(bootstrap_servers)
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, compression_type=codec, enable_idempotence=idempotent, acks="all"
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, value, partition=0) for value in values]
            assert [(await each).offset for each in sent] == list(range(len(values)))
        finally:
            await producer.stop()
        return await consumed(bootstrap_servers, topic, len(values), isolation_level="read_committed")

    assert run_and_close(scenario()) == values
