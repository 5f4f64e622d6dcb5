"""Why a group gets a new assignment, and what moves with it, as text.

1. Reasons are computed from the difference between the group before and after an event that raised its epoch. Only the
   way in which a member left is not visible there: the event says it.
2. ``streamsrt.assignment.moves`` computes what moves.
3. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from coordinator.group.streams.departure import REBALANCE, SESSION
from coordinator.group.streams.in_flight import still_written_detail, waiting_detail
from coordinator.group.streams.state import Member, StreamsGroup
from coordinator.group.values import Event, GroupRequest
from coordinator.machine.values import TimerExpired
from streamsrt.assignment.configuration import Configuration
from streamsrt.assignment.moves import TaskOwners
from streamsrt.assignment.tasks import TaskId
from streamsrt.wire.types import StreamsGroupHeartbeatRequest
from streamsrt.wording import address_text, counted

_LEFT: Mapping[str, str] = {
    SESSION: "is gone: no heartbeat within its session timeout",
    REBALANCE: "is removed: it did not give tasks back within its rebalance timeout",
}


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A new target assignment: its epoch, time, reason, and moves."""

    epoch: int
    at_ms: int
    reasons: tuple[str, ...]
    moves: tuple[str, ...]


def name_of(member: Member) -> str:
    """Returns a member's name for people: its id and host."""
    where = [f"instance {member.instance_id}"] if member.instance_id is not None else []
    endpoint = member.user_endpoint
    where.append(member.client_host.lstrip("/") if endpoint is None else address_text(endpoint.host, endpoint.port))
    return f"{member.member_id} ({', '.join(where)})"


def reasons_between(before: StreamsGroup, after: StreamsGroup, event: Event) -> list[str]:
    """Returns why the epoch of ``after`` is above that of ``before``; empty if it is not."""
    if after.epoch <= before.epoch:
        return []
    found = [*_members(before, after, event), *_topology(before, after), *_settings(before, after)]
    found += _topics(before, after)
    found += _hand_over(before, after)
    return found or [_of_a_heartbeat(after, event)]


def _members(before: StreamsGroup, after: StreamsGroup, event: Event) -> Iterator[str]:
    replaced = {old for name, old in before.static_members.items() if after.static_members.get(name, old) != old}
    for member_id, member in before.members.items():
        if member_id not in after.members and member_id not in replaced:
            yield f"member {name_of(member)} {_how_it_left(event)}"
    for member_id, member in after.members.items():
        old = before.members.get(member_id)
        if old is None:
            back = member.instance_id is not None and member.instance_id in before.static_members
            yield f"member {name_of(member)} {'came back' if back else 'joined'}"
        elif old is not member and (changed := _changes(old, member)):
            yield f"member {name_of(member)} changed its {changed}"


def _changes(old: Member, new: Member) -> str:
    fields = {
        "instance id": (old.instance_id, new.instance_id),
        "rack": (old.rack_id, new.rack_id),
        "process": (old.process_id, new.process_id),
        "client tags": (old.client_tags, new.client_tags),
        "endpoint": (old.user_endpoint, new.user_endpoint),
        "topology epoch": (old.topology_epoch, new.topology_epoch),
    }
    return ", ".join(name for name, (before, after) in fields.items() if before != after)


def _how_it_left(event: Event) -> str:
    match event:
        case TimerExpired(key):
            return _LEFT.get(key.kind, "is gone: it did not join again in time")
        case GroupRequest(_, StreamsGroupHeartbeatRequest() as request) if request.shutdown_application:
            return "failed, and asked the whole application to stop"
        case _:
            return "left"


def _topology(before: StreamsGroup, after: StreamsGroup) -> Iterator[str]:
    if before.topology is not None and after.topology is not None and before.topology.epoch != after.topology.epoch:
        yield f"the topology was updated to epoch {after.topology.epoch}"


def _hand_over(before: StreamsGroup, after: StreamsGroup) -> Iterator[str]:
    """Yields the reason that tasks are waiting, which each assignment repeats meanwhile."""
    old, new = before.soft, after.soft
    if new.setbacks is not None and new.setbacks.pause_ms and (new.is_paused or new.setbacks != old.setbacks):
        yield str(new.setbacks).rstrip(".")
    elif old.is_paused and not new.is_paused and new.setbacks is not None:
        yield f"the pause after the setbacks of topology epoch {new.setbacks.epoch} is over"
    waits = waiting_detail(after, new.unread, new.waiting)
    if waits:
        yield waits.rstrip(".")
    elif old.waiting and not new.waiting:
        left = sum(new.unread.values())
        yield (
            f"no task waits for records in flight in removed repartition topics: {counted(left, 'record')} left unread"
            if left
            else "all records in flight in removed repartition topics have been read"
        )
    written = still_written_detail(after)
    if written:
        yield written.rstrip(".")


def _settings(before: StreamsGroup, after: StreamsGroup) -> Iterator[str]:
    old, new = dict(before.assignment_configs), dict(after.assignment_configs)
    if before.epoch and old != new:
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"setting {name} is {new.get(name, 'not set')} (it was {old.get(name, 'not set')})"


def _topics(before: StreamsGroup, after: StreamsGroup) -> Iterator[str]:
    is_same = (before.metadata_hash, before.validated_topology_epoch) == (
        after.metadata_hash,
        after.validated_topology_epoch,
    )
    if is_same or not before.epoch or before.topology != after.topology:
        return
    old, new = before.soft.configuration, after.soft.configuration
    changes = list(_topic_changes(old, new)) if old is not None and new is not None else []
    yield from changes or ["the topics of the topology changed"]


def _topic_changes(old: Configuration, new: Configuration) -> Iterator[str]:
    if new.problem is not None and new.problem != old.problem:
        yield f"the topics do not fit the topology: {new.problem.detail}"
    elif new.problem is None and old.problem is not None:
        yield "all topics exist and fit the topology now"
    for topic, count in sorted(new.partition_counts.items()):
        had = old.partition_counts.get(topic, count)
        if had != count:
            yield f"topic {topic} has {count} partitions now (it had {had})"


def _of_a_heartbeat(after: StreamsGroup, event: Event) -> str:
    """Returns the reason if the group itself is unchanged: a report of task offsets."""
    if isinstance(event, GroupRequest) and isinstance(event.message, StreamsGroupHeartbeatRequest):
        member = after.members.get(event.message.member_id)
        if member is not None and event.message.task_offsets is not None:
            return f"a warm-up task of member {name_of(member)} has caught up"
    return "the coordinator looked for a better assignment"


def owners_of(group: StreamsGroup) -> TaskOwners:
    """Returns the tasks of each member by the group's target assignment."""
    active: dict[TaskId, str] = {}
    standby: dict[TaskId, tuple[str, ...]] = {}
    warmup: dict[TaskId, tuple[str, ...]] = {}
    for member_id, tasks in group.targets.items():
        member = group.members.get(member_id)
        name = member_id if member is None else name_of(member)
        active.update(dict.fromkeys(tasks.active, name))
        for role, mapping in ((tasks.standby, standby), (tasks.warmup, warmup)):
            for task in role:
                mapping[task] = (*mapping.get(task, ()), name)
    return TaskOwners(active, standby, warmup)
