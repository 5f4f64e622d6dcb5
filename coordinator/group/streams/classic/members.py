"""Members of the classic protocol in a streams group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-1071).

1. JoinGroup is handled as a heartbeat that reports what the member owns; the generation in the response is the member's
   epoch. There is no leader: the coordinator assigns, and what a member sends with SyncGroup is ignored.
2. SyncGroup returns the member's current assignment. A member that has to give tasks back does so after it, and joins
   again.
3. Heartbeat returns REBALANCE_IN_PROGRESS while the member has to join: for a newer epoch, for tasks to give back, for
   tasks that have become free, or because the whole application ends. A member that does not join within its rebalance
   timeout is removed.
4. The owned partitions show which active tasks an instance of Kafka Streams has; its standby tasks count as closed as
   soon as it joins, because no JoinGroup reports that. Members of this runtime report all of it (``own_members``).
5. Kafka Streams joins only groups whose subtopologies have numbers for names: its layout has no others.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.classic.change import join_refusal
from coordinator.group.classic.membership import leaving
from coordinator.group.classic.state import Protocol
from coordinator.group.members import find_member
from coordinator.group.refusal import Refused
from coordinator.group.streams.classic.own_layout import OWN_PROTOCOL, OwnSubscription, own_subscription_of
from coordinator.group.streams.classic.own_members import is_own, own_assignment, own_heartbeat
from coordinator.group.streams.classic.user_data import (
    StreamsSubscription,
    UntranslatableError,
    assignment_of,
    is_numbered,
    partitions_of,
    subscription_of,
)
from coordinator.group.streams.config import NeededConfig
from coordinator.group.streams.departure import SESSION, remove_members
from coordinator.group.streams.describe import configuration_of
from coordinator.group.streams.heartbeat import handle_classic_join
from coordinator.group.streams.holders import holders
from coordinator.group.streams.in_flight import has_read_on
from coordinator.group.streams.state import ClassicSide, Endpoint, Member, StreamsGroup, applied
from coordinator.group.values import GroupDecision, Reply, RequestContext, SoftUpdate
from coordinator.machine.values import CancelTimer, Decision, Timer, TimerKey
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.reconcile import MemberState, reconcile
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks, wire_tasks
from streamsrt.assignment.topics import TopicsImage
from streamsrt.wire import types
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.streams_user_data import NO_ERROR, NO_REBALANCE, RUNNING, SHUTDOWN_REQUESTED
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

CONSUMER = "consumer"
REJOIN = "rejoin"
KNOWN_ID_VERSION = 4
SEVERAL_MEMBERS_VERSION = 3


def join(
    group: StreamsGroup,
    request: types.JoinGroupRequest,
    context: RequestContext,
    now_ms: int,
    *,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles a JoinGroup."""
    try:
        return _join(group, request, context, now_ms, image, config)
    except Refused as refused:
        response = join_refusal(refused.code, request.member_id, context.api_version)
        return Decision(replies=(Reply(context.request_id, response),))


def _join(
    group: StreamsGroup,
    request: types.JoinGroupRequest,
    context: RequestContext,
    now_ms: int,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    bounds = config.classic
    if not bounds.min_session_timeout_ms <= request.session_timeout_ms <= bounds.max_session_timeout_ms:
        raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)
    protocol, subscription = _translated(request)
    instance_id = request.group_instance_id
    member_id = request.member_id
    if not member_id:
        member_id = f"{context.client_id if instance_id is None else instance_id}-{context.unique}"
        if instance_id is None and context.api_version >= KNOWN_ID_VERSION:
            response = join_refusal(ErrorCode.MEMBER_ID_REQUIRED, member_id, context.api_version)
            return Decision(replies=(Reply(context.request_id, response),))
    elif member_id in group.members or instance_id is not None:
        _classic_member(group, member_id, instance_id)
    if isinstance(subscription, OwnSubscription):
        beat = own_heartbeat(group, request, member_id, subscription)
    else:
        is_new = member_id not in group.members
        if is_new and group.topology is not None and not is_numbered(group.topology):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        beat = _heartbeat_of(group, request, member_id, subscription, image)
    side = ClassicSide(request.session_timeout_ms, protocol)
    decision = handle_classic_join(group, beat, context, now_ms, image=image, config=config, side=side)
    after = applied(group, decision.records)
    response = types.JoinGroupResponse(
        generation_id=after.current[member_id].epoch,
        protocol_type=CONSUMER,
        protocol_name=protocol.name,
        leader="",
        member_id=member_id,
    )
    others = group.soft.must_rejoin.intersection(after.members) - {member_id}
    rejoined = SoftUpdate(group.group_id, {"must_rejoin": others})
    return replace(
        decision,
        soft=(*decision.soft, rejoined),
        timers=(*decision.timers, CancelTimer(TimerKey(REJOIN, group.group_id, member_id))),
        replies=(Reply(context.request_id, response),),
    )


