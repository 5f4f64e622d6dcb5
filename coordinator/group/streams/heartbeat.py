"""One heartbeat of a streams group (KIP-1071, "Request Handling").

1. In this order: check the request; find group and member; check the epoch; update the member; take the topology;
   resolve it against the topics; refuse an update that could not run; bump the group epoch if something changed; compute
   the target if the epoch is ahead of it and nothing delays it; reconcile this member; answer.
2. Each step that changes hard state adds records and continues with the state that results from them.
3. A heartbeat that changes nothing adds no record and takes the same time however large the group is.
4. Several reasons to bump within one heartbeat bump once.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.group.heartbeats import JOIN, LEFT_FOR_A_WHILE
from coordinator.group.members import check_member_epoch, find_member
from coordinator.group.refusal import Refused
from coordinator.group.streams.assignment import bump_record, older_configurations, target_records
from coordinator.group.streams.config import NeededConfig, StreamsGroupConfig
from coordinator.group.streams.creation import creation_detail, next_creation, raised_retention
from coordinator.group.streams.departure import INITIAL_DELAY, REBALANCE, SESSION, leave
from coordinator.group.streams.holders import holders
from coordinator.group.streams.in_flight import (
    detail_of,
    may_lose,
    reads_the_rest,
    remembered,
    unread_of,
    waiting_of,
)
from coordinator.group.streams.preflight import (
    check_feeds,
    check_in_flight,
    check_left,
    check_reader,
    check_update,
    check_values,
    forbidden_topics,
)
from coordinator.group.streams.records import (
    current_record,
    member_record,
    member_tombstones,
    program_record,
    taken_over_record,
    target_record,
    topology_record,
)
from coordinator.group.streams.response import heartbeat_response, partitions_by_endpoint
from coordinator.group.streams.returning import may_return
from coordinator.group.streams.state import ClassicSide, Endpoint, Member, Soft, StreamsGroup, applied
from coordinator.group.streams.statuses import missing_tags, problem_of, shutdown, stale
from coordinator.group.streams.task_offsets import has_caught_up, with_report
from coordinator.group.streams.validation import check_owned, check_request, owned_tasks, requested_topology
from coordinator.group.values import Effect, GroupDecision, GroupRecord, Reply, RequestContext, SoftUpdate
from coordinator.group.waits import goes_on
from coordinator.machine.values import CancelTimer, Decision, Timer, TimerKey
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.reconcile import NEVER_ASSIGNED, Current, MemberState, reconcile
from streamsrt.assignment.refused_update import epoch_behind, epoch_too_far_ahead, same_epoch, unauthorized
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.targets import only
from streamsrt.assignment.tasks import NO_TASKS, Tasks
from streamsrt.assignment.topics import TopicsImage
from streamsrt.assignment.topology import Topology
from streamsrt.wire.client_tags import TOPOLOGY_DIGEST
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.types import StreamsGroupHeartbeatRequest

INITIAL_DELAY_DETAIL = "Assignment delayed due to the configured initial rebalance delay."
INTERVAL_DETAIL = "Assignment delayed due to the configured assignment interval."


def handle_heartbeat(
    group: StreamsGroup | None,
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    *,
    image: TopicsImage,
    config: NeededConfig,
) -> GroupDecision:
    """Handles a heartbeat. Raises Refused without any change."""
    if not config.streams_enabled:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "Streams groups are off: group.coordinator.rebalance.protocols does not name streams.",
        )
    check_request(request)
    topology = requested_topology(request)
    if request.member_epoch < JOIN:
        timeout = config.for_group(request.group_id).session_timeout_ms
        return leave(group, request, context, now_ms, timeout)
    if group is None and request.member_epoch != JOIN:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {request.group_id} not found.")
    return _Heartbeat(group, request, context, now_ms, image, config).decide(topology)


def handle_classic_join(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    context: RequestContext,
    now_ms: int,
    *,
    image: TopicsImage,
    config: NeededConfig,
    side: ClassicSide,
) -> GroupDecision:
    """Handles the JoinGroup of a classic-protocol member, converted to a heartbeat. Raises Refused.

    Its topology is the group's where it sends none: the classic protocol has none.
    """
    topology = None
    if request.member_epoch == JOIN:
        topology = requested_topology(request) or group.topology
    return _Heartbeat(group, request, context, now_ms, image, config, side).decide(topology)


class _Heartbeat:
    """A heartbeat that is being handled: ``group`` is the group after the records so far."""

    def __init__(
        self,
        group: StreamsGroup | None,
        request: StreamsGroupHeartbeatRequest,
        context: RequestContext,
        now_ms: int,
        image: TopicsImage,
        config: NeededConfig,
        side: ClassicSide | None = None,
    ) -> None:
        self.side = side
        self.is_new_group = group is None
        self.before = self.group = group or StreamsGroup(request.group_id)
        self.request = request
        self.context = context
        self.now_ms = now_ms
        self.image = image
        self.max_size = config.max_size
        self.config = config.for_group(request.group_id)
        self.joins = request.member_epoch == JOIN
        self.owned = owned_tasks(request)
        self.records: list[GroupRecord] = []
        self.soft: dict[str, object] = {}
        self.timers: list[Timer | CancelTimer] = []
        self.effects: list[Effect] = []
        self.topology_updated = False

    def decide(self, sent: Topology | None) -> GroupDecision:
        requested = None if sent is None else replace(sent, program=_program_of(_sent_tags(self.request)))
        admitted = self._admit(requested)
        member, needs_bump = self._update_member(admitted, requested)
        statuses: list[tuple[StatusCode, str]] = []
        topology = self._take_topology(requested)
        self._forget_other_tasks(admitted, member)
        self._take_offsets()
        statuses += stale(member, topology.epoch)
        configuration = self._configure(topology)
        if self.topology_updated:
            self._preflight(member, configuration)
            self._raise_retention(configuration)
        if configuration.is_ready and self.owned is not None and member.topology_epoch == topology.epoch:
            stored = self.before.current.get(member.member_id, NEVER_ASSIGNED)
            check_owned(self.owned - stored.assigned - stored.pending, configuration)
        self._note_take_over()
        waits = [self._check_unread(), self._check_pause()]
        self._bump_epoch(configuration, needs_bump or self.topology_updated or any(waits) or self._has_caught_up())
        target, target_epoch, delay = self._target(member, configuration)
        if delay:
            statuses.append((StatusCode.ASSIGNMENT_DELAYED, delay))
        old = self.before.current.get(member.member_id, NEVER_ASSIGNED)
        current = self._reconcile(member, target, target_epoch)
        self._remember(member)
        statuses += self._problems(member, configuration)
        return self._decision(member, old, current, configuration, statuses)

    def _write(self, *records: GroupRecord) -> None:
        self.records += records
        self.group = applied(self.group, records)

    def _soft(self) -> Soft:
        return replace(self.before.soft, **self.soft) if self.soft else self.before.soft  # type: ignore[arg-type]

    # The member

    def _admit(self, requested: Topology | None) -> Member | None:
        """Returns the stored member, None if it is new."""
        request = self.request
        if not self.joins:
            member = find_member(self.group, request.member_id, request.instance_id)
            self._check_epoch(self.group.current.get(member.member_id, NEVER_ASSIGNED))
            return member
        owner = self.group.static_members.get(request.instance_id) if request.instance_id is not None else None
        if owner is not None and owner != request.member_id:
            return self._replace_static_member(owner, requested)
        existing = self.group.members.get(request.member_id)
        if existing is None and len(self.group.members) >= self.max_size:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {self.max_size} members.",
            )
        return existing

    def _check_epoch(self, current: Current) -> None:
        check_member_epoch("streams", self.request.member_epoch, self.owned, current)
        if current.state == MemberState.UNKNOWN and (self.owned is None or self.owned):
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )

    def _replace_static_member(self, owner: str, requested: Topology | None) -> Member:
        request, group = self.request, self.group
        current = group.current[owner]
        if current.epoch != LEFT_FOR_A_WHILE and group.members[owner].classic is None:
            if requested is not None and group.topology is not None and requested.epoch < group.topology.epoch:
                # Whoever releases the id for it would see it refused.
                self._check_older(requested, group.topology)
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {owner} member.",
            )
        replaced = replace(group.members[owner], member_id=request.member_id)
        target = group.targets.get(owner, NO_TASKS)
        taken = replace(current, epoch=0, previous_epoch=0)
        self._write(
            *member_tombstones(group.group_id, owner),
            member_record(group.group_id, replaced),
            target_record(group.group_id, request.member_id, target),
            current_record(group.group_id, request.member_id, taken),
        )
        self.timers.append(CancelTimer(TimerKey(SESSION, group.group_id, owner)))
        self.soft |= self.before.soft.forgetting([owner])
        return replaced

    # The request

    def _update_member(self, stored: Member | None, topology: Topology | None) -> tuple[Member, bool]:
        """Returns the updated member, and whether the change requires a new assignment."""
        new = self._joined(topology) if topology is not None else self._updated(stored)
        if new == stored:
            return new, False
        self._write(member_record(self.group.group_id, new))
        return new, stored is None or _assignor_view(new) != _assignor_view(stored)

    def _joined(self, topology: Topology) -> Member:
        request = self.request
        endpoint = request.user_endpoint
        return Member(
            member_id=request.member_id,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=self.context.client_id,
            client_host=self.context.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topology_epoch=topology.epoch,
            process_id=request.process_id or "",
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags=_sent_tags(request),
            classic=self.side,
        )

    def _updated(self, stored: Member | None) -> Member:
        """Returns the stored member with every field of the request."""
        assert stored is not None
        request, context = self.request, self.context
        changes: dict[str, object] = {}
        if request.rack_id is not None:
            changes["rack_id"] = request.rack_id
        if request.rebalance_timeout_ms != -1:
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.process_id is not None:
            changes["process_id"] = request.process_id
        if request.user_endpoint is not None:
            changes["user_endpoint"] = Endpoint(request.user_endpoint.host, request.user_endpoint.port)
        if request.client_tags is not None:
            changes["client_tags"] = _sent_tags(request)
        if context.client_id != stored.client_id or context.client_host != stored.client_host:
            changes |= {"client_id": context.client_id, "client_host": context.client_host}
        if self.side is not None:
            changes["classic"] = self.side
        return replace(stored, **changes) if changes else stored  # type: ignore[arg-type]

    def _take_topology(self, requested: Topology | None) -> Topology:
        known = self.group.topology
        if requested is None:
            return known or Topology(0, ())
        check_reader(self.group, requested, self.request)
        if known is None:
            return self._write_topology(requested)
        if requested.epoch == known.epoch:
            self._check_same(requested, known)
            if requested.program and not known.program:
                self._write(program_record(self.group, requested.program))
            return self.group.topology or known
        if requested.epoch < known.epoch:
            self._check_older(requested, known)
            return known
        if requested.epoch > known.epoch + 1:
            raise Refused(*epoch_too_far_ahead(self.group.group_id, requested.epoch, known.epoch))
        return self._write_topology(requested)

    def _check_older(self, requested: Topology, known: Topology) -> None:
        """Refuses a member with an earlier epoch, unless its version may go on."""
        name = self.request.member_id
        if not may_return(self.before, name, requested) and not reads_the_rest(self.before, requested, self.context):
            is_same = requested.is_same_version(known)
            raise Refused(*epoch_behind(self.group.group_id, requested.epoch, known.epoch, is_same=is_same))

    def _check_same(self, requested: Topology, known: Topology) -> None:
        """Refuses a member with another version under the group's epoch, even if topics and stores are the same.

        Only here is it certain that of two versions that start at the same moment one is refused.
        """
        if not requested.has_same_metadata(known):
            raise Refused(*same_epoch(self.group.group_id, known.epoch))
        request, mine = self.request, requested.program
        for name, member in self.group.members.items() if mine else ():
            theirs = _program_of(member.client_tags) or mine
            if name != request.member_id and member.topology_epoch == known.epoch and theirs != mine:
                raise Refused(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
                    f"Member {name} on {member.client_host.lstrip('/')} runs another topology under the same topology epoch "
                    f"{known.epoch}, with equal topics and stores but other steps between them. Set topology.epoch to "
                    f"{known.epoch + 1} to update the group's topology.",
                )
        if not requested.is_same_version(known):
            raise Refused(*same_epoch(self.group.group_id, known.epoch, has_same_topics=True))

    def _write_topology(self, requested: Topology) -> Topology:
        assert self.request.topology is not None
        older = remembered(self.group, requested, self.context)
        self._write(topology_record(self.group.group_id, self.request.topology, older, requested.program))
        self.topology_updated = True
        assert self.group.topology is not None
        return self.group.topology

    def _forget_other_tasks(self, stored: Member | None, member: Member) -> None:
        """Drops pending tasks of a member that returns with another topology: they may be other tasks now."""
        target = self.group.targets.get(member.member_id)
        if not target or stored is None or stored.topology_epoch == member.topology_epoch:
            return
        known = self.before.topologies()
        old = next((one for one in known if one.epoch == stored.topology_epoch), Topology(stored.topology_epoch, ()))
        assert self.group.topology is not None
        same = {part.id for part in old.subtopologies} - self.group.topology.changed_since(old)
        kept = only(target, lambda task: task.subtopology_id in same)
        if kept != target:
            self._write(target_record(self.group.group_id, member.member_id, kept))

    def _preflight(self, member: Member, configuration: Configuration) -> None:
        known = self.before.topology
        if known is None:
            if not may_lose(member) and self.group.members.keys() <= {member.member_id}:
                check_left(self.group.group_id, configuration.topology, member, self.context)
            return
        versions = self.before.topologies()
        unread = unread_of(self.group.group_id, configuration.topology, versions, self.context)
        others = [each.topology_epoch for name, each in self.group.members.items() if name != member.member_id]
        check_feeds(self.group.group_id, configuration.topology, versions, others, self.context)
        if unread and not may_lose(member):
            check_in_flight(self.group.group_id, configuration.topology, versions, unread, others)
        check_update(self.group.group_id, known, configuration, self.context)
        if any(name != member.member_id for name in self.group.members):
            check_values(self.group, configuration.topology, member, versions)

    def _note_take_over(self) -> None:
        """Notes that the newest version has taken over, once nothing else has run for a session timeout."""
        group = self.group
        if self.joins or group.epoch > group.assignment_epoch or not group.is_taking_over:
            return
        if self.now_ms >= group.assignment_timestamp_ms + self.config.session_timeout_ms:
            self._write(taken_over_record(group))
            self.soft["strayed"] = ()

    def _take_offsets(self) -> None:
        known = self._soft().task_offsets
        reports = with_report(known, self.request, joins=self.joins)
        if reports is not known:
            self.soft["task_offsets"] = reports

    def _check_unread(self) -> bool:
        """Checks removed topics for unread records, and whether they require a new assignment."""
        group, soft = self.group, self.before.soft
        if group.topology is None or not (group.older or soft.waiting):
            return False
        unread = unread_of(group.group_id, group.topology, group.older, self.context)
        waits = waiting_of(group, unread)
        if unread != soft.unread:
            self.soft["unread"] = unread
        if waits == soft.waiting:
            return False
        self.soft["waiting"] = waits
        return True

    def _check_pause(self) -> bool:
        """Returns whether the pause of the newest version has ended or begun."""
        setbacks, topology = self.before.soft.setbacks, self.group.topology
        is_paused = setbacks is not None and topology is not None and setbacks.is_paused(topology.epoch, self.now_ms)
        if is_paused == self.before.soft.is_paused:
            return False
        self.soft["is_paused"] = is_paused
        return True

    def _has_caught_up(self) -> bool:
        """Returns whether this heartbeat reports that a warm-up task has caught up. If a new assignment is due anyway, it
        is already known."""
        if self.request.task_offsets is None or self.group.epoch > self.group.assignment_epoch:
            return False
        reports, lag = self._soft().task_offsets, self.config.acceptable_recovery_lag
        return has_caught_up(self.group, reports, self.request.member_id, lag)

    # Effects on the group

    def _configure(self, topology: Topology) -> Configuration:
        known = self.before.soft.configuration
        if known is not None and self.before.soft.image is self.image and known.topology is topology:
            return known
        rights = self.context.rights
        made = configure(topology, self.image, None if rights is None else rights.may_describe)
        self.soft |= {"configuration": made, "image": self.image}
        return made

    def _configurations(self, newest: Configuration) -> list[Configuration]:
        rights = self.context.rights
        group = replace(self.group, soft=self._soft())
        return [newest, *older_configurations(group, self.image, None if rights is None else rights.may_describe)]

    def _bump_epoch(self, configuration: Configuration, needed: bool) -> None:
        group = self.group
        record = bump_record(group, configuration, self.config.assignment_configs, needed=needed)
        if record is None:
            return
        self._write(record)
        delay_ms = self.config.initial_rebalance_delay_ms
        if self.before.is_empty and delay_ms > 0:
            deadline = self.now_ms + delay_ms
            self.soft["delayed_until_ms"] = deadline
            self.timers.append(Timer(TimerKey(INITIAL_DELAY, group.group_id), deadline))

    def _target(self, member: Member, configuration: Configuration) -> tuple[Tasks, int, str]:
        """Returns the member's target, its epoch and, if a newer target is held back, the reason."""
        group = self.group
        if group.epoch > group.assignment_epoch:
            until = self._soft().delayed_until_ms
            longest_ms = self.config.initial_rebalance_delay_ms
            if until is not None and goes_on(until, self.now_ms, at_most_ms=longest_ms):
                return NO_TASKS, max(1, group.assignment_epoch), INITIAL_DELAY_DETAIL
            interval_ms = self.config.assignment_interval_ms
            free_at = group.assignment_timestamp_ms + interval_ms
            # An interval after an assignment without any task would only delay the start: internal topics were missing.
            is_held_back = goes_on(free_at, self.now_ms, at_most_ms=interval_ms) and any(group.targets.values())
            if is_held_back and not self.topology_updated:
                return group.targets.get(member.member_id, NO_TASKS), group.assignment_epoch, INTERVAL_DETAIL
            self._write(
                *target_records(
                    group,
                    self._configurations(configuration),
                    self.config,
                    self._soft().task_offsets,
                    self._soft().unread,
                    now_ms=self.now_ms,
                    is_paused=self._soft().is_paused,
                )
            )
            group = self.group
        return group.targets.get(member.member_id, NO_TASKS), group.assignment_epoch, ""

    # Effects on the member

    def _reconcile(self, member: Member, target: Tasks, target_epoch: int) -> Current:
        group, name = self.group, member.member_id
        stored = group.current.get(name)
        old = stored or NEVER_ASSIGNED
        start = NEVER_ASSIGNED if self._has_nothing(name, member) else old
        new = reconcile(start, target=target, target_epoch=target_epoch, owned=self.owned, held=holders(group, member))
        if stored is None or new != old:
            self._write(current_record(group.group_id, name, new))
        rebalance = TimerKey(REBALANCE, group.group_id, name)
        if new.state != MemberState.UNREVOKED_TASKS:
            if old.state == MemberState.UNREVOKED_TASKS:
                self.timers.append(CancelTimer(rebalance))
        elif old.state != MemberState.UNREVOKED_TASKS or new.epoch != old.epoch:
            self.timers.append(Timer(rebalance, self.now_ms + member.rebalance_timeout_ms))
        return new

    def _has_nothing(self, name: str, member: Member) -> bool:
        """Whether the stored assignment of a joining member is no longer its own: it opens everything again.

        A static member that comes back in the same process with the same topology keeps its tasks.
        """
        if not self.joins:
            return False
        stored = self.before.members.get(name)
        if stored is None and member.instance_id is not None:
            away = self.before.members.get(self.before.static_members.get(member.instance_id, ""))
            return away is None or (away.topology_epoch, away.process_id) != (member.topology_epoch, member.process_id)
        return True

    def _remember(self, member: Member) -> None:
        request = self.request
        timeout_ms = self.config.session_timeout_ms if self.side is None else self.side.session_timeout_ms
        session = TimerKey(SESSION, self.group.group_id, member.member_id)
        self.timers.append(Timer(session, self.now_ms + timeout_ms))
        if request.shutdown_application:
            self.soft["shutdown_requested_by"] = member.member_id

    def _create(self, configuration: Configuration) -> str:
        """Requests missing internal topics, unless the member may not create them; returns a text for the status."""
        missing = configuration.to_create
        forbidden = forbidden_topics(missing, self.context)
        if forbidden:
            return f"; {unauthorized(forbidden)}"
        known = self.before.soft.creation
        creation, effect = next_creation(known, self.group.group_id, missing, self.now_ms)
        if creation is not known:
            self.soft["creation"] = creation
        if effect is not None:
            self.effects.append(effect)
        return creation_detail(creation)

    def _raise_retention(self, configuration: Configuration) -> None:
        """Extends the retention of existing changelogs for the new topology, as far as the member may create them."""
        rights = self.context.rights
        asked = raised_retention(configuration.resolved, self.image, self.group.group_id)
        if asked is not None and (rights is None or all(map(rights.may_create, asked.settings_ms))):
            self.effects.append(asked)

    def _problems(self, member: Member, configuration: Configuration) -> list[tuple[StatusCode, str]]:
        statuses = list(problem_of(configuration, self._create(configuration), is_stale=self.group.is_stale(member)))
        if self.context.api_version >= 1:
            statuses += missing_tags(member, self.config)
        return [*statuses, *self._waits(member), *shutdown(self._soft().shutdown_requested_by)]

    def _waits(self, member: Member) -> list[tuple[StatusCode, str]]:
        """Returns why tasks are not handed to the newest version yet."""
        waits = detail_of(self.group, member, self._soft().unread, self._soft().waiting)
        statuses = [(StatusCode.ASSIGNMENT_DELAYED, waits)] if waits else []
        if self._soft().is_paused and not self.group.is_stale(member):
            statuses.append((StatusCode.ASSIGNMENT_DELAYED, str(self._soft().setbacks)))
        return statuses

    def _decision(
        self,
        member: Member,
        old: Current,
        current: Current,
        configuration: Configuration,
        statuses: list[tuple[StatusCode, str]],
    ) -> GroupDecision:
        request = self.request
        tasks_changed = self.joins or current.assigned != old.assigned
        endpoint_epoch = self.before.soft.endpoint_epoch
        if self._endpoints_changed(member, configuration, tasks_changed=tasks_changed):
            endpoint_epoch += 1
            self.soft["endpoint_epoch"] = endpoint_epoch
        endpoints = None
        is_full = request.rebalance_timeout_ms != -1
        if is_full or request.endpoint_information_epoch != endpoint_epoch:
            endpoints = partitions_by_endpoint(self.group, configuration, member.member_id)
        differs = self.owned is not None and self.owned != current.assigned
        response = heartbeat_response(
            member,
            current,
            config=self.config,
            statuses=statuses,
            tasks=current.assigned if tasks_changed or is_full or differs else None,
            endpoint_epoch=endpoint_epoch,
            endpoints=endpoints,
        )
        return Decision(
            records=tuple(self.records),
            soft=(SoftUpdate(self.group.group_id, self.soft),) if self.soft else (),
            timers=tuple(self.timers),
            replies=(Reply(self.context.request_id, response),),
            effects=tuple(self.effects),
        )

    def _endpoints_changed(self, member: Member, configuration: Configuration, *, tasks_changed: bool) -> bool:
        """Whether the endpoints that were sent to other members are out of date."""
        if self.is_new_group:
            return False
        stored = self.before.members.get(member.member_id)
        if stored is not None and stored.user_endpoint != member.user_endpoint:
            return True
        known = self.before.soft.configuration
        if known is not None and known.partition_counts != configuration.partition_counts:
            return any(other.user_endpoint is not None for other in self.group.members.values())
        return tasks_changed and member.user_endpoint is not None


