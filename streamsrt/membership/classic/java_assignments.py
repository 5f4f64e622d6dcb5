"""The assignments of a group with Java's members at the end of a generation, as bytes.

1. Every assignment is in Java's format; for our members, ours is appended.
2. Java's members get an error code instead of a status: for missing source topics, for a shutdown, and if there can be
   no assignment. They end with it.
3. The endpoints that answer queries are in the assignments of Java's members, and of those of our members that answer
   queries themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.tasks import Tasks
from streamsrt.assignment.topics import TopicsImage
from streamsrt.membership.classic.java_members import tasks_of_partitions
from streamsrt.membership.classic.stream_layout import Hosts, UserDataVersions, encode_stream_assignment
from streamsrt.membership.classic.task_assignment import source_partitions
from streamsrt.membership.classic.values import ClassicAssignment
from streamsrt.membership.classic.view import Participant, View, tasks_of
from streamsrt.membership.values import Task, TopicPartition
from streamsrt.wire.error_codes import ErrorCode
from streamsrt.wire.streams_user_data import (
    ASSIGNMENT_ERROR,
    INCOMPLETE_SOURCE_TOPIC_METADATA,
    NO_ERROR,
    SHUTDOWN_REQUESTED,
    HostPort,
)

Inputs = Mapping[bytes, Mapping[str, tuple[str, ...]]]
_Inputs = dict[Task, frozenset[TopicPartition]]


def encode_for_all(
    view: View,
    everybody: Mapping[str, ClassicAssignment],
    versions: UserDataVersions,
    inputs: Inputs,
    image: TopicsImage,
) -> dict[str, bytes]:
    """Returns the assignments by member id."""
    members = {member.member_id: member for member in view.members}
    read = {
        name: _read_by(members.get(name), assignment, view, inputs, image) for name, assignment in everybody.items()
    }
    hosts = _hosts(members, everybody, read)
    encoded = {}
    for name, assignment in everybody.items():
        member = members.get(name)
        is_java = member is None or name in view.javas
        answers = is_java or (member is not None and member.subscription.endpoint is not None)
        encoded[name] = encode_stream_assignment(
            assignment,
            read[name],
            versions,
            hosts if answers else Hosts(),
            is_java=is_java,
            error=_error(assignment),
        )
    return encoded


def _error(assignment: ClassicAssignment) -> int:
    codes = {status.code for status in assignment.statuses}
    if StatusCode.SHUTDOWN_APPLICATION in codes:
        return SHUTDOWN_REQUESTED
    if assignment.error_code != ErrorCode.NONE:
        return ASSIGNMENT_ERROR
    return INCOMPLETE_SOURCE_TOPIC_METADATA if StatusCode.MISSING_SOURCE_TOPICS in codes else NO_ERROR


def _read_by(
    member: Participant | None, assignment: ClassicAssignment, view: View, inputs: Inputs, image: TopicsImage
) -> _Inputs:
    """Returns the partitions that each task reads. If the topics are not known: those of active tasks, as the member owns
    them."""
    if member is None:
        return {}
    tasks = tasks_of(assignment.tasks)
    found = {}
    for task in (*tasks.active, *tasks.passive):
        one = source_partitions(member, Tasks(frozenset({task})), inputs, image)
        found[task.subtopology_id, task.partition] = one
    if image:
        return found
    topology = view.wire_texts[member.version.digest]
    for partition in member.subscription.owned_partitions:
        for task_id in tasks_of_partitions(topology, [partition]) & assignment.tasks.active:
            found[task_id] = found[task_id] | {partition}
    return found


def _hosts(
    members: Mapping[str, Participant], everybody: Mapping[str, ClassicAssignment], read: Mapping[str, _Inputs]
) -> Hosts:
    active: dict[HostPort, frozenset[TopicPartition]] = {}
    standby: dict[HostPort, frozenset[TopicPartition]] = {}
    for name, member in members.items():
        endpoint = member.subscription.endpoint
        if endpoint is None:
            continue
        host = (endpoint.host, endpoint.port)
        # Several members of one process have one endpoint.
        assignment = everybody[name].tasks
        for found, tasks in ((active, assignment.active), (standby, assignment.standby)):
            mine = frozenset[TopicPartition]().union(*(read[name].get(task, frozenset()) for task in tasks))
            found[host] = found.get(host, frozenset()) | mine
    return Hosts(active, standby)