def _translated(request: types.JoinGroupRequest) -> tuple[Protocol, StreamsSubscription | OwnSubscription]:
    """Returns the member's first readable protocol, and its subscription."""
    for entry in request.protocols if request.protocol_type == CONSUMER else ():
        protocol = Protocol(entry.name, bytes(entry.metadata))
        try:
            read = own_subscription_of if protocol.name == OWN_PROTOCOL else subscription_of
            return protocol, read(protocol.metadata)
        except UntranslatableError:
            continue
    raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _classic_member(group: StreamsGroup, member_id: str, instance_id: str | None) -> Member:
    member = find_member(group, member_id, instance_id)
    if member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def _heartbeat_of(
    group: StreamsGroup,
    request: types.JoinGroupRequest,
    member_id: str,
    subscription: StreamsSubscription,
    image: TopicsImage,
) -> StreamsGroupHeartbeatRequest:
    """Converts the JoinGroup to a heartbeat."""
    beat = StreamsGroupHeartbeatRequest
    current = group.current.get(member_id)
    owned = NO_TASKS if current is None else _owned(group, member_id, subscription, image)
    endpoint = subscription.endpoint
    return beat(
        group_id=group.group_id,
        member_id=member_id,
        member_epoch=0 if current is None else current.epoch,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        process_id=subscription.process_id,
        user_endpoint=None if endpoint is None else beat.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[beat.KeyValue(key=key, value=value) for key, value in subscription.client_tags],
        active_tasks=wire_tasks(beat.TaskIds, owned.active),
        standby_tasks=[],
        warmup_tasks=[],
        task_offsets=[
            beat.TaskOffset(subtopology_id=task.subtopology_id, partition=task.partition, offset=offset)
            for task, offset in sorted(subscription.offset_sums.items())
            if offset >= 0
        ],
        shutdown_application=subscription.requests_shutdown,
    )


def _owned(group: StreamsGroup, member_id: str, subscription: StreamsSubscription, image: TopicsImage) -> Tasks:
    current = group.current[member_id]
    had = current.assigned.active | current.pending.active
    configuration = configuration_of(group, image)
    if configuration is None or not configuration.partition_counts:
        return Tasks(had)
    partitions = partitions_of(had, configuration)
    running = {task for task, offset in subscription.offset_sums.items() if offset == RUNNING}
    owned = {task for task in had if subscription.owned.intersection(partitions.get(task, ()))}
    return Tasks(frozenset(owned | (had & running if subscription.owned else set())))


