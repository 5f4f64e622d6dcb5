"""A cluster as the tests of whole applications see it: topics in, records out.

Records are read with librdkafka (confluent-kafka), which knows nothing of this project.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import confluent_kafka

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import EARLIEST, LATEST, ClientConfig, NewTopic, TopicPartition
from streamsrt.tasks.output.record_collector import RecordCollector
from tests.system.processes import PATIENCE_S, Joining, wait_until
from tests.tcp_proxy import TcpProxy


class Server(Protocol):
    """A broker that can be killed and started again at the same address, with the same data."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def proxy(self) -> TcpProxy | None: ...
    @property
    def has_ended(self) -> bool: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


class Record(NamedTuple):
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Row(NamedTuple):
    """A record to write. ``partition`` None: by key."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 0


class Cluster:
    """One broker with what a test needs of it."""

    def __init__(self, server: Server, network: NetworkThread, address: str) -> None:
        self.server = server
        self.network = network
        self.address = address

    def make_topics(self, partitions: int, *names: str) -> None:
        """Fresh topics of these names. They keep records however old these are: event times lie in the past."""
        self.delete_topics(*names)
        left = list(names)

        def made() -> bool:
            """With ZooKeeper a topic that nobody sees any more may still be on its way out."""
            results = self.network.admin.create_topics(
                [NewTopic(name=name, partitions=partitions, configs={"retention.ms": "-1"}) for name in left]
            )
            left[:] = [name for name, error in results.items() if error is not None]
            return all(error is None or "TOPIC_ALREADY_EXISTS" in str(error) for error in results.values()) and not left

        wait_until(made, f"{names} are made", pause_s=0.2)

    def delete_topics(self, *names: str) -> None:
        """The topics of these names don't exist afterwards. A coordinator may have made new ones meanwhile.

        That is done over another connection: one that knows the old topics might write to them while they are being deleted.
        """
        with connected(self.server, self.address) as other:
            admin = other.network.admin
            present = admin.topics(names)
            if present:
                for error in admin.delete_topics(list(present)).values():
                    assert error is None
                ids = {name: topic.topic_id for name, topic in present.items()}
                wait_until(
                    lambda: all(topic.topic_id != ids.get(name) for name, topic in admin.topics(names).items()),
                    f"{list(present)} are deleted",
                )

    def write(
        self,
        topic: str,
        rows: Sequence[Row],
        partitions: int,
        *,
        partition: int | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> None:
        """Writes rows and waits until all of them are acknowledged."""
        collector = RecordCollector(self.network.producer.send, lambda _topic: partitions)
        for start in range(0, len(rows), 500):
            part = rows[start : start + 500]
            collector.add(
                topic,
                [row.key for row in part],
                [row.value for row in part],
                [row.timestamp for row in part],
                None,
                partition,
            )
        collector.flush()
        self.network.producer.flush(timeout_s)

    def ends(self, topic: str) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""
        count = self.network.admin.partitions_for([topic])[topic]
        found = self.network.admin.list_offsets({(topic, index): LATEST for index in range(count)})
        return {place: at.offset for place, at in found.items()}

    def starts(self, topic: str) -> dict[TopicPartition, int]:
        count = self.network.admin.partitions_for([topic])[topic]
        found = self.network.admin.list_offsets({(topic, index): EARLIEST for index in range(count)})
        return {place: at.offset for place, at in found.items()}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        return {place: at.offset for place, at in self.network.admin.committed(group).items()}

    def wait_all_committed(self, group: str, *topics: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the group has committed the ends of these topics."""

        missing: dict[TopicPartition, tuple[int | None, int]] = {}

        def done() -> bool:
            committed = self.committed(group)
            missing.clear()
            for topic in topics:
                for place, end in self.ends(topic).items():
                    if committed.get(place, 0) < end:
                        missing[place] = (committed.get(place), end)
            return not missing

        try:
            wait_until(done, f"group {group} has committed all of {topics}", timeout_s=timeout_s, pause_s=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}; committed offsets and ends: {missing}") from None

    def members(self, group: str) -> list[str]:
        """Of a streams group or a classic one."""
        if Joining.protocol == "classic":
            return [member.member_id for member in self.network.admin.describe_classic_groups([group])[0].members]
        return [member.member_id for member in self.network.admin.describe_streams_groups([group])[0].members]

    def read(self, topic: str) -> list[Record]:
        """Every record of the topic, read by librdkafka; in order within a partition."""
        ends = {index: end for (_, index), end in self.ends(topic).items()}
        starts = {index: start for (_, index), start in self.starts(topic).items()}
        left = {index for index in ends if starts[index] < ends[index]}
        if not left:
            return []
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reader-of-tests",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        found: list[Record] = []
        with contextlib.closing(consumer):
            consumer.assign([confluent_kafka.TopicPartition(topic, index, starts[index]) for index in left])
            while left:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{topic}: nothing comes, but partitions {left} are not at their ends"
                left -= self._take(message, found, ends)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    @staticmethod
    def _take(message: confluent_kafka.Message, found: list[Record], ends: Mapping[int, int]) -> set[int]:
        error, partition, offset = message.error(), message.partition(), message.offset()
        assert partition is not None
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error.str()
            return {partition}
        assert offset is not None
        found.append(Record(partition, offset, message.timestamp()[1], message.key(), message.value()))
        return {partition} if offset + 1 >= ends[partition] else set()


def with_session_timeout(cluster: Cluster, group: str, timeout_ms: int) -> dict[str, object]:
    """So long its members may be silent: a setting of the group, or where applications form classic groups one of theirs,
    which is returned."""
    if Joining.protocol == "classic":
        return {"session.timeout.ms": timeout_ms}
    cluster.network.admin.alter_group_configs(group, {"streams.session.timeout.ms": str(timeout_ms)})
    return {}


def last_values(records: Iterable[Record]) -> dict[bytes | None, bytes | None]:
    """The last value of each key, as a table holds it."""
    return {record.key: record.value for record in records}


def count_keys(records: Iterable[Record]) -> Counter[bytes | None]:
    return Counter(record.key for record in records)


@contextlib.contextmanager
def connected(server: Server, address: str | None = None) -> Iterator[Cluster]:
    """``address``: where clients connect to, if that is not the server's own: a proxy's."""
    address = address or server.bootstrap_servers
    network = NetworkThread(ClientConfig(bootstrap_servers=address, client_id="tests"))
    network.start()
    try:
        yield Cluster(server, network, address)
    finally:
        network.stop()
