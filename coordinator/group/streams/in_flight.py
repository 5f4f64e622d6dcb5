"""Finds the tasks that must wait because removed repartition topics still contain unread records.

1. Ends of topics come with the request; the group's offsets are looked at by who answers for them. What is known is soft.
2. A version that nobody runs is remembered with the next topology as long as it reads something unread: only who knows it
   can take it again, and let what meets its readers wait. That it may be lost is said by members, for as long as they run.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from coordinator.group.streams.state import Member, StreamsGroup
from coordinator.group.values import RequestContext
from streamsrt.assignment.in_flight import (
    NOTHING_UNREAD,
    Unread,
    Waiting,
    backlogs,
    draining_detail,
    gone_topics,
    held_detail,
    is_needed,
    is_sent_back,
    is_version_again,
    left_topics,
    repartition_topics,
    waiting,
    written_detail,
)
from streamsrt.assignment.reconcile import NEVER_ASSIGNED
from streamsrt.assignment.topology import Topology
from streamsrt.wire.client_tags import may_lose_in_flight


def unread_of(group_id: str, newest: Topology, older: Collection[Topology], context: RequestContext) -> Unread:
    """Returns unread records in topics of older versions that the newest does not have."""
    names = gone_topics(newest, older)
    return NOTHING_UNREAD if not names or context.unread is None else context.unread(group_id, names)


def left_unread(group_id: str, newest: Topology, context: RequestContext) -> Unread:
    """Returns unread records in topics whose names mark them as belonging to versions that the group does not know."""
    if context.unread is None or context.committed_topics is None:
        return NOTHING_UNREAD
    names = left_topics(group_id, newest, context.committed_topics(group_id))
    return context.unread(group_id, names) if names else NOTHING_UNREAD


def remembered(group: StreamsGroup, newest: Topology, context: RequestContext) -> tuple[Topology, ...]:
    """Returns versions that the group still knows when it accepts ``newest``, newest first: those that members run, those
    that read unread records, and those that show whether one of the latter was rolled back."""
    known, run = group.topologies(), {each.topology_epoch for each in group.members.values()}
    if all(one.epoch in run for one in known):
        return known
    unread = {topic for topic, _ in unread_of(group.group_id, newest, known, context)}
    reading = {one.epoch for one in known if unread & repartition_topics(one)}
    return tuple(one for one in known if one.epoch in run | reading or (reading and one.is_same_version(newest)))


def encode_versions(group: StreamsGroup) -> bytes:
    """Encodes the group's versions for its description (``VERSIONS_TAG``)."""
    told = [
        {
            "epoch": one.epoch,
            "repartition_topics": sorted(repartition_topics(one)),
            "is_sent_back": one is not group.topology and is_sent_back(group.topology, group.older, one.epoch),
            "has_taken_over": one is not group.topology or group.has_taken_over,
            "is_same": one is not group.topology and one.is_same_version(group.topology),
            "digest": one.program,
        }
        for one in group.topologies()
        if group.topology is not None
    ]
    return json.dumps(told).encode()


def may_lose(member: Member) -> bool:
    """Whether this member runs with ``--lose-in-flight``."""
    return may_lose_in_flight(dict(member.client_tags))


def group_may_lose(group: StreamsGroup) -> bool:
    return any(may_lose(member) for member in group.members.values() if not group.is_stale(member))


def waiting_of(group: StreamsGroup, unread: Unread) -> Waiting:
    return waiting(group.topologies(), unread, _writing(group), may_lose=group_may_lose(group))


def _writing(group: StreamsGroup) -> dict[int, set[str]]:
    """Returns, for each epoch that members run, the subtopologies of their active tasks."""
    writing: dict[int, set[str]] = {}
    for name, member in group.members.items():
        current = group.current.get(name, NEVER_ASSIGNED)
        active = current.assigned.active | current.pending.active
        writing.setdefault(member.topology_epoch, set()).update(task.subtopology_id for task in active)
    return writing


def reads_the_rest(group: StreamsGroup, requested: Topology, context: RequestContext) -> bool:
    """Whether a member with an older version than the group's is accepted, because it reads what no other member reads."""
    if group.topology is None or not is_version_again(group.topology, group.older, requested) or group_may_lose(group):
        return False
    unread = unread_of(group.group_id, group.topology, group.older, context)
    epochs = [each.topology_epoch for each in group.members.values()]
    return is_needed(group.topology, group.older, unread, epochs, requested.epoch)


def has_read_on(group: StreamsGroup, context: RequestContext) -> bool:
    """Whether the set of tasks that wait for records in flight has changed."""
    known = group.soft.waiting
    if not known or group.topology is None:
        return False
    return waiting_of(group, unread_of(group.group_id, group.topology, group.older, context)) != known


def detail_of(group: StreamsGroup, member: Member, unread: Unread, waits: Waiting) -> str:
    """Returns the text for a member of the newest version; empty if there is none."""
    return "" if group.is_stale(member) else waiting_detail(group, unread, waits)


def waiting_detail(group: StreamsGroup, unread: Unread, waits: Waiting) -> str:
    """Describes what is not handed to the newest version yet, and why; empty if nothing waits."""
    if not waits or group.topology is None:
        return ""
    epochs = [each.topology_epoch for each in group.members.values()]
    found = backlogs(group.topology, group.older, unread, epochs)
    if waits.held:
        return held_detail(found, group.topologies())
    return draining_detail(found) if any(each.readers for each in found) else ""


def still_written_detail(group: StreamsGroup) -> str:
    """Describes which removed topics members with older versions write until the newest takes over; empty if none."""
    return "" if group.topology is None else written_detail(group.topology, group.older, _writing(group))
