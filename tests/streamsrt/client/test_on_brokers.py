"""The client over real brokers: the bundled one, and Apache Kafka."""

from __future__ import annotations

import base64
import os
import random
import time
import uuid
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from streamsrt.assignment.status_code import StatusCode
from streamsrt.client.group import GroupDriver
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import (
    EARLIEST,
    LATEST,
    FetchConfig,
    Fetched,
    NewTopic,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    StaleMemberEpochError,
    UnknownMemberError,
)
from streamsrt.errors import RequestFailedError
from streamsrt.membership.member import Member
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    EpochChanged,
    GroupMembership,
    Leave,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    RequestShutdown,
    SetTaskOffsets,
    StatusChanged,
    TasksLost,
)
from streamsrt.wire import types
from tests.fixtures_brokers import BundledBroker, require_kafka
from tests.kafka_server import KafkaServer
from tests.streamsrt.client.batches import batch, collect
from tests.streamsrt.client.conftest import Connect
from tests.system.processes import wait_until

Heartbeat = types.StreamsGroupHeartbeatRequest


def create(network: NetworkThread, name: str, partitions: int = 3, **configs: str) -> None:
    assert network.admin.create_topics([NewTopic(name=name, partitions=partitions, configs=configs)]) == {name: None}


def identifier() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Runtime:
    """The least that keeps a membership going: opens what is assigned, closes what is taken."""

    def __init__(self, network: NetworkThread, topic: str, group_id: str, **membership: Any) -> None:
        subtopology = Heartbeat.Subtopology(
            subtopology_id="sub",
            source_topics=[topic],
            state_changelog_topics=[Heartbeat.TopicInfo(name=f"{topic}-store-changelog", replication_factor=-1)],
        )
        self.network = network
        self.machine = Member(
            GroupMembership(
                group_id=group_id,
                member_id=identifier(),
                process_id=identifier(),
                topology=Heartbeat.Topology(subtopologies=[subtopology]),
                **membership,
            )
        )
        self.group: GroupDriver = network.join_group(self.machine)
        self.active: frozenset[tuple[str, int]] = frozenset()
        self.told: list[Any] = []

    def turn(self) -> None:
        self.network.wait(0.05)
        for event in self.group.events():
            self.told.append(event)
            match event:
                case AssignmentChanged(tasks):
                    self.active = tasks.active
                    held = tasks.active | tasks.standby | tasks.warmup
                    self.group.send(SetTaskOffsets(dict.fromkeys(held, 1), dict.fromkeys(held, 1)))
                    self.group.send(ReportOwned(tasks))
                case TasksLost() | ReleaseTasks():
                    self.active = frozenset()
                    self.group.send(ReportOwned(NOTHING))
                case MembershipFailed(error):
                    raise error
                case _:
                    pass

    def has_status(self, code: StatusCode) -> bool:
        changes = [event.statuses for event in self.told if isinstance(event, StatusChanged)]
        return bool(changes) and any(status.code is code for status in changes[-1])


