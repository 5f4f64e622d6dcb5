"""Members of a classic group on the network thread, with a real broker."""

from __future__ import annotations

import time
import uuid

import pytest

from streamsrt.client.group import GroupDriver
from streamsrt.client.network import NetworkThread
from streamsrt.client.values import NewTopic, OffsetAndMetadata, UnknownMemberError
from streamsrt.errors import StreamsError
from streamsrt.membership.classic.leader_assignments import LeaderSettings
from streamsrt.membership.classic.member import ClassicMember
from streamsrt.membership.values import (
    NOTHING,
    AssignmentChanged,
    GroupMembership,
    InstanceIdTaken,
    Leave,
    LeftGroup,
    MembershipFailed,
    ReleaseTasks,
    ReportOwned,
    Tasks,
)
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from tests.fixtures_brokers import BundledBroker
from tests.streamsrt.client.batches import batch
from tests.streamsrt.client.conftest import Connect

Metadata = types.StreamsGroupHeartbeatRequest
SESSION_TIMEOUT_MS = 6_000
PATIENCE_S = 60.0


class Running:
    """A member, and a processing thread that does as it is told whenever it is looked at."""

    def __init__(self, network: NetworkThread, topic: str, instance_id: str | None = None) -> None:
        part = Metadata.Subtopology(subtopology_id="s", source_topics=[topic])
        membership = GroupMembership(
            group_id=f"group-of-{topic}",
            member_id="",
            process_id=str(uuid.uuid4()),
            topology=Metadata.Topology(epoch=0, subtopologies=[part]),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            instance_id=instance_id,
        )
        settings = LeaderSettings(group_id=membership.group_id, session_timeout_ms=SESSION_TIMEOUT_MS)
        self.network = network
        self.group_id = membership.group_id
        self.machine = ClassicMember(membership, settings, heartbeat_interval_ms=100)
        self.driver: GroupDriver = network.join_classic_group(self.machine)
        self.tasks = NOTHING
        self.has_left = False
        self.waits_for_id = False
        self.failure: StreamsError | None = None

    def look(self) -> Tasks:
        self.network.wait(0.05)
        for event in self.driver.events():
            if isinstance(event, AssignmentChanged):
                self.tasks = event.tasks
                self.driver.send(ReportOwned(self.tasks))
            elif isinstance(event, ReleaseTasks):
                self.tasks = NOTHING
                self.driver.send(ReportOwned(NOTHING))
            elif isinstance(event, MembershipFailed):
                self.failure = event.error
            self.has_left = self.has_left or isinstance(event, LeftGroup)
            self.waits_for_id = self.waits_for_id or isinstance(event, InstanceIdTaken)
        return self.tasks


def until(holds: bool, deadline: float) -> bool:
    assert time.monotonic() < deadline, "too late"
    return holds


@pytest.fixture
def topic(bundled_broker: BundledBroker, connect: Connect, name: str) -> str:
    admin = connect(bundled_broker.bootstrap_servers).admin
    created = admin.create_topics([NewTopic(name=f"classic-{name}", partitions=4)])
    assert created == {f"classic-{name}": None}
    return f"classic-{name}"


