"""Computes the tasks of each member of a classic group for one generation.

1. The tasks that a member holds, echoes, reports and is assigned are those of its own version. Tasks of two versions
   are the same if their subtopologies have the same id and the same source and changelog topics.
2. :mod:`~streamsrt.assignment.handover` computes the target from the members' echoes; it returns them unchanged if they
   are as good: members with older versions keep changed subtopologies until members with the group's version are warm.
   Of several digests of an older epoch, the most recent one counts; members with the others have to release their
   tasks.
3. A member gets an active task only if no other member claims an active task that has its id, or shares a source or
   changelog partition with it, whatever version that task belongs to. A task in any role goes only where no other
   member of the process has it.
4. If two members claim one partition, the one that was given it later keeps it. If the claims are equally old, both
   lose it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streamsrt.assignment.assignor import AssignorSettings
from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.handover import handed_over
from streamsrt.assignment.in_flight import (
    NOTHING_UNREAD,
    Unread,
    Waiting,
    backlogs,
    draining_detail,
    gone_topics,
    waiting,
    written_detail,
)
from streamsrt.assignment.patterns import resolve
from streamsrt.assignment.placement import AssignorMember
from streamsrt.assignment.reconcile import Current, Holders, MemberState, reconcile
from streamsrt.assignment.tasks import TaskId, Tasks
from streamsrt.assignment.topics import TopicsImage
from streamsrt.assignment.topology import Subtopology, Topology
from streamsrt.membership.classic.view import Participant, Version, View
from streamsrt.membership.values import TopicPartition

_Resource = tuple[str, int]
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of all members. ``by_resource``: by source and changelog partition of active tasks, and by id with
    partition. ``by_task``: by task in any role. ``twice``: what two members claim. ``processes``: the process of each
    member."""

    by_resource: Mapping[_Resource, frozenset[str]]
    by_task: Mapping[TaskId, frozenset[str]]
    to_revoke: Mapping[str, frozenset[TaskId]]
    twice: tuple[str, ...]
    parts: Mapping[bytes, Mapping[str, frozenset[str]]] = field(default_factory=dict)
    processes: Mapping[str, str] = field(default_factory=dict)


def claims_of(view: View, image: TopicsImage) -> Claims:
    """Collects all claims; ``image`` has the topics that patterns match."""
    parts = {digest: _resources(topology, image) for digest, topology in view.texts.items()}
    by_resource: dict[_Resource, set[str]] = {}
    by_task: dict[TaskId, set[str]] = {}
    contested: dict[_Resource, dict[str, TaskId]] = {}
    for member in view.members:
        for task in member.held.active | member.held.passive:
            by_task.setdefault(task, set()).add(member.member_id)
        for task in member.held.active:
            for resource in _partitions(parts, member.version.digest, task):
                by_resource.setdefault(resource, set()).add(member.member_id)
                contested.setdefault(resource, {})[member.member_id] = task
    to_revoke, twice = _conflicts(view, contested)
    processes = {member.member_id: member.process_id for member in view.members}
    return Claims(_frozen(by_resource), _frozen(by_task), to_revoke, twice, parts, processes)


def targets_of(
    view: View,
    group: Version,
    configuration: Configuration,
    image: TopicsImage,
    settings: AssignorSettings,
    *,
    without: Iterable[str],
    ends: Mapping[TaskId, int],
    unread: Unread = NOTHING_UNREAD,
    held: frozenset[TaskId] = frozenset(),
    is_paused: bool = False,
) -> Mapping[str, Tasks]:
    """Computes the target of every member that may get tasks, in tasks of its own version.

    ``ends``: ends of changelogs of the group's version that the leader asked for. ``unread``: what the group has not read of
    repartition topics that this version does not have. ``held``: tasks that nobody gets. ``is_paused``: this version gets no
    more of what older ones run than it has.
    """
    excluded = set(without)
    older = older_versions(view, group, excluded)
    run = {group, *older}
    # Of two members of one process, the one with the newer assignment has the newer offsets.
    ordered = sorted(view.members, key=lambda member: (member.last_generation, member.member_id))
    there = [member for member in ordered if member.member_id not in excluded and member.version in run]
    return handed_over(
        [_assignor_member(member, view, group, ends) for member in there],
        {member.member_id: member.version.epoch for member in there},
        [configuration, *(configure(view.texts[version.digest], image) for version in older)],
        settings,
        unread,
        held=held,
        is_paused=is_paused,
    )


