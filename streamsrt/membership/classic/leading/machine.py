"""The order of the leader's questions: which version runs, which topics exist, what older versions have left unread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.in_flight import (
    Unread,
    detail_of_waiting,
    left_topics,
    refusal_to_follow,
    refusal_to_leave,
    repartition_topics,
)
from streamsrt.assignment.refused_update import Refusal, could_not_run
from streamsrt.assignment.topics import NO_TOPICS, TopicSpec
from streamsrt.membership.classic.leader_assignments import LeaderOutcome, LeaderSettings
from streamsrt.membership.classic.leading.creation import FINAL, cannot_be_made, creation_detail_of, with_created
from streamsrt.membership.classic.leading.outcome import (
    DRAINING_MS,
    FIRST_BACKOFF_MS,
    IN_FLIGHT_MS,
    assign,
    gone_of,
    keep,
    refused_of,
    setbacks_to_tell,
    with_setback,
    with_told_setbacks,
)
from streamsrt.membership.classic.leading.values import (
    CountUnread,
    CreateTopics,
    Effect,
    EndOffsets,
    EndOffsetsListed,
    Event,
    Leading,
    LeadingStep,
    ListTopics,
    TopicsCreated,
    TopicsListed,
    TopicsUnknown,
    UnreadCounted,
)
from streamsrt.membership.classic.state_checks import problem_of_state
from streamsrt.membership.classic.stream_layout import STREAM_PROTOCOL, UserDataVersions, versions_of
from streamsrt.membership.classic.task_assignment import changelogs_to_list, older_versions
from streamsrt.membership.classic.unread_records import (
    NOTHING_LEFT,
    LeftUnread,
    left_behind,
    left_of,
    nobodys_topics,
    problem_of_update,
    returning,
)
from streamsrt.membership.classic.values import PROTOCOL_NAME, Joined
from streamsrt.membership.classic.version_checks import older_waiting, verdicts_on
from streamsrt.membership.classic.view import Memory, Version, View, view_of
from streamsrt.membership.session_events import Tick
from streamsrt.membership.values import TopicPartition
from streamsrt.wire.client_tags import may_lose_in_flight
from streamsrt.wire.error_codes import ErrorCode

MAX_BACKOFF_MS = 30_000
DOUBT_MS = 1_000
"""When the leader looks again after a generation in which a member was in doubt."""
_TEXT_MISSING = "Waiting for a member to send the topology of another version."


def begin(
    generation: int,
    joined: Iterable[Joined],
    *,
    memory: Memory,
    settings: LeaderSettings,
    leader_id: str,
    now_ms: int,
    protocol_name: str = PROTOCOL_NAME,
) -> LeadingStep:
    """Begins ``generation``, which this member leads. ``joined`` has the metadata of its members in the layout of this
    name."""
    everybody = tuple(joined)
    view = view_of(generation, everybody, memory, leader_id, protocol_name)
    is_mixed = protocol_name == STREAM_PROTOCOL
    verdicts = verdicts_on(view, settings.group_id)
    memory = with_setback(with_told_setbacks(memory, view, now_ms), view, now_ms)
    leading = Leading(
        view=view,
        verdicts=verdicts,
        settings=settings,
        memory=memory,
        leader_id=leader_id,
        sizes=sum(len(each.metadata) for each in everybody),
        deadline_ms=now_ms + settings.session_timeout_ms // 3,
        versions=versions_of(each.metadata for each in everybody) if is_mixed else UserDataVersions(),
        candidates=verdicts.candidates,
        refused=verdicts.refused,
        setbacks=setbacks_to_tell(memory, now_ms),
        again=older_waiting(view, verdicts),
    )
    if view.unfit:
        return LeadingStep(leading, outcome=LeaderOutcome({}, memory, unfit=view.unfit))
    if view.in_doubt:
        why = f"The assignment of {', '.join(view.in_doubt)} is not known: nothing new is assigned until it is."
        return keep(leading, why, rejoin_after_ms=DOUBT_MS)
    return _choose(leading, now_ms)


def step(leading: Leading, event: Event, now_ms: int) -> LeadingStep:
    """Handles an event. A result that the leader does not wait for changes nothing."""
    match event, leading.awaits:
        case TopicsListed(image), ListTopics():
            return _configure(replace(leading, image=with_created(image, leading.created), awaits=None), now_ms)
        case TopicsUnknown(reason), ListTopics():
            return _topics_unknown(leading, reason, now_ms)
        case TopicsCreated(errors), CreateTopics(specs):
            return _created(replace(leading, awaits=None), specs, errors, now_ms)
        case EndOffsetsListed(offsets), EndOffsets():
            return _offsets_listed(replace(leading, awaits=None), offsets, now_ms)
        case UnreadCounted(unread), CountUnread():
            return _left_counted(replace(leading, awaits=None), unread, now_ms)
        case Tick(), awaited if awaited is not None and now_ms >= leading.deadline_ms:
            return _too_late(leading, awaited, now_ms)
    return LeadingStep(leading, wake_at_ms=leading.deadline_ms)


def _await(leading: Leading, effect: Effect) -> LeadingStep:
    return LeadingStep(replace(leading, awaits=effect), effect, wake_at_ms=leading.deadline_ms)


def _too_late(leading: Leading, awaited: Effect, now_ms: int) -> LeadingStep:
    leading = replace(leading, awaits=None)
    match awaited:
        case ListTopics() if leading.created is None:
            return _topics_unknown(leading, "no answer in time", now_ms)
        case ListTopics():
            return _configure(replace(leading, image=with_created(leading.image, leading.created)), now_ms)
        case CreateTopics(specs):
            errors = {spec.name: (int(ErrorCode.REQUEST_TIMED_OUT), "no answer in time") for spec in specs}
            return _created(leading, specs, errors, now_ms)
        case EndOffsets():
            return _offsets_listed(leading, None, now_ms)
        case CountUnread():
            return _left_counted(leading, None, now_ms)


# ------------------------------------------------------------------------------------------------- which version runs


def _choose(leading: Leading, now_ms: int) -> LeadingStep:
    """Starts with the first version that may run."""
    view, version, lead = leading.view, leading.version, leading.lead
    if version is None or lead is None:
        return keep(leading, "No member runs the version of the application that the group runs.")
    if lead.digest in view.invalid:
        refusal = Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, view.invalid[lead.digest])
        return _refuse(leading, leading.runners, refusal, now_ms)
    missing = _missing_texts(leading, version, lead)
    if missing:
        must_send_topology = _members_to_query(leading, missing)
        own = replace(leading, candidates=(), must_send_topology=must_send_topology, unknown=_TEXT_MISSING)
        if _can_keep_group_version(leading, own):
            return _choose(own, now_ms)
        return keep(leading, _TEXT_MISSING, must_send_topology=must_send_topology)
    if _runs_beside_older(leading) or leading.memory.generation != view.generation - 1:
        leading = replace(leading, memory=replace(leading.memory, unread_counted_for=None))
    counts_unread = _needs_unread_count(leading)
    if leading.image is NO_TOPICS or (counts_unread and not leading.lists_all):
        return _list_topics(replace(leading, lists_all=counts_unread))
    return _configure(leading, now_ms)


def _can_keep_group_version(leading: Leading, own: Leading) -> bool:
    """Whether the group has a version to continue with while the next one is not known."""
    version, lead = own.version, own.lead
    if not leading.candidates or not own.runners or version is None or lead is None:
        return False
    if any(m.instance_id is not None for m in leading.view.members if m.version in leading.candidates):
        return False
    return not _missing_texts(own, version, lead)


def _list_topics(leading: Leading) -> LeadingStep:
    return _await(leading, ListTopics(None if leading.lists_all else _names(leading.view)))


def _refuse(leading: Leading, names: Iterable[str], refusal: Refusal, now_ms: int) -> LeadingStep:
    """Refuses the members of a version that cannot run; the next version is tried."""
    refused = {**leading.refused, **dict.fromkeys(names, refusal)}
    was_candidate = bool(leading.candidates)
    leading = replace(
        leading,
        refused=refused,
        candidates=leading.candidates[1:],
        created=None,
        creation_detail="",
        has_counted=False,
        left=NOTHING_LEFT,
    )
    if was_candidate:
        return _choose(leading, now_ms)
    return keep(leading, "The version of the application that the group should run was refused.")


def _missing_texts(leading: Leading, version: Version, lead: Version) -> set[bytes]:
    """The missing texts of versions whose tasks members run, or may get back. This does not depend on any member's
    memory."""
    view, refused = leading.view, refused_of(leading, version)
    needed = {lead.digest}
    needed |= {m.version.digest for m in view.members if m.held or m.previous}
    needed |= {m.version.digest for m in view.members if m.version.epoch < version.epoch and m.member_id not in refused}
    return needed - view.texts.keys() - view.invalid.keys()


def _members_to_query(leading: Leading, digests: Iterable[bytes]) -> frozenset[str]:
    """One member of each version, if possible one that is certainly there."""
    must_send_topology = set()
    for digest in digests:
        members = [
            (m.is_away, m.instance_id is not None, m.member_id)
            for m in leading.view.members
            if m.version.digest == digest and m.member_id not in leading.refused
        ]
        if members:
            must_send_topology.add(min(members)[-1])
    return frozenset(must_send_topology)


def _names(view: View) -> frozenset[str] | None:
    if any(part.source_patterns for topology in view.texts.values() for part in topology.subtopologies):
        return None
    return frozenset().union(*(topology.topics() for topology in view.texts.values()))


# ------------------------------------------------------------------------------------------------------------- topics


def _topics_unknown(leading: Leading, reason: str, now_ms: int) -> LeadingStep:
    why = f"The leader of the group can't list the topics: {reason}. Until it can, all members keep their tasks."
    leading = _failed(replace(leading, awaits=None), now_ms)
    return keep(leading, why, rejoin_after_ms=leading.memory.create_at_ms - now_ms)


def _configure(leading: Leading, now_ms: int) -> LeadingStep:
    lead = leading.lead
    assert lead is not None
    configuration = configure(leading.view.texts[lead.digest], leading.image)
    problem = configuration.problem
    if leading.is_update and (why := _problem_of_update(leading, lead, configuration)):
        return _refuse_update(leading, why, now_ms)
    if _needs_unread_count(leading):
        return _count_unread(leading, now_ms)
    if configuration.to_create and leading.created is None and now_ms >= leading.memory.create_at_ms:
        return _await(leading, CreateTopics(configuration.to_create))
    if problem is not None and leading.is_update:
        return _postpone(leading, problem.detail + leading.creation_detail, now_ms)
    if configuration.is_ready:
        listed = changelogs_to_list(leading.view, lead, configuration.task_counts)
        logs = {(name, task.partition, is_source) for task, names in listed.items() for name, is_source in names}
        gone = gone_of(leading)
        if logs or gone:
            ends = frozenset((name, partition) for name, partition, is_source in logs if not is_source)
            committed = frozenset((name, partition) for name, partition, is_source in logs if is_source)
            return _await(leading, EndOffsets(ends, committed, gone))
    return assign(leading, {}, now_ms)


def _offsets_listed(leading: Leading, offsets: Mapping[TopicPartition, int] | None, now_ms: int) -> LeadingStep:
    """Requests both kinds of offsets for removed topics, one after the other: end offsets first, so that no record is
    missed."""
    gone = gone_of(leading)
    if not gone:
        return assign(leading, offsets or {}, now_ms)
    if leading.ends is None and offsets is not None and gone <= offsets.keys():
        return _await(replace(leading, ends=offsets), EndOffsets(frozenset(), gone))
    if leading.ends is not None and (offsets is not None or not any(leading.ends[each] for each in gone)):
        return assign(leading, leading.ends, now_ms, offsets or {})
    why = (
        "Offsets can't be listed, so it is not known what is unread in repartition topics that the new version "
        "does not have."
    )
    return keep(leading, why, rejoin_after_ms=DRAINING_MS)


# --------------------------------------------------------------------------------- topics that no version reads any more


def _runs_beside_older(leading: Leading) -> bool:
    version = leading.version
    return version is not None and bool(older_versions(leading.view, version, refused_of(leading, version)))


def _needs_unread_count(leading: Leading) -> bool:
    """Whether the leader still has to find out what versions without members have left unread. While nobody runs the
    group's version, its tasks can't wait for that."""
    if not leading.runners:
        return False
    is_known = leading.memory.unread_counted_for == leading.version or _runs_beside_older(leading)
    return not leading.has_counted and (not is_known or bool(_unread_topics(leading)))


def _unread_topics(leading: Leading) -> frozenset[str]:
    version = leading.version
    return nobodys_topics(leading.view, version, refused_of(leading, version)) if version is not None else frozenset()


def _count_unread(leading: Leading, now_ms: int) -> LeadingStep:
    """Requests the count, but only if a repartition topic exists that may belong to an older version."""
    assert leading.version is not None
    topology, image = leading.view.texts[leading.version.digest], leading.image
    names = left_topics(leading.settings.group_id, topology, image)
    if _runs_beside_older(leading):
        names &= _unread_topics(leading)
    if not names:
        return _left_counted(leading, {}, now_ms)
    # Its own records show whether another version would be refused because of it.
    names |= {name for name in repartition_topics(topology) if name in image}
    return _await(leading, CountUnread(frozenset((name, p) for name in names for p in range(image[name].partitions))))


def _left_counted(leading: Leading, unread: Unread | None, now_ms: int) -> LeadingStep:
    version, group_id = leading.version, leading.settings.group_id
    assert version is not None
    members = {m.member_id: m for m in leading.view.members}
    may_lose = any(may_lose_in_flight(members[name].subscription.client_tags) for name in leading.runners)
    is_new = leading.view.echoed != version and not leading.view.javas
    leading = replace(leading, has_counted=True)
    if unread is None:
        if may_lose or not (is_new or _unread_topics(leading)):
            return _configure(leading, now_ms)
        why = "Offsets can't be listed, so it is not known what older versions left unread in repartition topics."
        return keep(leading, why, rejoin_after_ms=DRAINING_MS)
    found = left_of(leading.view.texts[version.digest], unread)
    if found.unread and is_new and not may_lose:
        return _start_together(leading, version, found, now_ms)
    left = left_behind(leading.view, version, group_id, found.unread, may_lose=may_lose)
    return _configure(replace(leading, left=left, memory=replace(leading.memory, unread_counted_for=version)), now_ms)


def _start_together(leading: Leading, version: Version, found: LeftUnread, now_ms: int) -> LeadingStep:
    """Handles unread records that this version does not read: it starts together with versions that read them, waits for
    those, or is refused."""
    group_id, is_certain = leading.settings.group_id, leading.verdicts.is_certain
    if is_certain and _runs_beside_older(leading):
        return _refuse_update(leading, refusal_to_follow(found.unread), now_ms)
    again, rest = (frozenset(), found) if is_certain else returning(leading.view, version, found)
    if not rest.unread:
        return _choose(replace(leading, again=again | leading.again), now_ms)
    if again or (found.own and not is_certain):
        why = detail_of_waiting(group_id, rest.unread, found.own)
        return keep(leading, why, awaits=True, rejoin_after_ms=IN_FLIGHT_MS)
    refusal = Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, refusal_to_leave(group_id, version.epoch, found.unread))
    return _refuse(leading, leading.runners, refusal, now_ms)


def _problem_of_update(leading: Leading, lead: Version, configuration: Configuration) -> str | None:
    view, refused = leading.view, leading.refused
    return problem_of_update(view, lead, configuration, refused) or problem_of_state(
        view, lead, refused, leading.settings.group_id
    )


def _refuse_update(leading: Leading, problem: str, now_ms: int) -> LeadingStep:
    version, group = leading.version, leading.verdicts.group
    assert version is not None
    assert group is not None
    refusal = could_not_run(leading.settings.group_id, version.epoch, group.epoch, problem)
    names = [m.member_id for m in leading.view.members if m.version == version]
    return _refuse(leading, names, refusal, now_ms)


def _postpone(leading: Leading, detail: str, now_ms: int) -> LeadingStep:
    """The update waits for its topics: the group continues with its present version."""
    leading = replace(leading, candidates=(), postponed=detail, created=None, creation_detail="")
    return _choose(replace(leading, has_counted=False, left=NOTHING_LEFT), now_ms)


def _created(
    leading: Leading, specs: tuple[TopicSpec, ...], errors: Mapping[str, tuple[int, str]], now_ms: int
) -> LeadingStep:
    real = {name: error for name, error in sorted(errors.items()) if error[0] != ErrorCode.TOPIC_ALREADY_EXISTS}
    made = {spec.name: spec.partitions for spec in specs if spec.name not in errors}
    if not real:
        memory = replace(leading.memory, creations=0, create_at_ms=0)
        leading = replace(leading, created=made, memory=memory)
        return _list_topics(leading)
    detail = creation_detail_of(real)
    if leading.is_update and all(code in FINAL for code, _ in real.values()):
        return _refuse_update(leading, cannot_be_made(real), now_ms)
    leading = replace(
        _failed(leading, now_ms), created=made, creation_detail=detail, image=with_created(leading.image, made)
    )
    return _configure(leading, now_ms)


def _failed(leading: Leading, now_ms: int) -> Leading:
    failures = leading.memory.creations + 1
    backoff_ms = min(FIRST_BACKOFF_MS * 2 ** min(failures - 1, 16), MAX_BACKOFF_MS)
    return replace(leading, memory=replace(leading.memory, creations=failures, create_at_ms=now_ms + backoff_ms))