def test_members_share_the_tasks_and_take_over_from_one_that_leaves(
    bundled_broker: BundledBroker, connect: Connect, topic: str
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    one = Running(connect(bundled_broker.bootstrap_servers), topic)
    while not until(len(one.look().active) == 4, deadline):
        pass
    other = Running(connect(bundled_broker.bootstrap_servers), topic)
    while not until(len(one.look().active) == 2 == len(other.look().active), deadline):
        assert not one.tasks.active & other.tasks.active, "a task of two members"
    one.driver.send(Leave())
    while not until(one.has_left, deadline):
        one.look()
        other.look()
    while not until(len(other.look().active) == 4, deadline):
        pass
    assert one.driver.has_ended
    assert one.driver.member_epoch == -1


def test_after_a_streams_member_that_is_silent_it_gets_the_instance_id_when_the_session_has_ended(
    bundled_broker: BundledBroker, connect: Connect, topic: str
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    network = connect(bundled_broker.bootstrap_servers)
    part = Metadata.Subtopology(subtopology_id="s", source_topics=[topic])
    first = Metadata(
        group_id=f"group-of-{topic}",
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        instance_id="i",
        process_id=str(uuid.uuid4()),
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        topology=Metadata.Topology(epoch=0, subtopologies=[part]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    assert network.request(first, coordinator_of=first.group_id).result(PATIENCE_S).error_code == ErrorCode.NONE
    member = Running(network, topic, "i")
    while not until(member.waits_for_id, deadline):
        assert not member.look().active
    while not until(len(member.look().active) == 4, deadline):
        assert member.failure is None, member.failure


def test_while_a_join_waits_offsets_are_committed(bundled_broker: BundledBroker, connect: Connect, topic: str) -> None:
    """A broker reads nothing more from a connection while a JoinGroup waits on it."""
    deadline = time.monotonic() + PATIENCE_S
    network = connect(bundled_broker.bootstrap_servers)
    member = Running(network, topic)
    while not until(len(member.look().active) == 4, deadline):
        pass
    joins_and_is_silent(connect(bundled_broker.bootstrap_servers), member, deadline)
    before = member.driver.member_epoch
    joins_and_is_silent(connect(bundled_broker.bootstrap_servers), member, deadline, waits=False)
    while not until(member.machine.session.rebalance_in_flight is not None, deadline):
        member.look()
    # The silent member does not join, so that everybody waits for its session to end.
    offsets = {(topic, 0): OffsetAndMetadata(7)}
    network.admin.commit(
        member.group_id, offsets, member_id=member.driver.member_id, member_epoch=member.driver.member_epoch
    )
    assert member.driver.member_epoch == before, "the join has been answered: this shows nothing"
    while not until(member.driver.member_epoch > before, deadline):
        member.look()


def joins_and_is_silent(network: NetworkThread, member: Running, deadline: float, *, waits: bool = True) -> None:
    """Somebody else joins the group; ``waits``: until the group has taken it in, and it has synced."""
    protocol = types.JoinGroupRequest.JoinGroupRequestProtocol(name="streamsrt-1", metadata=b"")
    request = types.JoinGroupRequest(
        group_id=member.group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    asked = network.request(request, coordinator_of=member.group_id).result(PATIENCE_S)
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request.member_id = asked.member_id
    answer = network.request(request, coordinator_of=member.group_id)
    while waits and not until(answer.done(), deadline):
        member.look()
    if waits:
        sync = types.SyncGroupRequest(
            group_id=member.group_id,
            generation_id=answer.result().generation_id,
            member_id=request.member_id,
            protocol_type="consumer",
            protocol_name="streamsrt-1",
        )
        synced = network.request(sync, coordinator_of=member.group_id)
        while not until(synced.done(), deadline):
            member.look()


def test_who_shares_its_instance_id_with_another_process_is_told_so(
    any_version: str, connect: Connect, name: str
) -> None:
    """Its commits are refused, whether it has heard of the other one or not."""
    deadline = time.monotonic() + PATIENCE_S
    network, other = connect(any_version), connect(any_version)
    assert network.admin.create_topics([NewTopic(name=f"same-{name}", partitions=4)]) == {f"same-{name}": None}
    one = Running(network, f"same-{name}", "i")
    while not until(len(one.look().active) == 4, deadline):
        pass
    was, epoch = one.driver.member_id, one.driver.member_epoch
    two = Running(other, f"same-{name}", "i")
    while not until(bool(two.driver.member_id) and two.driver.member_epoch >= 0, deadline):
        two.look()
    offsets = {(f"same-{name}", 0): OffsetAndMetadata(7)}
    with pytest.raises(UnknownMemberError) as refused:
        network.admin.commit(one.group_id, offsets, member_id=was, member_epoch=epoch)
    assert refused.value.error_code == ErrorCode.FENCED_INSTANCE_ID
    while not until(one.failure is not None, deadline):
        one.look()
        two.look()
    assert "another member took over this group.instance.id" in str(one.failure)
    assert "Give every instance its own group.instance.id" in str(one.failure)
    while not until(len(two.look().active) == 4, deadline):
        pass


def test_a_version_that_would_leave_records_unread_is_refused_with_their_number(
    bundled_broker: BundledBroker, connect: Connect, topic: str
) -> None:
    network = connect(bundled_broker.bootstrap_servers)
    group_id = f"group-of-{topic}"
    left, other = f"{group_id}-old-repartition", f"{group_id}-of-another-repartition"
    created = network.admin.create_topics([NewTopic(name=name, partitions=3) for name in (left, other)])
    assert created == {left: None, other: None}
    for place in ((left, 0), (left, 1), (other, 0)):
        network.producer.send(*place, batch(0, 20), 20)
    network.producer.flush(10.0)
    # Of the one partition 5 are unread. Of the other one 8 are left, and of none is known that it was read.
    network.admin.commit(group_id, {(left, 0): OffsetAndMetadata(15)})
    assert network.admin.delete_records({(left, 1): 12}) == {(left, 1): 12}
    deadline = time.monotonic() + PATIENCE_S
    member = Running(network, topic)
    while not until(member.failure is not None, deadline):
        member.look()
    assert f"{left}: 13 records." in str(member.failure)
    assert other not in str(member.failure)
    assert not member.tasks.active
    network.admin.commit(group_id, {(left, 0): OffsetAndMetadata(20), (left, 1): OffsetAndMetadata(20)})
    again = Running(connect(bundled_broker.bootstrap_servers), topic)
    while not until(len(again.look().active) == 4, deadline):
        pass
