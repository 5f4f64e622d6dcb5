"""Joins across subtopologies on a broker: a foreign-key join through its internal topics, and a global table."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from streamsrt import KafkaStreams
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import ClientConfig, NewTopic
from streamsrt.wire.murmur2 import partition_for_key
from streamsrt.wire.records import decode_batches, encode_batch
from tests.fixtures_brokers import BundledBroker
from topology import StreamsBuilder, serdes
from topology.graph.topology import Topology

PARTITIONS = {"books": 3, "authors": 2, "shelves": 2, "out": 1}
RECORDS = [
    ("shelves", "b1", "A"),
    ("shelves", "b2", "B"),
    ("books", "b1", "w Orlando"),
    ("books", "b2", "k Amerika"),
    ("books", "b3", "w Flush"),
    ("authors", "w", "Woolf"),
    ("authors", "k", "Kafka"),
]


def library(prefix: str) -> Topology:
    builder = StreamsBuilder()
    books = builder.table(prefix + "books", key=serdes.string, value=serdes.string)
    authors = builder.table(prefix + "authors", key=serdes.string, value=serdes.string)
    shelves = builder.global_table(prefix + "shelves", key=serdes.string, value=serdes.string, store="shelves")
    written = books.join(authors, lambda book, author: f"{book[2:]} by {author}", foreign_key=lambda book: book[0])
    placed = written.to_stream().left_join(shelves, lambda book, shelf: f"{book}, {shelf}", on=lambda key, _: key)
    placed.to(prefix + "out", key=serdes.string, value=serdes.string)
    return builder.build()


def write(network: NetworkThread, prefix: str) -> None:
    network.admin.create_topics([NewTopic(name=prefix + name, partitions=count) for name, count in PARTITIONS.items()])
    for topic, key, value in RECORDS:
        raw = key.encode()
        batch = encode_batch([raw], [value.encode()], [int(time.time() * 1000)])
        network.producer.send(prefix + topic, partition_for_key(raw, PARTITIONS[topic]), batch, 1)
    network.producer.flush(60)


def read(network: NetworkThread, topic: str, count: int) -> dict[bytes | None, bytes | None]:
    """The last value of each key, as soon as there are so many."""
    network.fetcher.add_partitions({(topic, 0): 0})
    found: dict[bytes | None, bytes | None] = {}
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        network.wait(1)
        for fetched in network.fetcher.poll(0.1):
            for columns in decode_batches(fetched.buffer):
                found.update(zip(columns.keys, columns.values, strict=True))
    return found


def test_rows_find_each_other_and_a_restart_changes_nothing(bundled_broker: BundledBroker, tmp_path: Path) -> None:
    prefix = f"library-{uuid.uuid4().hex[:8]}-"
    config = {
        "application.id": prefix + "app",
        "bootstrap.servers": bundled_broker.bootstrap_servers,
        "state.dir": str(tmp_path),
        "commit.interval.ms": 300,
    }
    network = NetworkThread(ClientConfig(bootstrap_servers=bundled_broker.bootstrap_servers))
    network.start(60)
    try:
        write(network, prefix)
        for _ in range(2):
            KafkaStreams(library(prefix), config).run(until="quiet")
        assert read(network, prefix + "out", 3) == {
            b"b1": b"Orlando by Woolf, A",
            b"b2": b"Amerika by Kafka, B",
            b"b3": b"Flush by Woolf, None",
        }
    finally:
        network.stop()
