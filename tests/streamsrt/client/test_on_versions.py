"""The client without groups over brokers of several versions: records, transactions, offsets, what an operator asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamsrt.client.network import NetworkThread
from streamsrt.client.values import (
    EARLIEST,
    LATEST,
    FetchConfig,
    NewTopic,
    OffsetAndMetadata,
    ProducerConfig,
    StaleMemberEpochError,
    UnknownMemberError,
)
from streamsrt.errors import UnsupportedBrokerError
from streamsrt.wire import types
from streamsrt.wire.records import encode_batch
from tests.fixtures_brokers import OlderKafka, require_kafka
from tests.interop.classic_members import Group, Member, subscription
from tests.kafka_server import KafkaServer
from tests.streamsrt.client.batches import batch, collect
from tests.streamsrt.client.conftest import Connect

WAIT_S = 30.0


def create(network: NetworkThread, name: str, **configs: str) -> None:
    assert network.admin.create_topics([NewTopic(name=name, partitions=2, configs=configs)]) == {name: None}


def transactional(*values: int) -> bytes:
    texts: list[bytes | None] = [str(value).encode() for value in values]
    return encode_batch([b"k"] * len(values), texts, list(values), transactional=True)


def test_records_and_what_is_known_of_them(any_version: str, connect: Connect, name: str) -> None:
    network = connect(any_version)
    create(network, name, **{"cleanup.policy": "compact,delete"})
    for index in range(20):
        network.producer.send(name, index % 2, batch(index // 2 * 100, 100, 50), 100)
    assert network.producer.flush(WAIT_S) == {(name, 0): 1_000, (name, 1): 1_000}
    network.fetcher.add_partitions({(name, 0): 0, (name, 1): 990})
    assert collect(network.fetcher, 1_010) == {(name, 0): list(range(1_000)), (name, 1): list(range(990, 1_000))}
    listed = network.admin.list_offsets({(name, 0): EARLIEST, (name, 1): LATEST})
    assert {tp: each.offset for tp, each in listed.items()} == {(name, 0): 0, (name, 1): 1_000}
    assert network.admin.describe_topic_configs([name])[name]["cleanup.policy"] == "compact,delete"
    assert network.admin.partitions_for([name]) == {name: 2}
    assert network.admin.delete_topics([name]) == {name: None}


def test_offsets_of_a_transaction_are_there_when_it_is_committed(any_version: str, connect: Connect, name: str) -> None:
    config = ProducerConfig(transactional_id=name, transaction_timeout_ms=20_000)
    network = connect(any_version, producer=config, fetch=FetchConfig(max_wait_ms=50, isolation_level="read_committed"))
    create(network, name)
    network.transactions.initialize(WAIT_S)
    for number, offset in ((1, 10), (2, 20)):
        network.producer.send(name, 0, transactional(number), 1)
        offsets = {(name, 0): OffsetAndMetadata(offset, "said")}
        network.transactions.commit(name, offsets, member_id="", member_epoch=-1, timeout_s=WAIT_S)
    network.producer.send(name, 0, transactional(666), 1)
    network.producer.flush(WAIT_S)
    network.transactions.abort(WAIT_S)
    network.fetcher.add_partitions({(name, 0): 0})
    assert collect(network.fetcher, 2) == {(name, 0): [1, 2]}
    assert network.admin.committed(name) == {(name, 0): OffsetAndMetadata(20, "said")}
    assert network.admin.committed(name, [(name, 0), (name, 1)]) == {(name, 0): OffsetAndMetadata(20, "said")}


def test_offsets_are_committed_and_groups_listed_and_deleted(any_version: str, connect: Connect, name: str) -> None:
    network = connect(any_version)
    create(network, name)
    network.admin.commit(name, {(name, 0): OffsetAndMetadata(7, "AgAB"), (name, 1): OffsetAndMetadata(0)})
    assert network.admin.committed(name) == {(name, 0): OffsetAndMetadata(7, "AgAB"), (name, 1): OffsetAndMetadata(0)}
    (found,) = [listed for listed in network.admin.list_groups(["classic"]) if listed.group_id == name]
    assert (found.group_type, found.protocol_type, found.state) == ("classic", "", "Empty")
    assert name not in {listed.group_id for listed in network.admin.list_groups(["streams"])}
    assert network.admin.delete_groups([name]) == {name: None}
    assert network.admin.committed(name) == {}


def test_members_of_classic_groups_commit_in_their_generation(any_version: str, connect: Connect, name: str) -> None:
    """At once and in a transaction; and wait while their group does not have its tasks yet."""
    group = Group(any_version)
    try:
        member = Member(group, {"own": subscription(group.id, b"")})
        config = ProducerConfig(transactional_id=group.id, transaction_timeout_ms=20_000)
        network = connect(any_version, producer=config)
        network.transactions.initialize(WAIT_S)
        place = (group.id, 0)
        member.join()

        def commit(offset: int, **who: Any) -> int:
            """The offset that is committed then."""
            network.admin.commit(group.id, {place: OffsetAndMetadata(offset)}, **who)
            return network.admin.committed(group.id, [place], **who)[place].offset

        def commit_in_transaction(offset: int, *, member_id: str, member_epoch: int) -> int:
            offsets = {place: OffsetAndMetadata(offset)}
            network.transactions.commit(
                group.id, offsets, member_id=member_id, member_epoch=member_epoch, timeout_s=WAIT_S
            )
            return network.admin.committed(group.id, [place])[place].offset

        who: dict[str, Any] = {"member_id": member.id, "member_epoch": member.generation}
        with pytest.raises(StaleMemberEpochError, match="REBALANCE_IN_PROGRESS"):
            commit(1, **who)
        assert commit_in_transaction(2, **who) == 2
        member.sync(mine=b"A", theirs=b"")
        assert commit(3, **who) == 3
        assert commit_in_transaction(4, **who) == 4
        for attempt in (commit, commit_in_transaction):
            with pytest.raises(StaleMemberEpochError, match="ILLEGAL_GENERATION"):
                attempt(5, member_id=member.id, member_epoch=member.generation - 1)
            with pytest.raises(UnknownMemberError, match="UNKNOWN_MEMBER_ID"):
                attempt(5, member_id="somebody", member_epoch=member.generation)
        assert commit_in_transaction(6, **who) == 6
    finally:
        group.close()


@pytest.mark.kafka
def test_streams_groups_are_said_to_need_a_newer_broker(older_kafka: OlderKafka, connect: Connect, name: str) -> None:
    network = connect(older_kafka("3.9.1").bootstrap_servers)
    request = types.StreamsGroupHeartbeatRequest(group_id=name, member_id="m")
    with pytest.raises(UnsupportedBrokerError, match=r"STREAMS_GROUP_HEARTBEAT \(key 88\).*Kafka 4\.2 or later"):
        network.request(request).result(WAIT_S)


@pytest.mark.kafka
@pytest.mark.full
@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.4.0"])
def test_a_broker_that_was_killed_starts_again_with_its_data(tmp_path: Path, connect: Connect, version: str) -> None:
    require_kafka()
    server = KafkaServer(tmp_path, version=version)
    try:
        server.start()
        network = connect(server.bootstrap_servers)
        create(network, "t")
        network.producer.send("t", 0, batch(0, 100), 100)
        network.producer.flush(WAIT_S)
        server.kill()
        server.start()
        network.fetcher.add_partitions({("t", 0): 0})
        assert collect(network.fetcher, 100) == {("t", 0): list(range(100))}
    finally:
        server.kill()
