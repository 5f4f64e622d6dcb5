"""What is committed in topics of two partitions."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
PATIENCE_S = 300


def committed_rows(bootstrap_servers: str, topic: str) -> Iterator[list[Row]]:
    """The records of each partition."""
    settings = {"group.id": "reader", "enable.partition.eof": True, "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **settings})
    try:
        for number in range(2):
            consumer.assign([TopicPartition(topic, number, 0)])
            found: list[Row] = []
            while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
                found.append((message.key(), message.value(), tuple(message.headers() or ())))
            yield found
    finally:
        consumer.close()


def by_key(partitions: Iterator[list[Row]]) -> list[dict[bytes | None, list[Row]]]:
    """The records of each key, in their order: how several input partitions mix in one output is nobody's to say."""
    found: list[dict[bytes | None, list[Row]]] = []
    for rows in partitions:
        found.append({})
        for row in rows:
            found[-1].setdefault(row[0], []).append(row)
    return found
