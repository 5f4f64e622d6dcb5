"""Java's members of a group that one of our members leads: their metadata, converted to ours.

1. They run the version of the group (:func:`version_of`), because Java knows no epochs. A group with Java's members has
   only one version.
2. Their claims are the tasks that they run, and those whose partitions they own. Standby tasks are not included: Java
   manages its state directory itself.
3. Their echo is the leader's assignment of the previous generation, if it led that one and they have joined since.
   Otherwise it is the tasks that they run, from the generation that they name.
4. Only the topics that Java's members subscribe to show whether they have the same topology.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamsrt.assignment.topic_pattern import InvalidRegexError, matching
from streamsrt.membership.classic.stream_layout import JavaSubscription, decode_stream_subscription
from streamsrt.membership.classic.values import ClassicSubscription, Echo, Joined, Topology, Unreadable
from streamsrt.membership.values import Endpoint, Task, Tasks, TopicPartition
from streamsrt.wire.streams_user_data import SHUTDOWN_REQUESTED, SubscriptionInfo
from streamsrt.wording import host_and_port

_NO_NAME = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class JavaVersion:
    """The version that Java's members are assumed to run."""

    epoch: int
    digest: bytes
    topology: Topology


@dataclass(frozen=True, slots=True)
class SentAssignment:
    """An earlier assignment of a Java member. ``unique`` is the number of the subscription that it answers."""

    unique: int
    echo: Echo


@dataclass(frozen=True, slots=True)
class JavaMembers:
    """All members, in the order of ``joined``."""

    ours: Mapping[str, ClassicSubscription] = field(default_factory=dict)
    javas: Mapping[str, JavaSubscription] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


def read_subscriptions(joined: Iterable[Joined]) -> JavaMembers:
    ours: dict[str, ClassicSubscription] = {}
    javas: dict[str, JavaSubscription] = {}
    unreadable: dict[str, str] = {}
    for each in joined:
        subscription = decode_stream_subscription(each.metadata)
        if isinstance(subscription, Unreadable):
            unreadable[each.member_id] = subscription.reason
        elif isinstance(subscription, JavaSubscription):
            javas[each.member_id] = subscription
        else:
            ours[each.member_id] = subscription
    return JavaMembers(ours, javas, unreadable)


def version_of(
    read: JavaMembers, generation: int, leader_id: str, texts: Mapping[bytes, Topology]
) -> JavaVersion | None:
    """Returns the group's version: by the newest echo of our members, else the leader's version. None: its text is not known
    here."""
    echoes = [s.echo for s in read.ours.values() if s.echo is not None and 0 <= s.echo.generation < generation]
    mine = read.ours[leader_id]
    epoch, digest = mine.topology_epoch, mine.topology_digest
    if echoes:
        newest = max(echoes, key=lambda echo: echo.generation)
        epoch, digest = newest.group_epoch, newest.group_digest
    return JavaVersion(epoch, digest, texts[digest]) if digest in texts else None


def to_classic_subscription(
    member_id: str, subscription: JavaSubscription, version: JavaVersion, sent: SentAssignment | None, generation: int
) -> ClassicSubscription:
    """Converts a Java member's subscription to ours. ``sent``: its assignment by this leader in the generation before, if it
    led that one."""
    active = subscription.running | tasks_of_partitions(version.topology, subscription.owned_partitions)
    info = subscription.info
    known = info if isinstance(info, SubscriptionInfo) else None
    echo = None
    if sent is not None and (known is None or known.unique != sent.unique):
        echo = sent.echo
    elif 0 <= subscription.generation_id < generation:
        echo = Echo(subscription.generation_id, version.epoch, version.digest, Tasks(active))
    sums = {} if known is None else known.offset_sums
    offsets = {(str(part), number): offset for (part, number), offset in sums.items() if offset >= 0}
    return ClassicSubscription(
        process_id=str(uuid.uuid5(_NO_NAME, member_id)) if known is None else known.process_id,
        topology_epoch=version.epoch,
        topology_digest=version.digest,
        unique=0 if known is None else known.unique,
        topics=subscription.topics,
        owned_partitions=subscription.owned_partitions,
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
        endpoint=None if known is None else _endpoint(known.endpoint),
        client_tags={} if known is None else known.client_tags,
        held=Tasks(active),
        echo=echo,
        offsets={task: offset for task, offset in offsets.items() if task not in active},
        requests_shutdown=known is not None and known.error == SHUTDOWN_REQUESTED,
    )


def tasks_of_partitions(topology: Topology, partitions: Iterable[TopicPartition]) -> frozenset[Task]:
    """The tasks that read these partitions."""
    pairs = list(partitions)
    found: set[Task] = set()
    for part in topology.subtopologies:
        topics = _read_by(topology, part.subtopology_id, {name for name, _ in pairs})
        found.update((part.subtopology_id, number) for name, number in pairs if name in topics)
    return frozenset(found)


def unlike(topology: Topology, subscription: JavaSubscription) -> str:
    """Returns a sign that a Java member runs another topology, or why it can't be understood; empty if there is none."""
    if subscription.unreadable:
        return subscription.unreadable
    named = _named(topology)
    missing = sorted(named - subscription.topics)
    known = frozenset[str]().union(
        *(_read_by(topology, part.subtopology_id, subscription.topics) for part in topology.subtopologies)
    )
    more = sorted(subscription.topics - known)
    texts = []
    if missing:
        texts.append(f"it does not read {', '.join(missing)}, which this program reads")
    if more:
        texts.append(f"it reads {', '.join(more)}, which this program does not read")
    return "; ".join(texts)


def foreign_inputs(topology: Topology, inputs: Iterable[tuple[Task, TopicPartition]]) -> str:
    """Returns inputs assigned by a Java leader that this topology does not have; empty if it has all of them."""
    for (name, partition), (topic, number) in inputs:
        if partition != number or topic not in _read_by(topology, name, {topic}):
            reads = ", ".join(sorted(_read_by(topology, name, _named(topology)))) or "nothing"
            return f"there, subtopology {name} reads {topic}; here it reads {reads}"
    return ""


def _named(topology: Topology) -> frozenset[str]:
    parts = topology.subtopologies
    return frozenset(
        name for part in parts for name in (*part.source_topics, *(t.name for t in part.repartition_source_topics))
    )


def _read_by(topology: Topology, subtopology_id: str, topics: Iterable[str]) -> frozenset[str]:
    """The ones of ``topics`` that the subtopology reads."""
    part = next((part for part in topology.subtopologies if part.subtopology_id == subtopology_id), None)
    if part is None:
        return frozenset()
    names = frozenset(topics)
    read = {*part.source_topics, *(topic.name for topic in part.repartition_source_topics)} & names
    others = names - _named(topology)
    try:
        return frozenset(read).union(*(matching(pattern, others) for pattern in part.source_topic_regex))
    except InvalidRegexError:
        return frozenset(read)


def _endpoint(text: str) -> Endpoint | None:
    address = host_and_port(text)
    return None if address is None else Endpoint(*address)