def run_until(condition: Any, *runtimes: Runtime, timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, [runtime.told for runtime in runtimes]
        for runtime in runtimes:
            runtime.turn()


def tasks(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("sub", number) for number in numbers)


# -------------------------------------------------------------------------------------------------------------- admin


def test_topics_are_created_described_and_deleted(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 2, **{"cleanup.policy": "compact"})
    (again,) = network.admin.create_topics([NewTopic(name=name, partitions=2)]).values()
    assert isinstance(again, RequestFailedError)
    assert "TOPIC_ALREADY_EXISTS" in str(again)
    assert network.admin.partitions_for([name, "absent"]) == {name: 2}
    assert network.admin.topics()[name].partitions == 2
    assert network.admin.describe_topic_configs([name])[name]["cleanup.policy"] == "compact"
    assert network.admin.delete_topics([name]) == {name: None}
    info = network.admin.cluster()
    assert len(info.brokers) == 1
    assert f"{info.brokers[0].host}:{info.brokers[0].port}" == bootstrap_servers


def test_records_are_produced_fetched_and_found(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name)
    for index in range(30):
        for partition in range(3):
            network.producer.send(name, partition, batch(index * 100, 100, 50), 100)
    assert network.producer.flush(30.0) == {(name, partition): 3_000 for partition in range(3)}
    positions = {(name, 0): 0, (name, 1): 1_234, (name, 2): 2_999}
    network.fetcher.add_partitions(positions)
    found = collect(network.fetcher, sum(3_000 - position for position in positions.values()))
    assert found == {tp: list(range(position, 3_000)) for tp, position in positions.items()}
    listed = network.admin.list_offsets(
        {(name, 0): EARLIEST, (name, 1): LATEST, (name, 2): 1_500, ("absent", 0): LATEST}
    )
    assert {tp: each.offset for tp, each in listed.items()} == {(name, 0): 0, (name, 1): 3_000, (name, 2): 1_500}


def test_partitions_come_and_go_in_a_session(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers, fetch=FetchConfig(max_partition_bytes=2_000))
    create(network, name, 20, **{"retention.ms": "-1"})
    ends = dict.fromkeys([(name, partition) for partition in range(20)], 0)
    positions: dict[tuple[str, int], int] = {}
    order = random.Random(name)

    def produce(count: int) -> None:
        for tp in order.sample(list(ends), count):
            network.producer.send(*tp, batch(0, 5), 5)
            ends[tp] += 5
        network.producer.flush(20.0)

    def catch_up() -> None:
        deadline = time.monotonic() + 30
        while any(positions[tp] < ends[tp] for tp in positions):
            assert time.monotonic() < deadline, (positions, ends)
            for item in network.fetcher.poll(1.0):
                tp = item.topic, item.partition
                if tp in positions:
                    assert (item.error, item.offset) == (None, positions[tp])
                    positions[tp] = item.next_offset

    for turn in range(8):
        produce(order.randint(1, 6))
        gone = order.sample(list(positions), len(positions) // 3)
        network.fetcher.remove_partitions(gone)
        for tp in gone:
            del positions[tp]
        new = {tp: ends[tp] // 10 * 5 for tp in order.sample(list(ends), 4) if tp not in positions}
        network.fetcher.add_partitions(new, reports_empty=turn % 3 == 2)
        positions.update(new)
        catch_up()
    produce(20)
    catch_up()
    produce(1)
    catch_up()
    (session,) = network.fetcher._sessions.values()
    assert session.is_open


def test_new_records_arrive_while_a_long_poll_waits(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 1)
    network.fetcher.add_partitions({(name, 0): 0})
    for index in range(10):
        network.producer.send(name, 0, batch(index, 1), 1)
        network.producer.flush(10.0)
        assert collect(network.fetcher, 1) == {(name, 0): [index]}


def test_deleted_records_are_out_of_range(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 1)
    network.producer.send(name, 0, batch(0, 50), 50)
    network.producer.flush(10.0)
    assert network.admin.delete_records({(name, 0): 20}) == {(name, 0): 20}
    network.fetcher.add_partitions({(name, 0): 5})
    items = []
    while not items:
        items = network.fetcher.poll(1.0)
    assert isinstance(items[0].error, OffsetOutOfRangeError)
    (first,) = network.admin.list_offsets({(name, 0): EARLIEST}).values()
    network.fetcher.add_partitions({(name, 0): first.offset})
    assert collect(network.fetcher, 30) == {(name, 0): list(range(20, 50))}


def test_positions_of_a_topic_are_none_of_the_topic_that_is_made_in_its_place(
    bootstrap_servers: str, connect: Connect, name: str
) -> None:
    network = connect(bootstrap_servers)
    create(network, name, partitions=1)
    place = (name, 0)
    network.producer.send(*place, batch(0, 3), 3)
    network.producer.flush(10.0)
    network.fetcher.add_partitions({place: 0})
    assert collect(network.fetcher, 3) == {place: [0, 1, 2]}

    network.admin.delete_topics([name])
    while network.admin.create_topics([NewTopic(name=name, partitions=1)]) != {name: None}:
        network.fetcher.poll(0.1)  # Apache Kafka deletes a little later.
    writer = connect(bootstrap_servers)
    writer.producer.send(*place, batch(0, 7), 7)
    writer.producer.flush(10.0)
    found: list[Fetched] = []
    while not found:
        found = network.fetcher.poll(1.0)
    # Offset 3 is in the new log, too.
    [item] = found
    assert isinstance(item.error, OffsetOutOfRangeError)
    assert item.error.is_new_topic
    assert "the topic was deleted and recreated; offset 3 was in the old one" in str(item.error)
    network.fetcher.add_partitions({place: 0})
    assert collect(network.fetcher, 7) == {place: list(range(7))}


def test_offsets_are_committed_with_metadata(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name)
    assert network.admin.committed(name) == {}
    network.admin.commit(name, {(name, 0): OffsetAndMetadata(7, "AgAB"), (name, 2): OffsetAndMetadata(0)})
    assert network.admin.committed(name, [(name, 0), (name, 1)]) == {(name, 0): OffsetAndMetadata(7, "AgAB")}
    assert set(network.admin.committed(name)) == {(name, 0), (name, 2)}


# -------------------------------------------------------------------------------------------------------------- groups


@pytest.mark.requirement("SG-252", "SG-220", "SG-100", "SG-023")
def test_two_members_share_the_tasks_and_one_takes_over(bootstrap_servers: str, connect: Connect, name: str) -> None:
    first_network, second_network = connect(bootstrap_servers), connect(bootstrap_servers)
    create(first_network, name, 4)
    first = Runtime(first_network, name, name)
    run_until(lambda: first.active == tasks(0, 1, 2, 3), first)
    second = Runtime(second_network, name, name)
    run_until(lambda: len(first.active) == len(second.active) == 2, first, second)
    assert first.active | second.active == tasks(0, 1, 2, 3)
    first.group.send(Leave())
    run_until(lambda: second.active == tasks(0, 1, 2, 3), first, second)
    assert first.group.join(5.0)
    assert not any(isinstance(event, TasksLost) for event in first.told + second.told)


@pytest.mark.requirement("SG-422")
def test_commits_carry_the_member_epoch(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 1)
    runtime = Runtime(network, name, name)
    run_until(lambda: runtime.active == tasks(0), runtime)
    group, offsets = runtime.group, {(name, 0): OffsetAndMetadata(3)}
    network.admin.commit(name, offsets, member_id=group.member_id, member_epoch=group.member_epoch)
    read = network.admin.committed(name, list(offsets), member_id=group.member_id, member_epoch=group.member_epoch)
    assert read[name, 0].offset == 3
    with pytest.raises(StaleMemberEpochError, match="STALE_MEMBER_EPOCH"):
        network.admin.commit(name, offsets, member_id=group.member_id, member_epoch=group.member_epoch + 1)
    with pytest.raises(UnknownMemberError, match="UNKNOWN_MEMBER_ID"):
        network.admin.commit(name, offsets, member_id="somebody", member_epoch=group.member_epoch)
    with pytest.raises(StaleMemberEpochError):
        network.admin.committed(name, list(offsets), member_id=group.member_id, member_epoch=group.member_epoch + 1)


def test_groups_are_listed_described_and_deleted(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 2)
    runtime = Runtime(network, name, name)
    run_until(lambda: runtime.active == tasks(0, 1), runtime)
    run_until(lambda: network.admin.describe_streams_groups([name])[0].group_state == "Stable", runtime)
    (group,) = network.admin.describe_streams_groups([name])
    assert [member.member_id for member in group.members] == [runtime.group.member_id]
    assert name in [listed.group_id for listed in network.admin.list_groups(["streams"])]
    refused = network.admin.delete_groups([name])[name]
    assert isinstance(refused, RequestFailedError)
    assert "NON_EMPTY_GROUP" in str(refused)
    runtime.group.send(Leave())
    run_until(lambda: runtime.group.join(0.0), runtime)
    assert network.admin.delete_groups([name]) == {name: None}


@pytest.mark.requirement("SG-073", "SG-074", "SG-026")
def test_a_shutdown_reaches_the_other_member(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 2)
    first, second = Runtime(network, name, name), Runtime(connect(bootstrap_servers), name, name)
    run_until(lambda: len(first.active) == len(second.active) == 1, first, second)
    first.group.send(RequestShutdown())
    run_until(lambda: second.has_status(StatusCode.SHUTDOWN_APPLICATION), first, second)


@pytest.mark.requirement("SG-101")
def test_a_member_that_the_group_forgot_joins_again(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    create(network, name, 1)
    runtime = Runtime(network, name, name)
    run_until(lambda: runtime.active == tasks(0), runtime)
    leave = Heartbeat(group_id=name, member_id=runtime.group.member_id, member_epoch=-1)
    network.request(leave, coordinator_of=name).result(10.0)
    run_until(lambda: any(isinstance(event, TasksLost) for event in runtime.told), runtime)
    run_until(lambda: runtime.active == tasks(0), runtime)
    assert sum(isinstance(event, EpochChanged) for event in runtime.told) >= 2


def test_missing_source_topics_are_a_status(bootstrap_servers: str, connect: Connect, name: str) -> None:
    network = connect(bootstrap_servers)
    runtime = Runtime(network, name, name)
    run_until(lambda: runtime.has_status(StatusCode.MISSING_SOURCE_TOPICS), runtime)
    create(network, name, 1)
    run_until(lambda: runtime.active == tasks(0), runtime)
    assert network.admin.partitions_for([f"{name}-store-changelog"]) == {f"{name}-store-changelog": 1}


# -------------------------------------------------------------------------------------------------------------- outages


@pytest.mark.parametrize("kind", ["bundled", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
@pytest.mark.system
def test_everything_goes_on_after_a_broker_was_killed(kind: str, tmp_path: Path, connect: Connect) -> None:
    if kind == "kafka":
        require_kafka()
    broker: KafkaServer | BundledBroker = KafkaServer(tmp_path) if kind == "kafka" else BundledBroker(tmp_path)
    broker.start()
    try:
        network = connect(broker.bootstrap_servers)
        create(network, "t", 1)
        runtime = Runtime(network, "t", "g")
        run_until(lambda: runtime.active == tasks(0), runtime)
        network.fetcher.add_partitions({("t", 0): 0})
        network.producer.send("t", 0, batch(0, 100), 100)
        network.producer.flush(30.0)
        assert collect(network.fetcher, 100) == {("t", 0): list(range(100))}
        broker.kill()
        network.producer.send("t", 0, batch(100, 100), 100)
        broker.start()
        assert network.producer.flush(60.0) == {("t", 0): 200}
        assert collect(network.fetcher, 100, timeout_s=60.0) == {("t", 0): list(range(100, 200))}
        group = runtime.group
        run_until(lambda: group.member_epoch > 0 and runtime.active == tasks(0), runtime)
        offsets = {("t", 0): OffsetAndMetadata(200)}
        network.admin.commit("g", offsets, member_id=group.member_id, member_epoch=group.member_epoch, timeout_s=60.0)
    finally:
        broker.kill()


@pytest.mark.parametrize("kind", ["bundled", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
@pytest.mark.system
def test_records_that_were_read_and_are_lost_are_noticed_though_others_have_their_offsets(
    kind: str, tmp_path: Path, connect: Connect
) -> None:
    """As after an unclean election: the log ends earlier, and goes on with other records."""
    if kind == "kafka":
        require_kafka()
    broker: KafkaServer | BundledBroker = KafkaServer(tmp_path) if kind == "kafka" else BundledBroker(tmp_path)
    broker.start()
    try:
        network = connect(broker.bootstrap_servers)
        create(network, "t", 1, **{"retention.ms": "-1"})
        wait_until(lambda: any(tmp_path.rglob("t-0/*.log")), "the broker has made the log")
        sizes, (log,) = [], tmp_path.rglob("t-0/*.log")
        network.fetcher.add_partitions({("t", 0): 0})
        for first in (0, 10):
            network.producer.send("t", 0, batch(first, 10), 10)
            network.producer.flush(30.0)
            collect(network.fetcher, 10)
            sizes.append(log.stat().st_size)
        broker.kill()
        os.truncate(log, sizes[0])
        network.fetcher.pause([("t", 0)])
        broker.start()
        writer = connect(broker.bootstrap_servers)
        writer.producer.send("t", 0, batch(100, 30), 30)
        assert writer.producer.flush(60.0) == {("t", 0): 40}
        network.fetcher.resume([("t", 0)])
        (item,) = network.fetcher.poll(60.0)
        error = item.error
        assert isinstance(error, OffsetOutOfRangeError)
        assert error.diverged_at == 10
        network.fetcher.add_partitions({("t", 0): 10})
        assert collect(network.fetcher, 30) == {("t", 0): list(range(100, 130))}
    finally:
        broker.kill()


# -------------------------------------------------------------------------------------------------------- transactions


@pytest.mark.kafka
def test_aborted_transactions_are_left_out_when_reading_committed(
    apache_kafka: KafkaServer, connect: Connect, name: str
) -> None:
    address = apache_kafka.bootstrap_servers
    network = connect(
        address, fetch=FetchConfig(isolation_level="read_committed"), restore=FetchConfig(max_partition_bytes=600)
    )
    create(network, name, 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": name})
    producer.init_transactions(20.0)
    for transaction in range(6):
        producer.begin_transaction()
        for number in range(transaction * 10, transaction * 10 + 10):
            producer.produce(name, str(number).encode(), partition=0)
        producer.flush(20.0)
        if transaction % 2:
            producer.abort_transaction(20.0)
        else:
            producer.commit_transaction(20.0)
    committed = [number for number in range(60) if number // 10 % 2 == 0]
    network.fetcher.add_partitions({(name, 0): 0})
    assert collect(network.fetcher, 30) == {(name, 0): committed}
    network.restorer.add_partitions({(name, 0): 0})
    assert collect(network.restorer, 60) == {(name, 0): list(range(60))}