def sync(
    group: StreamsGroup,
    request: types.SyncGroupRequest,
    context: RequestContext,
    now_ms: int,
    *,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles a SyncGroup: returns the member's current assignment."""
    try:
        member = _checked(group, request)
        assert member.classic is not None
        if request.protocol_name not in {None, member.classic.protocol.name}:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    except Refused as refused:
        return _answer(context, types.SyncGroupResponse(error_code=refused.code))
    rejoin_at_ms = NO_REBALANCE
    if member.member_id == _prober(group):
        rejoin_at_ms = now_ms + config.for_group(group.group_id).task_offset_interval_ms
    response = types.SyncGroupResponse(
        protocol_type=CONSUMER,
        protocol_name=member.classic.protocol.name,
        assignment=encoded_assignment(group, member, image, config, rejoin_at_ms=rejoin_at_ms),
    )
    session = TimerKey(SESSION, group.group_id, member.member_id)
    timer = Timer(session, now_ms + member.classic.session_timeout_ms)
    return Decision(timers=(timer,), replies=(Reply(context.request_id, response),))


def _prober(group: StreamsGroup) -> str | None:
    """Returns the only instance of Kafka Streams that has to rejoin by itself to report its offsets, while it has warm-up
    tasks."""
    warming = (
        name
        for name, member in group.members.items()
        if member.classic is not None and not is_own(member.classic) and group.current[name].assigned.warmup
    )
    return min(warming, default=None)


def encoded_assignment(
    group: StreamsGroup,
    member: Member,
    image: TopicsImage,
    config: NeededConfig,
    *,
    rejoin_at_ms: int = NO_REBALANCE,
) -> bytes:
    """Encodes the member's current assignment for the classic protocol."""
    if member.classic is not None and is_own(member.classic):
        return own_assignment(group, member, image, config.for_group(group.group_id))
    configuration = configuration_of(group, image)
    if member.classic is None or configuration is None or not configuration.partition_counts:
        return b""
    version = subscription_of(member.classic.protocol.metadata).version
    return assignment_of(
        group.current[member.member_id].assigned,
        configuration,
        version,
        endpoints=_endpoints(group, configuration),
        rejoin_at_ms=rejoin_at_ms,
        error=NO_ERROR if group.soft.shutdown_requested_by is None else SHUTDOWN_REQUESTED,
    )


def _endpoints(
    group: StreamsGroup, configuration: Configuration
) -> dict[Endpoint, tuple[list[tuple[str, int]], list[tuple[str, int]]]]:
    found: dict[Endpoint, tuple[list[tuple[str, int]], list[tuple[str, int]]]] = {}
    for name, member in group.members.items():
        if member.user_endpoint is not None:
            roles = found.setdefault(member.user_endpoint, ([], []))
            assigned = group.current[name].assigned
            for role, tasks in zip(roles, (assigned.active, assigned.standby), strict=True):
                role += [each for partitions in partitions_of(tasks, configuration).values() for each in partitions]
    return found


def heartbeat(
    group: StreamsGroup, request: types.HeartbeatRequest, context: RequestContext, now_ms: int
) -> GroupDecision:
    """Handles a Heartbeat."""
    try:
        member = _checked(group, request)
    except Refused as refused:
        return _answer(context, types.HeartbeatResponse(error_code=refused.code))
    assert member.classic is not None
    name = member.member_id
    has_to_join = _has_to_join(group, member) or has_read_on(group, context)
    code = ErrorCode.REBALANCE_IN_PROGRESS if has_to_join else ErrorCode.NONE
    timers = [Timer(TimerKey(SESSION, group.group_id, name), now_ms + member.classic.session_timeout_ms)]
    soft: tuple[SoftUpdate, ...] = ()
    already = group.soft.must_rejoin
    if code != ErrorCode.NONE and name not in already:
        soft = (SoftUpdate(group.group_id, {"must_rejoin": already | {name}}),)
        timers.append(Timer(TimerKey(REJOIN, group.group_id, name), now_ms + member.rebalance_timeout_ms))
    response = types.HeartbeatResponse(error_code=code)
    return Decision(soft=soft, timers=tuple(timers), replies=(Reply(context.request_id, response),))


def _has_to_join(group: StreamsGroup, member: Member) -> bool:
    current = group.current[member.member_id]
    if group.soft.shutdown_requested_by is not None:
        return True  # it is told with its assignment
    if current.state is MemberState.UNREVOKED_TASKS and member.classic is not None and is_own(member.classic):
        return False  # it joins by itself once it has closed them
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_TASKS:
        return True
    if current.state is not MemberState.UNRELEASED_TASKS:
        return False
    target = group.targets.get(member.member_id, NO_TASKS)
    held = holders(group, member)
    moved = reconcile(current, target=target, target_epoch=group.assignment_epoch, owned=None, held=held)
    return moved.assigned != current.assigned


def leave(group: StreamsGroup, request: types.LeaveGroupRequest, context: RequestContext) -> GroupDecision:
    """Handles a LeaveGroup."""
    response = types.LeaveGroupResponse()
    gone: list[str] = []
    for member_id, instance_id in leaving(request, context.api_version):
        code = ErrorCode.NONE
        try:
            name = member_id or group.static_members.get(instance_id or "", "")
            gone.append(_classic_member(group, name, instance_id if member_id else None).member_id)
        except Refused as refused:
            code = refused.code
        response.members.append(
            response.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        )
    if context.api_version < SEVERAL_MEMBERS_VERSION:
        response = types.LeaveGroupResponse(error_code=response.members[0].error_code)
    if not gone:
        return _answer(context, response)
    return replace(remove_members(group, gone), replies=(Reply(context.request_id, response),))


def _checked(group: StreamsGroup, request: types.SyncGroupRequest | types.HeartbeatRequest) -> Member:
    member = _classic_member(group, request.member_id, request.group_instance_id)
    if request.generation_id != group.current[member.member_id].epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION)
    return member


def _answer(context: RequestContext, message: types.Message) -> GroupDecision:
    return Decision(replies=(Reply(context.request_id, message),))


def task_ids(tasks: Tasks) -> list[TaskId]:
    """Returns all tasks, in any role."""
    return sorted(tasks.active | tasks.passive)
