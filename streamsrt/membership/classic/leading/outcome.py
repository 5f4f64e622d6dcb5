"""How a generation ends: all members keep the tasks that they claim, or tasks are assigned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.in_flight import Unread
from streamsrt.assignment.refused_update import Refusal
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.targets import AssignedTwiceError
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.version_backoff import FORGOTTEN_AFTER_MS, Setbacks, after_setback
from streamsrt.membership.classic.leader_assignments import GenerationPlan, leader_outcome
from streamsrt.membership.classic.leading.values import Leading, LeadingStep
from streamsrt.membership.classic.task_assignment import (
    changelogs_to_list,
    claims_of,
    draining_text,
    given,
    gone_partitions,
    targets_of,
    waiting_of,
    without,
)
from streamsrt.membership.classic.values import ToldSetbacks
from streamsrt.membership.classic.version_checks import refusals
from streamsrt.membership.classic.view import Memory, Version, View
from streamsrt.membership.values import TopicPartition

FIRST_BACKOFF_MS = 1_000
NO_OFFSETS: Mapping[TopicPartition, int] = {}
DRAINING_MS = 1_000
"""The time after which the leader looks again while old members read the rest of repartition topics that are gone."""
IN_FLIGHT_MS = 15_000
"""The time after which it looks again while these topics are still written."""


def keep(
    leading: Leading,
    why: str,
    *,
    must_send_topology: frozenset[str] = frozenset(),
    awaits: bool = False,
    rejoin_after_ms: int | None = None,
) -> LeadingStep:
    """All members keep the tasks that they claim."""
    view = leading.view
    claims = claims_of(view, leading.image)
    kept = {
        m.member_id: without(m.held, claims.to_revoke.get(m.member_id, frozenset()))
        for m in view.members
        if m.member_id not in leading.refused
    }
    group = leading.verdicts.group if leading.verdicts.is_certain else None
    if rejoin_after_ms is None and view.away:
        rejoin_after_ms = leading.settings.session_timeout_ms // 3
    plan = GenerationPlan(
        group=group,
        given=kept,
        targets={m.member_id: m.previous for m in view.members if m.member_id in kept},
        refused=leading.refused,
        must_send_topology=must_send_topology,
        waiting=why,
        awaits=awaits,
        conflicts=claims.twice,
        image=leading.image,
        rejoin_after_ms=rejoin_after_ms,
    )
    return _done(leading, plan)


def assign(
    leading: Leading,
    offsets: Mapping[TopicPartition, int],
    now_ms: int,
    committed: Mapping[TopicPartition, int] = NO_OFFSETS,
) -> LeadingStep:
    view, version, lead, settings = leading.view, leading.version, leading.lead, leading.settings
    assert version is not None
    assert lead is not None
    configuration = configure(view.texts[lead.digest], leading.image)
    refused = refused_of(leading, version)
    waiting = {m.member_id for m in view.members if m.version.epoch > version.epoch}
    claims = claims_of(view, leading.image)
    ends = _task_ends(view, lead, configuration, offsets)
    unread = unread_of(leading, committed)
    pause = _pause_of(leading, lead, now_ms)
    try:
        made = targets_of(
            view,
            lead,
            configuration,
            leading.image,
            settings.assignor,
            without={*refused, *waiting},
            ends=ends,
            unread=unread,
            held=leading.left.held if lead == version else frozenset(),
            is_paused=pause is not None,
        )
    except AssignedTwiceError as error:
        return keep(leading, f"The assignor failed: {error}.")
    served = {m.member_id: m for m in view.members if m.member_id not in refused}
    targets = {name: made.get(name, NO_TASKS) for name in served}
    plan = GenerationPlan(
        group=version,
        given={name: given(m, view, targets[name], claims) for name, m in served.items()},
        targets=targets,
        refused=refused,
        must_send_topology=leading.must_send_topology,
        configuration=configuration,
        creation_detail=leading.creation_detail,
        postponed=leading.postponed,
        unknown=leading.unknown,
        conflicts=claims.twice,
        image=leading.image,
        draining=draining_text(view, lead, refused, unread),
        pause="" if pause is None else str(pause).rstrip("."),
        rejoin_after_ms=_rejoin_after(leading, configuration, targets, unread, pause, now_ms),
        left=leading.left,
    )
    return _done(leading, plan)


def _pause_of(leading: Leading, lead: Version, now_ms: int) -> Setbacks | None:
    """The setbacks of this version, if it gets no more tasks of older ones at this moment."""
    setbacks = leading.memory.setbacks
    if setbacks is None or not setbacks.is_paused(lead.epoch, now_ms):
        return None
    return setbacks if any(member.version.epoch < lead.epoch for member in leading.view.members) else None


def with_told_setbacks(memory: Memory, view: View, now_ms: int) -> Memory:
    """Takes over the setbacks that the former leader counted."""
    told = view.setbacks
    if told is None or memory.generation == view.generation - 1:
        return memory
    return replace(memory, setbacks=Setbacks(told.epoch, told.times, now_ms + told.left_ms))


def setbacks_to_tell(memory: Memory, now_ms: int) -> ToldSetbacks | None:
    """What members are to remember of the setbacks."""
    found = memory.setbacks
    if found is None or now_ms >= found.until_ms + FORGOTTEN_AFTER_MS:
        return None
    return ToldSetbacks(found.epoch, found.count, max(0, found.until_ms - now_ms))


def with_setback(memory: Memory, view: View, now_ms: int) -> Memory:
    """Counts a setback if a member that had tasks of the newest version is gone while others run older ones."""
    version, there = memory.version, {member.lasting_id for member in view.members}
    if memory.generation != view.generation - 1 or version is None or memory.ahead <= there:
        return memory
    if all(member.version.epoch >= version.epoch for member in view.members):
        return memory
    return replace(memory, setbacks=after_setback(memory.setbacks, version.epoch, now_ms))


def refused_of(leading: Leading, version: Version) -> dict[str, Refusal]:
    """The members that are refused if the group runs this version."""
    found = refusals(leading.view, version, leading.settings.group_id, leading.verdicts.group)
    return {name: why for name, why in {**found, **leading.refused}.items() if name not in leading.again}


def _rejoin_after(
    leading: Leading,
    configuration: Configuration,
    targets: Mapping[str, Tasks],
    unread: Unread,
    pause: Setbacks | None,
    now_ms: int,
) -> int | None:
    """The time after which the leader joins again even if no other member does."""
    due = [IN_FLIGHT_MS] if leading.left.held else []
    if pause is not None:
        due.append(pause.until_ms - now_ms)
    if unread and leading.lead is not None and leading.version is not None:
        waits = waiting_of(leading.view, leading.lead, refused_of(leading, leading.version), unread)
        drains = any(partitions is not None for _, parts in waits.draining for _, partitions in parts)
        due.append(DRAINING_MS if drains else IN_FLIGHT_MS)
    problem = configuration.problem
    if leading.postponed or (problem is not None and problem.status_code == StatusCode.MISSING_INTERNAL_TOPICS):
        due.append(max(leading.memory.create_at_ms - now_ms, FIRST_BACKOFF_MS))
    if leading.view.away:
        due.append(leading.settings.session_timeout_ms // 3)
    if any(tasks.warmup for tasks in targets.values()):
        due.append(leading.settings.probing_interval_ms)
    return min(due, default=None)


def _task_ends(
    view: View, lead: Version, configuration: Configuration, offsets: Mapping[TopicPartition, int]
) -> dict[TaskId, int]:
    """The end offsets of tasks, if the ends of all changelogs are known."""
    found = {}
    for task, logs in changelogs_to_list(view, lead, configuration.task_counts).items() if offsets else ():
        ends = [offsets.get((name, task.partition)) for name, _ in logs]
        known = [end for end in ends if end is not None]
        if known and len(known) == len(ends):
            found[task] = sum(known)
    return found


def _done(leading: Leading, plan: GenerationPlan) -> LeadingStep:
    outcome = leader_outcome(
        leading.view,
        replace(plan, setbacks=leading.setbacks),
        leading.settings,
        leading.memory,
        leading.leader_id,
        leading.sizes,
        leading.versions,
    )
    return LeadingStep(leading, outcome=outcome)


def gone_of(leading: Leading) -> frozenset[TopicPartition]:
    """Partitions of repartition topics that only older versions read."""
    assert leading.lead is not None
    assert leading.version is not None
    return gone_partitions(leading.view, leading.lead, refused_of(leading, leading.version), leading.image)


def unread_of(leading: Leading, committed: Mapping[TopicPartition, int]) -> Unread:
    """The records of removed topics that the group has not read."""
    ends = leading.ends or {}
    left = {each: ends.get(each, 0) - committed.get(each, 0) for each in gone_of(leading)}
    return {each: count for each, count in left.items() if count > 0}