def gone_partitions(
    view: View, group: Version, without: Container[str], image: TopicsImage
) -> frozenset[TopicPartition]:
    """Partitions of repartition topics that only older versions with members have."""
    older = [view.texts[version.digest] for version in older_versions(view, group, without)]
    names = gone_topics(view.texts[group.digest], older)
    return frozenset((name, p) for name in names if name in image for p in range(image[name].partitions))


def waiting_of(view: View, group: Version, without: Container[str], unread: Unread) -> Waiting:
    """Subtopologies that are handed over stepwise because of such topics."""
    older = older_versions(view, group, without)
    writing = {group.epoch: frozenset[str](), **_writing(view, older)}
    return waiting([view.texts[version.digest] for version in (group, *older)], unread, writing)


def _writing(view: View, older: Iterable[Version]) -> dict[int, frozenset[str]]:
    """The subtopologies of active tasks that members hold, for each of these versions, by its epoch."""
    return {
        version.epoch: frozenset(
            task.subtopology_id for member in view.members if member.version == version for task in member.held.active
        )
        for version in older
    }


def draining_text(view: View, group: Version, without: Container[str], unread: Unread) -> str:
    """Describes the repartition topics that are read to the end first, and those that are still written; empty if there
    are none."""
    versions = older_versions(view, group, without)
    newest, older = view.texts[group.digest], [view.texts[version.digest] for version in versions]
    found = backlogs(newest, older, unread, [member.version.epoch for member in view.members])
    details = [draining_detail(found) if found else "", written_detail(newest, older, _writing(view, versions))]
    return "; ".join(detail.rstrip(".") for detail in details if detail)


def older_versions(view: View, group: Version, without: Container[str]) -> list[Version]:
    """Versions before the group's that members run, newest first: one of each epoch."""
    chosen: dict[int, Version] = {}
    for member in sorted(view.members, key=lambda member: (-member.last_generation, member.version.digest)):
        version = member.version
        if version.epoch < group.epoch and member.member_id not in without and version.digest not in view.invalid:
            chosen.setdefault(version.epoch, version)
    return sorted(chosen.values(), reverse=True)


def given(member: Participant, view: View, target: Tasks, claims: Claims) -> Tasks:
    """The member's assignment in this generation, a step towards the target, in tasks of its own version."""
    held = without(member.held, claims.to_revoke.get(member.member_id, frozenset()))
    mine = frozenset({member.member_id})

    def active(task: TaskId) -> bool:
        needed = _partitions(claims.parts, member.version.digest, task)
        return any(claims.by_resource.get(resource, mine) - mine for resource in needed)

    def in_process(task: TaskId) -> bool:
        others = claims.by_task.get(task, mine) - mine
        return any(claims.processes[name] == member.process_id for name in others)

    before = Current(view.generation - 1, view.generation - 1, MemberState.STABLE, held)
    holders = Holders(active, in_process)
    return reconcile(before, target=target, target_epoch=view.generation, owned=held, held=holders).assigned


def without(tasks: Tasks, lost: frozenset[TaskId]) -> Tasks:
    return Tasks(tasks.active - lost, tasks.standby, tasks.warmup) if lost else tasks


def inputs_of(view: View, image: TopicsImage) -> Mapping[bytes, Mapping[str, tuple[str, ...]]]:
    """The topics that tasks read, by digest of the version and by subtopology."""
    return {
        digest: {part.id: part.input_topics for part in resolve(topology, image).topology.subtopologies}
        for digest, topology in view.texts.items()
    }


def source_partitions(
    member: Participant, tasks: Tasks, inputs: Mapping[bytes, Mapping[str, tuple[str, ...]]], image: TopicsImage
) -> frozenset[TopicPartition]:
    """The source partitions that the member reads for these active tasks."""
    topics = inputs.get(member.version.digest)
    if topics is None or not image:
        return member.subscription.owned_partitions
    return frozenset(
        (name, task.partition)
        for task in tasks.active
        for name in topics.get(task.subtopology_id, ())
        if name in image and task.partition < image[name].partitions
    )


