"""Members of a group of the classic protocol that say what they are told to say, request by request."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from threading import Event

from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.messages import encode_record_value
from tests.coordinator.server.processes import Wire
from tests.interop.group_members import PATIENCE_S

NEWEST_JOIN, NEWEST_SYNC, NEWEST_HEARTBEAT, NEWEST_LEAVE, NEWEST_DESCRIBE = 9, 5, 4, 5, 5
NEWEST_COMMIT, TRANSACTIONAL_COMMIT = 8, 3
LONG_MS = 60_000
"""A session and a rebalance that outlast the test on any machine."""


def until(condition: Callable[[], bool], what: str) -> None:
    pause = Event()
    for _ in range(int(PATIENCE_S * 20)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError(f"not in {PATIENCE_S:g} s: {what}")


def subscription(topic: str, user_data: bytes) -> bytes:
    return encode_record_value(types.ConsumerProtocolSubscription(topics=[topic], user_data=user_data))


class Group:
    """A group, and a topic of one partition of the same name."""

    def __init__(self, servers: str) -> None:
        self.id = f"classic-{uuid.uuid4().hex}"
        self._port = int(servers.rpartition(":")[2])
        self._wires: list[Wire] = []
        self.wire = self.connect()
        request = types.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        self._highest = {each.api_key: each.max_version for each in self.wire.ask(request, 3).api_keys}
        topic = types.CreateTopicsRequest.CreatableTopic(name=self.id, num_partitions=1, replication_factor=1)
        (made,) = self.wire.ask(types.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics
        assert not made.error_code
        until(self._has_coordinator, "the group has a coordinator")

    def _has_coordinator(self) -> bool:
        if self.wire.ask(types.FindCoordinatorRequest(key=self.id), 3).error_code:
            return False
        asked = types.HeartbeatRequest(group_id=self.id, generation_id=1, member_id="nobody")
        # A coordinator that loads its groups says that it does, or, before Kafka 4, that all is well.
        return self.wire.ask(asked, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    def connect(self) -> Wire:
        wire = Wire(self._port, PATIENCE_S)
        self._wires.append(wire)
        return wire

    def version(self, kind: type[types.Message], newest: int) -> int:
        assert kind.API_KEY is not None
        return min(newest, self._highest[kind.API_KEY])

    def describe(self) -> types.DescribeGroupsResponse.DescribedGroup:
        request = types.DescribeGroupsRequest(groups=[self.id])
        (group,) = self.wire.ask(request, self.version(types.DescribeGroupsRequest, NEWEST_DESCRIBE)).groups
        return group

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


class Member:
    """``protocols``: what it offers, metadata by name, the best first."""

    def __init__(
        self,
        group: Group,
        protocols: Mapping[str, bytes],
        *,
        instance: str | None = None,
        session_ms: int = LONG_MS,
        rebalance_ms: int = LONG_MS,
    ) -> None:
        self.group = group
        self.protocols = dict(protocols)
        self.instance = instance
        self.id = ""
        self.generation = -1
        # Joins and syncs wait for others, and whatever is sent behind them does.
        self.rebalancing = group.connect()
        self._other = group.connect()
        self._session_ms, self._rebalance_ms = session_ms, rebalance_ms
        self._protocol = ""
        self._sent = (0, 0)
        self._refused: types.JoinGroupResponse | None = None

    # --------------------------------------------------------------------------------------------------------- joining

    def start_join(self) -> None:
        """Asks to join. A member without an id gets one first, and asks with that (KIP-394)."""
        if not self.id and self.instance is None:
            self._send_join()
            answer = self.rebalancing.receive(self._sent)
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                self._refused = answer
                return
            self.id = answer.member_id
        self._send_join()

    def _send_join(self) -> None:
        kind = types.JoinGroupRequest
        request = kind(
            group_id=self.group.id,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[kind.JoinGroupRequestProtocol(name=n, metadata=data) for n, data in self.protocols.items()],
        )
        self._sent = self.rebalancing.send(request, self.group.version(kind, NEWEST_JOIN))

    def joined(self) -> types.JoinGroupResponse:
        if self._refused is not None:
            return self._refused
        answer: types.JoinGroupResponse = self.rebalancing.receive(self._sent)
        if not answer.error_code:
            self.id, self.generation = answer.member_id, answer.generation_id
            self._protocol = answer.protocol_name or ""
        return answer

    def join(self) -> types.JoinGroupResponse:
        self.start_join()
        return self.joined()

    def start_sync(self, **assignments: bytes) -> None:
        """Asks for its assignment. A leader gives ``mine`` to itself and ``theirs`` to everybody else of the group."""
        kind = types.SyncGroupRequest
        given = {each.member_id: assignments["theirs"] for each in self.group.describe().members} if assignments else {}
        if assignments:
            given[self.id] = assignments["mine"]
        request = kind(
            group_id=self.group.id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=self._protocol,
            assignments=[kind.SyncGroupRequestAssignment(member_id=m, assignment=data) for m, data in given.items()],
        )
        self._sent = self.rebalancing.send(request, self.group.version(kind, NEWEST_SYNC))

    def synced(self) -> types.SyncGroupResponse:
        answer: types.SyncGroupResponse = self.rebalancing.receive(self._sent)
        return answer

    def sync(self, **assignments: bytes) -> types.SyncGroupResponse:
        self.start_sync(**assignments)
        return self.synced()

    # --------------------------------------------------------------------------------------------------------- meanwhile

    def beat(self) -> int:
        kind = types.HeartbeatRequest
        request = kind(
            group_id=self.group.id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return int(self._other.ask(request, self.group.version(kind, NEWEST_HEARTBEAT)).error_code)

    def until_rebalancing(self) -> None:
        """Waits until the group prepares a rebalance, so that somebody's JoinGroup has come."""
        until(lambda: self.beat() == ErrorCode.REBALANCE_IN_PROGRESS, "the group rebalances")

    def commit(self, *, back: int = 0, member_id: str | None = None, named: bool = True) -> int:
        """The code of an OffsetCommit. ``back``: by so many generations. ``named``: with the instance id, if it has one."""
        kind = types.OffsetCommitRequest
        offset = kind.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = kind(
            group_id=self.group.id,
            generation_id_or_member_epoch=self.generation - back,
            member_id=self.id if member_id is None else member_id,
            group_instance_id=self.instance if named else None,
            topics=[kind.OffsetCommitRequestTopic(name=self.group.id, partitions=[offset])],
        )
        answer = self._other.ask(request, self.group.version(kind, NEWEST_COMMIT))
        return int(answer.topics[0].partitions[0].error_code)

    def leave(self) -> int:
        kind = types.LeaveGroupRequest
        request = kind(
            group_id=self.group.id,
            members=[kind.MemberIdentity(member_id=self.id, group_instance_id=self.instance)],
        )
        return int(self._other.ask(request, self.group.version(kind, NEWEST_LEAVE)).error_code)


