"""Clients read a topic that was compacted under them: gaps, emptied batches, aborted transactions, tombstones."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.coordinator.server.processes import BrokerProcess
from tests.fixtures_brokers import require_kafka
from tests.interop.admin_tools import AdminTools

with warnings.catch_warnings():
    # It reads its schemas in a way that Python has deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PythonTopicPartition

pytestmark = pytest.mark.system
PATIENCE_S = 60.0
KEYS = [f"key-{number}" for number in range(5)]
Row = tuple[int, str, str | None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    quick = ("--config", "log.cleaner.backoff.ms=50", "--config", "log.cleaner.min.cleanable.ratio=0.01")
    with BrokerProcess(tmp_path_factory.mktemp("compacted") / "data", *quick) as process:
        yield process
        assert "Traceback" not in process.log, process.log


@pytest.fixture(scope="module")
def compacted(broker: BrokerProcess) -> tuple[str, list[Row]]:
    """The name of the topic, and what is to be read of it: by key, the last committed record."""
    name = f"compacted-{uuid.uuid4().hex}"
    settings = {"cleanup.policy": "compact", "segment.bytes": "4000", "max.message.bytes": "4000"}
    admin = AdminClient({"bootstrap.servers": broker.address})
    (made,) = admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values()
    made.result(PATIENCE_S)
    last: dict[str, Row] = {}
    producer = Producer(
        {"bootstrap.servers": broker.address, "transactional.id": name, "linger.ms": 0, "batch.num.messages": 3}
    )
    producer.init_transactions(PATIENCE_S)

    def put(key: str, value: str | None) -> None:
        def note(error: object, record: object) -> None:
            last[key] = (record.offset(), key, value)  # type: ignore[attr-defined]

        producer.produce(name, value, key, partition=0, on_delivery=note)

    for number in range(40):
        before = dict(last)
        producer.begin_transaction()
        for key in KEYS:
            put(key, None if key == "key-4" and number == 20 else f"value-{number}-" + "x" * 50)
        producer.flush(PATIENCE_S)
        if number % 4 == 3:
            producer.abort_transaction(PATIENCE_S)
            last.update(before)
        else:
            producer.commit_transaction(PATIENCE_S)
    closing = Producer({"bootstrap.servers": broker.address})
    for number in range(60):
        offsets: list[int] = []
        closing.produce(
            name,
            f"{number}" + "x" * 100,
            "closing",
            partition=0,
            on_delivery=lambda _, r, to=offsets: to.append(r.offset()),
        )
        closing.flush(PATIENCE_S)
        last["closing"] = (offsets[0], "closing", f"{number}" + "x" * 100)
    expected = sorted(last.values())
    deadline = time.monotonic() + PATIENCE_S
    while len([row for row in read_with_librdkafka(broker, name) if row[1] != "closing"]) > len(KEYS):
        assert time.monotonic() < deadline, read_with_librdkafka(broker, name)
    return name, expected


def latest(rows: list[Row]) -> list[Row]:
    """The active segment is not compacted: of what is read of it, the last record of each key."""
    return sorted({row[1]: row for row in rows}.values())


def read_with_librdkafka(broker: BrokerProcess, topic: str) -> list[Row]:
    settings = {"bootstrap.servers": broker.address, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    rows: list[Row] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        record = consumer.poll(PATIENCE_S)
        assert record is not None
        error = record.error()
        if error is not None:
            if error.name() != "_PARTITION_EOF":
                raise KafkaException(error)
            consumer.close()
            return rows
        value = record.value()
        rows.append((record.offset(), record.key().decode(), None if value is None else value.decode()))


def test_librdkafka(broker: BrokerProcess, compacted: tuple[str, list[Row]]) -> None:
    topic, expected = compacted
    assert latest(read_with_librdkafka(broker, topic)) == expected


def test_kafka_python(broker: BrokerProcess, compacted: tuple[str, list[Row]]) -> None:
    topic, expected = compacted
    partition = PythonTopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.address, isolation_level="read_committed")
    consumer.assign([partition])
    consumer.seek(partition, 0)
    (end,) = consumer.end_offsets([partition]).values()
    rows: list[Row] = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(partition) < end:
        assert time.monotonic() < deadline
        for records in consumer.poll(timeout_ms=1000).values():
            rows += [(r.offset, r.key.decode(), None if r.value is None else r.value.decode()) for r in records]
    consumer.close()
    assert latest(rows) == expected


@pytest.mark.kafka
def test_java(broker: BrokerProcess, compacted: tuple[str, list[Row]], tmp_path: Path) -> None:
    require_kafka()
    topic, expected = compacted
    count = len(read_with_librdkafka(broker, topic))
    tools = AdminTools(broker.address)
    try:
        printed = [f"print.{what}=true" for what in ("key", "offset")]
        done = tools.tool(
            "consumer.ConsoleConsumer",
            *("--topic", topic, "--from-beginning", "--isolation-level", "read_committed"),
            *("--max-messages", str(count), "--timeout-ms", "60000"),
            *(word for each in printed for word in ("--formatter-property", each)),
        )
    finally:
        tools.close()
    assert done.code == 0, done
    rows: list[Row] = []
    for line in done.output.splitlines():
        offset, key, value = line.split("\t")
        rows.append((int(offset.removeprefix("Offset:")), key, None if value == "null" else value))
    assert latest(rows) == expected