def changelogs_to_list(
    view: View, group: Version, task_counts: Mapping[str, int]
) -> Mapping[TaskId, tuple[tuple[str, bool], ...]]:
    """The changelogs of tasks for which a member reports an offset and none reports an end, and whether each is a source
    topic. With Java's members in the group: of all tasks with state, because a Java member without a report has no state."""
    topology = view.texts[group.digest]
    parts = {part.id: part for part in topology.subtopologies}
    known = {
        TaskId(*task)
        for member in view.members
        for task in member.subscription.end_offsets
        if _is_same_task(member, view, topology, task[0])
    }
    found: dict[TaskId, tuple[tuple[str, bool], ...]] = {}
    for member in view.members:
        for name, partition in member.subscription.offsets:
            task = TaskId(name, partition)
            part = parts.get(name)
            if part is not None and task not in known and _is_same_task(member, view, topology, name):
                found[task] = _logs_of(part)
    for part in topology.subtopologies if view.javas else ():
        for partition in range(task_counts.get(part.id, 0) if part.changelogs else 0):
            found[TaskId(part.id, partition)] = _logs_of(part)
    return found


def _logs_of(part: Subtopology) -> tuple[tuple[str, bool], ...]:
    return tuple((topic.name, topic.name in part.source_topics) for topic in part.changelogs)


def _assignor_member(member: Participant, view: View, group: Version, ends: Mapping[TaskId, int]) -> AssignorMember:
    subscription, topology = member.subscription, view.texts[group.digest]
    offsets = {TaskId(*task): offset for task, offset in subscription.offsets.items()}
    end_offsets = {TaskId(*task): end for task, end in subscription.end_offsets.items()}
    end_offsets |= {
        task: end
        for task, end in ends.items()
        if task in offsets
        and task in member.held.passive
        and _is_same_task(member, view, topology, task.subtopology_id)
    }
    if member.member_id in view.javas:
        # Like a Java leader: a task without a report starts at offset 0.
        offsets = dict.fromkeys(ends, 0) | offsets
        end_offsets = dict(ends)
    return AssignorMember(
        member.member_id,
        member.process_id,
        member.previous,
        running=member.held.active,
        offsets=offsets,
        end_offsets=end_offsets,
        tags=dict(subscription.client_tags),
    )


def _is_same_task(member: Participant, view: View, topology: Topology, name: str) -> bool:
    """Whether tasks of that subtopology are the same in the member's version and in the group's."""
    mine = view.texts.get(member.version.digest)
    if mine is topology:
        return True
    return mine is not None and _raw_resources(mine, name) == _raw_resources(topology, name) is not None


def _raw_resources(topology: Topology, name: str) -> tuple[frozenset[str], frozenset[str]] | None:
    return next((part.resources for part in topology.subtopologies if part.id == name), None)


def _resources(topology: Topology, image: TopicsImage) -> dict[str, frozenset[str]]:
    """Source and changelog topics of each subtopology, and its id: those with the same id conflict across versions."""
    parts = resolve(topology, image).topology.subtopologies
    return {part.id: frozenset({_of_id(part.id)}).union(*part.resources) for part in parts}


def _of_id(name: str) -> str:
    """A text for the id that can't be a topic name."""
    return f"subtopology {name}"


def _partitions(parts: Mapping[bytes, Mapping[str, frozenset[str]]], digest: bytes, task: TaskId) -> list[_Resource]:
    names = parts.get(digest, {}).get(task.subtopology_id)
    if names is None:
        names = frozenset({_of_id(task.subtopology_id)})
    return [(name, task.partition) for name in names]


def _conflicts(
    view: View, claimed: Mapping[_Resource, Mapping[str, TaskId]]
) -> tuple[dict[str, frozenset[TaskId]], tuple[str, ...]]:
    last_generation = {member.member_id: member.last_generation for member in view.members}
    lost: dict[str, set[TaskId]] = {}
    twice: set[str] = set()
    for owners in claimed.values():
        if len(owners) == 1:
            continue
        newest = max(last_generation[name] for name in owners)
        winners = [name for name in owners if last_generation[name] == newest]
        for name, task in owners.items():
            if len(winners) > 1 or name not in winners:
                lost.setdefault(name, set()).add(task)
                twice.add(f"{task.subtopology_id}_{task.partition} at {name}")
    return {name: frozenset(tasks) for name, tasks in lost.items()}, tuple(sorted(twice))


def _frozen(found: Mapping[K, set[str]]) -> dict[K, frozenset[str]]:
    return {key: frozenset(names) for key, names in found.items()}
