"""The requests of a member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from dataclasses import replace

from streamsrt.membership.classic.layout import encode_subscription
from streamsrt.membership.classic.state import Session
from streamsrt.membership.classic.stream_layout import STREAM_PROTOCOL, encode_stream_subscription, is_numbered
from streamsrt.membership.classic.values import NO_GENERATION, PROTOCOL_NAME, PROTOCOL_TYPE, ClassicSubscription
from streamsrt.membership.requests import caught_up
from streamsrt.membership.values import Task, Tasks, TopicPartition
from streamsrt.wire.types import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest


def subscription(session: Session) -> ClassicSubscription:
    """The member's current subscription."""
    membership, held = session.membership, session.held
    report = session.report
    reported = _tasks_with_offsets(session, held)
    return ClassicSubscription(
        process_id=membership.process_id,
        topology_epoch=membership.topology.epoch,
        topology_digest=session.digest,
        unique=session.unique,
        topics=_topics(session),
        owned_partitions=_owned_partitions(session, held),
        generation_id=session.synced_generation,
        rack_id=membership.rack_id,
        endpoint=membership.endpoint,
        client_tags=membership.client_tags,
        topology=membership.topology if session.topology_wanted else None,
        held=held,
        echo=session.echo,
        offsets={task: offset for task, offset in report.offsets.items() if task in reported} if report else {},
        end_offsets={task: end for task, end in report.end_offsets.items() if task in reported} if report else {},
        requests_shutdown=session.shutdown_application,
        shutdown_received=session.shutdown_received,
        missed_sync=session.missed_sync,
        returns=session.returns,
        awaits=session.awaits and session.synced_generation != NO_GENERATION,
    )


def _tasks_with_offsets(session: Session, held: Tasks) -> frozenset[Task]:
    """The tasks whose offsets an assignor needs: all that are on disk here and not active here."""
    return frozenset(() if session.report is None else session.report.offsets) - held.active


def _topics(session: Session) -> frozenset[str]:
    """The topics to subscribe to. Brokers expire the offsets of topics to which no member of a stable group subscribes
    (KIP-211)."""
    names = {topic for topic, _ in session.partitions}
    for part in session.membership.topology.subtopologies:
        names.update(part.source_topics, (topic.name for topic in part.repartition_source_topics))
    return frozenset(names)


def _owned_partitions(session: Session, held: Tasks) -> frozenset[TopicPartition]:
    """The input partitions of active tasks, as far as the leader has sent them. Java's members and lag tools read them."""
    inputs: dict[str, set[str]] = {}
    patterns: set[str] = set()
    for part in session.membership.topology.subtopologies:
        names = {*part.source_topics, *(topic.name for topic in part.repartition_source_topics)}
        inputs[part.subtopology_id] = names
        if part.source_topic_regex:
            patterns.add(part.subtopology_id)
    wanted = {(topic, task[1]) for task in held.active for topic in inputs.get(task[0], ())}
    named = {topic for topics in inputs.values() for topic in topics}
    by_pattern = {task[1] for task in held.active if task[0] in patterns}
    return frozenset(
        each for each in session.partitions if each in wanted or (each[0] not in named and each[1] in by_pattern)
    )


def _protocols(session: Session) -> list[JoinGroupRequest.JoinGroupRequestProtocol]:
    """The protocols in order of preference. Ours is first: the broker chooses the first one that all members have. Java's is
    second, if it can be written."""
    current = subscription(session)
    layouts = [(PROTOCOL_NAME, encode_subscription(current))]
    if is_numbered(session.membership.topology):
        # A Java leader treats partitions without an owner as free.
        current = replace(current, owned_partitions=current.owned_partitions | _inputs_of_active(session))
        layouts.append(
            (STREAM_PROTOCOL, encode_stream_subscription(current, session.stream_version, session.membership.topology))
        )
    return [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in layouts]


def _inputs_of_active(session: Session) -> frozenset[TopicPartition]:
    """All input partitions of active tasks, whether or not the leader has sent them; some may not exist."""
    active = session.held.active
    return frozenset(
        (topic, task[1])
        for part in session.membership.topology.subtopologies
        for topic in (*part.source_topics, *(each.name for each in part.repartition_source_topics))
        for task in active
        if task[0] == part.subtopology_id
    )


def join_request(session: Session, reason: str) -> tuple[Session, JoinGroupRequest]:
    """Builds a JoinGroup with new contents; its claims are kept."""
    session = replace(session, unique=(session.unique + 1) & 0x7FFF_FFFF)
    membership = session.membership
    request = JoinGroupRequest(
        group_id=membership.group_id,
        session_timeout_ms=membership.session_timeout_ms,
        rebalance_timeout_ms=membership.session_timeout_ms,
        member_id=session.member_id,
        group_instance_id=membership.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=_protocols(session),
        reason=reason,
    )
    session = replace(
        session,
        join=request,
        claimed=session.held,
        reported_caught_up=caught_up_warmups(session),
        join_requested_shutdown=session.shuts_down,
    )
    return session, request


def with_member_id(join: JoinGroupRequest, member_id: str) -> JoinGroupRequest:
    """The same request, with the member id that was assigned."""
    return JoinGroupRequest(
        group_id=join.group_id,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=join.group_instance_id,
        protocol_type=join.protocol_type,
        protocols=join.protocols,
        reason=join.reason,
    )


def caught_up_warmups(session: Session) -> frozenset[Task]:
    """The warm-up tasks that have caught up far enough to be promoted."""
    if session.report is None:
        return frozenset()
    return caught_up(session.owned.warmup, session.report, session.recovery_lag)


def sync_request(session: Session, assignments: dict[str, bytes]) -> SyncGroupRequest:
    entry = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=session.membership.group_id,
        generation_id=session.generation,
        member_id=session.member_id,
        group_instance_id=session.membership.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=session.protocol_name,
        assignments=[entry(member_id=name, assignment=data) for name, data in sorted(assignments.items())],
    )


def heartbeat_request(session: Session) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=session.membership.group_id,
        generation_id=session.generation,
        member_id=session.member_id,
        group_instance_id=session.membership.instance_id,
    )


def leave_request(session: Session, reason: str) -> LeaveGroupRequest:
    identity = LeaveGroupRequest.MemberIdentity(
        member_id=session.member_id, group_instance_id=session.membership.instance_id, reason=reason
    )
    return LeaveGroupRequest(group_id=session.membership.group_id, members=[identity])
