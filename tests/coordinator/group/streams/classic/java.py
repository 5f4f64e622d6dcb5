"""Members of Kafka Streams in the classic protocol, played: what they send, and how they read what they get."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from coordinator.group.streams.classic.user_data import tasks_of
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.wire import types
from streamsrt.wire.messages import decode_consumer_protocol, encode_record_value
from streamsrt.wire.streams_user_data import RUNNING
from streamsrt.wire.types import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.coordinator.group.classic.scene import (
    Scene,
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from tests.streamsrt.assignment.notation import subtopology

IMAGE = TopicsImage.of(TopicImage(b"1" * 16, "in", 6), TopicImage(b"2" * 16, "log", 6))
Beat = types.StreamsGroupHeartbeatRequest


def user_data(process: str, sums: dict[TaskId, int], *, version: int = 11, endpoint: str = "") -> bytes:
    """SubscriptionInfo of Kafka Streams, in versions 10 and 11."""
    out = [struct.pack(">ii", version, 11), uuid.uuid5(uuid.NAMESPACE_OID, process).bytes]
    out += [struct.pack(">i", len(endpoint)), endpoint.encode(), struct.pack(">i", len(sums))]
    for task, offset in sums.items():
        out.append(struct.pack(">iiqh", int(task.subtopology_id), task.partition, offset, -1))
    out.append(struct.pack(">bi", 0, 0))
    if version >= 11:
        out.append(struct.pack(">i", 0))
    return b"".join(out)


class Member:
    """An instance of Kafka Streams. A cooperative one keeps its tasks while it joins and gives back after SyncGroup."""

    def __init__(self, scene: Scene, name: str, *, eager: bool = False, **fields: Any) -> None:
        self.scene = scene
        self.name = name
        self.eager = eager
        self.fields = fields
        self.member_id = ""
        self.generation = -1
        self.tasks = Tasks()
        self.partitions: frozenset[tuple[str, int]] = frozenset()
        self.rejoin_at_ms = -1

    def metadata(self, **changes: Any) -> bytes:
        owned: dict[str, list[int]] = {}
        for topic, index in sorted(() if self.eager else self.partitions):
            owned.setdefault(topic, []).append(index)
        sums = {task: RUNNING for task in self.tasks.active} if not self.eager else {}
        sums |= dict.fromkeys(self.tasks.standby, 5)
        partition = ConsumerProtocolSubscription.TopicPartition
        subscription = ConsumerProtocolSubscription(
            topics=["in"],
            user_data=user_data(self.name, sums, **changes),
            owned_partitions=[partition(topic=topic, partitions=indexes) for topic, indexes in owned.items()],
            generation_id=self.generation,
        )
        return encode_record_value(subscription)

    def request(self) -> types.JoinGroupRequest:
        request = join_request(self.member_id, "stream", **self.fields)
        request.protocols[0].metadata = self.metadata()
        return request

    def come(self) -> None:
        """Asks for an id."""
        asked = self.scene.answer(self.request())
        assert asked.error_code == 79
        self.member_id = asked.member_id

    def join(self) -> Any:
        """JoinGroup and SyncGroup to a coordinator that assigns; the JoinGroup's answer."""
        joined = self.scene.answer(self.request())
        if joined.error_code:
            return joined
        assert (joined.leader, joined.members, joined.protocol_name) == ("", [], "stream")
        self.member_id = joined.member_id
        self.take_generation(joined.generation_id)
        return joined

    def take_generation(self, generation: int) -> None:
        self.generation = generation
        self.take(self.scene.answer(sync_request(self.member_id, generation)))

    def take(self, synced: Any) -> None:
        assert synced.error_code == 0
        given = decode_consumer_protocol(ConsumerProtocolAssignment, synced.assignment)
        self.tasks = tasks_of(bytes(synced.assignment))
        self.partitions = frozenset((t.topic, index) for t in given.assigned_partitions for index in t.partitions)
        assert given.user_data is not None
        (self.rejoin_at_ms,) = struct.unpack(">q", bytes(given.user_data)[-8:])

    def beat(self) -> int:
        return int(self.scene.answer(heartbeat_request(self.member_id, self.generation)).error_code)

    def leave(self) -> None:
        self.scene.ask(leave_request(self.member_id))


def streams_join(member_id: str = "C", **changes: Any) -> Beat:
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": member_id,
        "rebalance_timeout_ms": 60_000,
        "topology": Beat.Topology(epoch=0, subtopologies=[subtopology("0: source=in changelog=log")]),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": str(uuid.uuid5(uuid.NAMESPACE_OID, member_id)),
    }
    return Beat(**{**fields, **changes})


def task_names(tasks: Tasks) -> tuple[str, str, str]:
    """Active, standby and warm-up tasks as texts."""
    active, standby, warmup = (
        " ".join(f"{task.subtopology_id}_{task.partition}" for task in sorted(role))
        for role in (tasks.active, tasks.standby, tasks.warmup)
    )
    return active, standby, warmup