class Transaction:
    """A transaction that offsets of members are committed in."""

    def __init__(self, group: Group) -> None:
        self._id, self._group, self._wire = f"{group.id}-t", group, group.connect()
        self._producer = (-1, -1)
        until(self._begin, "the transactional id has a coordinator")

    def _begin(self) -> bool:
        if self._wire.ask(types.FindCoordinatorRequest(key=self._id, key_type=1), 3).error_code:
            return False
        request = types.InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=LONG_MS, producer_id=-1, producer_epoch=-1
        )
        answer = self._wire.ask(request, 4)
        self._producer = (answer.producer_id, answer.producer_epoch)
        return not answer.error_code

    def commit(self, member: Member, *, back: int = 0) -> int:
        """The code of a TxnOffsetCommit in the member's generation, or in one so many back."""
        producer_id, epoch = self._producer
        group_id = self._group.id
        adding = types.AddOffsetsToTxnRequest(
            transactional_id=self._id, producer_id=producer_id, producer_epoch=epoch, group_id=group_id
        )
        until(lambda: not self._wire.ask(adding, 3).error_code, "the group is in the transaction")
        kind = types.TxnOffsetCommitRequest
        offset = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        request = kind(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=member.generation - back,
            member_id=member.id,
            group_instance_id=member.instance,
            topics=[kind.TxnOffsetCommitRequestTopic(name=group_id, partitions=[offset])],
        )
        return int(self._wire.ask(request, TRANSACTIONAL_COMMIT).topics[0].partitions[0].error_code)