def assign_after_delay(
    group: StreamsGroup, now_ms: int, *, image: TopicsImage, config: StreamsGroupConfig
) -> GroupDecision:
    """Computes the first assignment after the initial rebalance delay, for all members that have joined meanwhile.

    For the topics as the last heartbeat saw them: what changed since is the next heartbeat's to see, which bumps the epoch.
    """
    soft: dict[str, object] = {"delayed_until_ms": None}
    records: list[GroupRecord] = []
    if group.topology is not None and not group.is_empty and group.epoch > group.assignment_epoch:
        known = group.soft.configuration
        fits = known is not None and known.topology == group.topology
        configuration = known if known is not None and fits else configure(group.topology, image)
        configurations = [configuration, *older_configurations(group, image)]
        records += target_records(
            group, configurations, config, group.soft.task_offsets, group.soft.unread, now_ms=now_ms
        )
    return Decision(records=tuple(records), soft=(SoftUpdate(group.group_id, soft),))


def _sent_tags(request: StreamsGroupHeartbeatRequest) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((tag.key, tag.value) for tag in request.client_tags or ()))


def _program_of(client_tags: tuple[tuple[str, str], ...]) -> str:
    """What a member with these tags says of its operators; empty if it says nothing."""
    return dict(client_tags).get(TOPOLOGY_DIGEST, "")


def _assignor_view(member: Member) -> tuple[object, ...]:
    """Returns the part of a member's data whose change requires a new assignment."""
    return (
        member.instance_id,
        member.rack_id,
        member.process_id,
        member.client_tags,
        member.user_endpoint,
        member.topology_epoch,
    )
