"""Transactions over real brokers: what is committed counts, once and with its offsets; nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import (
    EARLIEST,
    LATEST,
    FetchConfig,
    NewTopic,
    OffsetAndMetadata,
    ProducerConfig,
    ProducerFencedError,
    StaleMemberEpochError,
    TransactionLostError,
)
from streamsrt.errors import ConfigError
from streamsrt.membership.member import Member
from streamsrt.membership.values import NOTHING, AssignmentChanged, GroupMembership, Leave, ReportOwned
from streamsrt.wire import types
from streamsrt.wire.records import encode_batch
from tests.fixtures_brokers import QUICK_GROUPS, BundledBroker, require_kafka
from tests.kafka_server import KafkaServer
from tests.streamsrt.client.batches import collect
from tests.streamsrt.client.conftest import Connect

WAIT_S = 30.0
COMMITTED = FetchConfig(max_wait_ms=50, isolation_level="read_committed")


def batch(*values: int) -> bytes:
    texts: list[bytes | None] = [str(value).encode() for value in values]
    return encode_batch([b"k"] * len(values), texts, list(values), transactional=True)


def producer(connect: Connect, address: str, transactional_id: str, timeout_ms: int = 20_000) -> NetworkThread:
    config = ProducerConfig(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    network = connect(address, producer=config, fetch=COMMITTED)
    network.transactions.initialize(WAIT_S)
    return network


def create(network: NetworkThread, name: str, partitions: int = 2) -> None:
    assert network.admin.create_topics([NewTopic(name=name, partitions=partitions)]) == {name: None}


def committed_values(network: NetworkThread, topic: str, count: int, partition: int = 0) -> list[int]:
    network.fetcher.add_partitions({(topic, partition): 0})
    try:
        return collect(network.fetcher, count).get((topic, partition), [])
    finally:
        network.fetcher.remove_partitions([(topic, partition)])


def commit(network: NetworkThread, group: str = "", **offsets: int) -> dict[tuple[str, int], int]:
    partitions = {(topic.replace("_", "-"), 0): OffsetAndMetadata(offset, "m") for topic, offset in offsets.items()}
    return network.transactions.commit(group, partitions, member_id="", member_epoch=-1, timeout_s=WAIT_S)


def test_what_is_committed_is_read_once_and_in_order(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name)
    for number in range(5):
        for partition in (0, 1):
            network.producer.send(name, partition, batch(number * 2), 1)
            network.producer.send(name, partition, batch(number * 2 + 1), 1)
        # Two records of a transaction and its marker.
        assert commit(network) == {(name, 0): 3 * number + 2, (name, 1): 3 * number + 2}
    assert committed_values(network, name, 10) == list(range(10))
    assert committed_values(network, name, 10, partition=1) == list(range(10))
    assert commit(network) == {}


def test_an_aborted_transaction_leaves_nothing(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name)
    network.producer.send(name, 0, batch(1), 1)
    commit(network)
    network.producer.send(name, 0, batch(666), 1)
    network.producer.flush(WAIT_S)
    network.producer.send(name, 0, batch(667), 1)
    network.transactions.abort(WAIT_S)
    network.producer.send(name, 0, batch(2), 1)
    commit(network)
    assert committed_values(network, name, 2) == [1, 2]


def test_librdkafka_reads_what_was_committed_and_nothing_else(
    bootstrap_servers: str, connect: Connect, name: str
) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name, 1)
    network.producer.send(name, 0, batch(1, 2), 2)
    commit(network)
    network.producer.send(name, 0, batch(666), 1)
    network.producer.flush(WAIT_S)
    network.transactions.abort(WAIT_S)
    network.producer.send(name, 0, batch(3), 1)
    commit(network)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": name, "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        messages = [consumer.poll(WAIT_S) for _ in range(3)]
    finally:
        consumer.close()
    assert [message.value() for message in messages if message is not None] == [b"1", b"2", b"3"]


def test_offsets_count_when_the_transaction_is_committed(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name)
    tp = (name, 0)
    network.producer.send(*tp, batch(1), 1)
    network.transactions.commit(
        name, {tp: OffsetAndMetadata(7, "seven")}, member_id="", member_epoch=-1, timeout_s=WAIT_S
    )
    assert network.admin.committed(name, [tp]) == {tp: OffsetAndMetadata(7, "seven")}

    pending = {tp: OffsetAndMetadata(8, "eight")}
    network._call(network.transactions._send_offsets(name, pending, "", -1, WAIT_S), WAIT_S)
    assert network.admin.committed(name, [tp], require_stable=False)[tp].offset == 7
    network.transactions.abort(WAIT_S)
    assert network.admin.committed(name, [tp])[tp].offset == 7


@pytest.mark.requirement("GA-063")
def test_offsets_alone_make_a_transaction(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name)
    partitions = {(name, partition): OffsetAndMetadata(partition + 1) for partition in (0, 1)}
    assert network.transactions.commit(name, partitions, member_id="", member_epoch=-1, timeout_s=WAIT_S) == {}
    # By name: what waits for its marker is waited for. A listing of all only has what is there.
    committed = network.admin.committed(name, list(partitions))
    assert {tp: at.offset for tp, at in committed.items()} == {(name, 0): 1, (name, 1): 2}


def test_a_second_producer_with_the_same_id_fences_the_first(
    bootstrap_servers: str, connect: Connect, name: str
) -> None:
    first = producer(connect, bootstrap_servers, name)
    create(first, name)
    first.producer.send(name, 0, batch(666), 1)
    first.producer.flush(WAIT_S)
    # What the first left open is aborted before the second gets its answer.
    second = producer(connect, bootstrap_servers, name)
    with pytest.raises(ProducerFencedError, match=r"transactional id|same transactional id"):
        commit(first)
    assert not first.transactions.is_ready
    with pytest.raises(TransactionLostError, match="initialized"):
        commit(first)
    with pytest.raises(ProducerFencedError):
        first.transactions.abort(WAIT_S)
    second.producer.send(name, 0, batch(1), 1)
    commit(second)
    assert committed_values(second, name, 1) == [1]


def test_a_fenced_producer_cannot_write(bootstrap_servers: str, connect: Connect, name: str) -> None:
    first = producer(connect, bootstrap_servers, name)
    create(first, name)
    second = producer(connect, bootstrap_servers, name)
    first.producer.send(name, 0, batch(666), 1)
    with pytest.raises(ProducerFencedError):
        first.producer.flush(WAIT_S)
    second.producer.send(name, 0, batch(1), 1)
    commit(second)
    assert committed_values(second, name, 1) == [1]
    # Taking over again is a deliberate act.
    first.transactions.initialize(WAIT_S)
    first.producer.send(name, 0, batch(2), 1)
    commit(first)
    assert committed_values(first, name, 2) == [1, 2]


def test_a_transaction_that_takes_too_long_is_aborted(
    bundled_broker: BundledBroker, connect: Connect, name: str
) -> None:
    network = producer(connect, bundled_broker.bootstrap_servers, name, timeout_ms=300)
    create(network, name)
    network.producer.send(name, 0, batch(666), 1)
    network.producer.flush(WAIT_S)

    def stable() -> bool:
        found = network.admin.list_offsets({(name, 0): LATEST}, read_committed=True)
        return found[name, 0].offset >= 2

    deadline = threading.Event()
    for _ in range(600):
        if stable():
            break
        deadline.wait(0.05)
    assert stable()
    with pytest.raises(TransactionLostError):
        commit(network)
    network.transactions.initialize(WAIT_S)
    network.producer.send(name, 0, batch(1), 1)
    commit(network)
    assert committed_values(network, name, 1) == [1]


def test_a_timeout_that_the_broker_does_not_allow_is_a_mistake_of_the_user(
    bootstrap_servers: str, connect: Connect, name: str
) -> None:
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms"):
        producer(connect, bootstrap_servers, name, timeout_ms=2_000_000_000)


def test_a_batch_outside_of_the_transaction_is_refused(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name)
    with pytest.raises(ValueError, match="transactional"):
        network.producer.send(name, 0, encode_batch([b"k"], [b"v"], [0]), 1)


def test_nothing_is_sent_before_the_id_is_initialized(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers, producer=ProducerConfig(transactional_id=name))
    with pytest.raises(TransactionLostError, match="initialized"):
        network.producer.send(name, 0, batch(1), 1)


def test_a_member_commits_in_its_epoch_only(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = producer(connect, bootstrap_servers, name)
    create(network, name)
    make = types.StreamsGroupHeartbeatRequest
    member = network.join_group(
        Member(
            GroupMembership(
                group_id=name,
                member_id=f"member-of-{name}",
                process_id=name,
                topology=make.Topology(subtopologies=[make.Subtopology(subtopology_id="0", source_topics=[name])]),
            )
        )
    )
    owned = NOTHING
    while not owned.active:
        network.wait(1.0)
        for event in member.events():
            if isinstance(event, AssignmentChanged):
                owned = event.tasks
                member.send(ReportOwned(owned))
    offsets = {(name, 0): OffsetAndMetadata(1)}

    def attempt(epoch: int) -> None:
        network.transactions.commit(name, offsets, member_id=member.member_id, member_epoch=epoch, timeout_s=WAIT_S)

    network.producer.send(name, 0, batch(1), 1)
    with pytest.raises(StaleMemberEpochError):
        attempt(member.member_epoch + 5)
    assert network.transactions.is_ready
    attempt(member.member_epoch)
    assert committed_values(network, name, 1) == [1]
    assert network.admin.committed(name, list(offsets))[name, 0].offset == 1
    member.send(Leave())
    member.send(ReportOwned(NOTHING))
    assert member.join(WAIT_S)


@pytest.fixture(params=["bundled", pytest.param("kafka", marks=pytest.mark.kafka)])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaServer | BundledBroker]:
    """A broker of its own, that the test may kill."""
    server: KafkaServer | BundledBroker
    if request.param == "kafka":
        require_kafka()
        server = KafkaServer(tmp_path, QUICK_GROUPS)
    else:
        server = BundledBroker(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.system
def test_a_coordinator_that_is_killed_loses_no_transaction(
    mortal: KafkaServer | BundledBroker, connect: Connect, name: str
) -> None:
    network = producer(connect, mortal.bootstrap_servers, name, timeout_ms=60_000)
    create(network, name)
    network.producer.send(name, 0, batch(1), 1)
    commit(network)
    network.producer.send(name, 0, batch(2), 1)
    network.producer.flush(WAIT_S)
    mortal.kill()
    network.producer.send(name, 0, batch(3), 1)
    mortal.start()
    network.producer.send(name, 1, batch(4), 1)
    network.transactions.commit("", {}, member_id="", member_epoch=-1, timeout_s=60.0)
    assert committed_values(network, name, 3) == [1, 2, 3]
    assert committed_values(network, name, 1, partition=1) == [4]
    starts = network.admin.list_offsets({(name, 0): EARLIEST}, read_committed=True)
    assert starts[name, 0].offset == 0


def test_partitions_whose_adding_was_given_up_before_it_began_are_added_later(
    bundled_broker: BundledBroker, connect: Connect, name: str
) -> None:
    """Found by the simulator: the task was cancelled before its first line, and for ever taken for one under way."""
    network = producer(connect, bundled_broker.bootstrap_servers, name)
    create(network, name)
    given_up = threading.Event()

    def give_up() -> None:
        network.producer.send(name, 0, batch(1), 1)
        network.producer._send_what_is_due()
        network.producer.drop_all()
        given_up.set()

    network._loop.call_soon_threadsafe(give_up)
    assert given_up.wait(WAIT_S)
    network.transactions.initialize(WAIT_S)
    network.producer.send(name, 0, batch(2), 1)
    commit(network)
    assert committed_values(network, name, 1) == [2]
