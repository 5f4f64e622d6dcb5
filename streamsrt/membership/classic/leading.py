"""What the leader of a classic group does between its JoinGroup and its SyncGroup, as a pure machine.

``begin(...) -> LeadingStep``, then ``step(leading, event, now_ms) -> LeadingStep`` with the answer to each effect, until
there is an outcome.

1. All that is decided follows from what the members said, the topics, and the settings of the leader: who leads makes no
   difference, but for what its memory saves.
2. Where the next target can't be known everybody keeps what it claims, and nobody gets anything: the text of a version is
   missing that the target needs (one member of it is asked to send it), a static member is in doubt, or the topics can't be
   listed. The group does not wait for the text of the next version, as whoever is asked may be dead: it goes on with its
   own, unless a static member runs the next one, whose tasks wait for it. Where nobody runs the group's version, the tasks
   of the newest older one that somebody runs are assigned.
3. Another version becomes the group's only when its topics are right and there. One that could not run is refused, and the
   members that are there go on. A group that starts anew takes its version as it is, and waits for the topics.
4. A version is the group's for the members that are told of it. So a generation whose assignments are not stored has
   changed nothing.
5. While topics are missing nobody has a task but stale members, whose topics are all there.
6. At the deadline, a third of the session timeout, the leader goes on with what it has: reports without ends, a status for
   topics that are not there, or what everybody has.
7. Nobody is told to join again but who must send its topology, and the leader itself: after a failure, when a member is
   away or in doubt, and now and then while tasks warm up.
8. Before a version runs alone that the group does not run yet, the leader looks what older versions have left unread in
   repartition topics that it does not have. If there is anything the version is refused, unless its members may lose it, or
   versions that start together read all of it (:mod:`~streamsrt.membership.classic.left`). A group that runs the version
   already goes on, with a warning. A leader looks once, and again when older members are gone.
9. All subscriptions and assignments together are one record of the broker. Near its limit reasons are left out; beyond it
   the outcome warns.

``now_ms`` is any clock in milliseconds that does not go back. Source: KIP-1071 and KIP-441 for what members are told;
``StreamsPartitionAssignor``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.in_flight import (
    Unread,
    detail_of_waiting,
    left_detail,
    left_topics,
    refusal_to_leave,
    repartition_topics,
)
from streamsrt.assignment.refused_update import Refusal, could_not_run, creation_problem, topics_problem, unauthorized
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.targets import AssignedTwiceError
from streamsrt.assignment.tasks import NO_TASKS, TaskId, Tasks
from streamsrt.assignment.topics import NO_TOPIC_ID, NO_TOPICS, TopicImage, TopicsImage, TopicSpec
from streamsrt.membership.classic.left import LeftUnread, left_of, returning
from streamsrt.membership.classic.placing import (
    changelogs_to_ask,
    claims_of,
    draining_text,
    given,
    gone_partitions,
    older_versions,
    targets_of,
    waiting_of,
    without,
)
from streamsrt.membership.classic.stream_layout import STREAM_PROTOCOL, UserDataVersions, versions_of
from streamsrt.membership.classic.telling import GenerationPlan, LeaderOutcome, LeaderSettings, told
from streamsrt.membership.classic.values import PROTOCOL_NAME, Joined
from streamsrt.membership.classic.verdicts import Verdicts, refusals, verdicts_on
from streamsrt.membership.classic.view import Memory, Version, View, view_of
from streamsrt.membership.session_events import Tick
from streamsrt.membership.values import TopicPartition
from streamsrt.wire.client_tags import LOSE_IN_FLIGHT
from streamsrt.wire.error_codes import ErrorCode

FIRST_BACKOFF_MS = 1_000
MAX_BACKOFF_MS = 30_000
NO_OFFSETS: Mapping[TopicPartition, int] = {}
DRAINING_MS = 1_000
"""When the leader looks again while old members read the rest of repartition topics that are gone."""
IN_FLIGHT_MS = 15_000
"""When it looks again while something still writes those."""
DOUBT_MS = 1_000
"""When the leader looks again after a generation in which a member was in doubt."""
_TEXT_MISSING = "Waiting for the topology of another version, which a member has been asked for."


@dataclass(frozen=True, slots=True)
class ListTopics:
    """Say which of these topics there are; None: of all."""

    names: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class CreateTopics:
    specs: tuple[TopicSpec, ...]


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """The ends of ``partitions``, and the offsets that the group has committed of ``committed``. ``written``: partitions
    whose ends are asked for with what open transactions have written: it may be there to be read any moment."""

    partitions: frozenset[TopicPartition]
    committed: frozenset[TopicPartition] = frozenset()
    written: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class CountLeft:
    """What the group has not read of these partitions, in topics of which it has committed anything."""

    partitions: frozenset[TopicPartition]


Effect: TypeAlias = ListTopics | CreateTopics | EndOffsets | CountLeft


@dataclass(frozen=True, slots=True)
class TopicsListed:
    image: TopicsImage


@dataclass(frozen=True, slots=True)
class TopicsUnknown:
    """The topics can't be listed, in the words of who tried."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicsCreated:
    """The attempt is over: error code and message of each topic that could not be made."""

    errors: Mapping[str, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndOffsetsListed:
    """Those that are known, of both kinds; none after a failure."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LeftCounted:
    """None: nobody can say."""

    unread: Unread | None


Event: TypeAlias = TopicsListed | TopicsUnknown | TopicsCreated | EndOffsetsListed | LeftCounted | Tick


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """A generation in the leader's hands. ``version``: the one that it tries to assign; ``candidates``: it, if it is to
    become the group's, and others after it. ``awaits``: the effect whose answer is due. ``ends``: the offsets that were
    asked for, while those are that the group has committed of topics that are gone. ``lists_all``: the image has all topics;
    ``has_counted``: it is known of this version, or can't be known, what older ones have left; ``left``: that, in words;
    ``again``: members of earlier versions that are taken for it."""

    view: View
    verdicts: Verdicts
    settings: LeaderSettings
    memory: Memory
    leader_id: str
    sizes: int
    deadline_ms: int
    versions: UserDataVersions = field(default_factory=UserDataVersions)
    candidates: tuple[Version, ...] = ()
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    postponed: str = ""
    asked: frozenset[str] = frozenset()
    unknown: str = ""
    image: TopicsImage = NO_TOPICS
    awaits: Effect | None = None
    created: Mapping[str, int] | None = None
    creation_detail: str = ""
    ends: Mapping[TopicPartition, int] | None = None
    lists_all: bool = False
    has_counted: bool = False
    left: str = ""
    again: frozenset[str] = frozenset()

    @property
    def version(self) -> Version | None:
        return self.candidates[0] if self.candidates else self.verdicts.group

    @property
    def lead(self) -> Version | None:
        """The version whose tasks are assigned: that one, or, where nobody runs it, the newest older one that is run."""
        version = self.version
        if version is None or self.runners:
            return version
        return next(iter(older_versions(self.view, version, self.refused)), None)

    @property
    def runners(self) -> list[str]:
        return [m.member_id for m in self.view.members if m.version == self.version and m.member_id not in self.refused]

    @property
    def is_update(self) -> bool:
        """Whether there are members to protect from a version that can't run."""
        return bool(self.candidates) and any(
            m.version != self.version and m.member_id not in self.refused for m in self.view.members
        )


@dataclass(frozen=True, slots=True)
class LeadingStep:
    """What follows: an effect whose answer is the next event, or the outcome. ``wake_at_ms``: when to send a Tick."""

    leading: Leading
    effect: Effect | None = None
    outcome: LeaderOutcome | None = None
    wake_at_ms: int | None = None


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
    """This member leads ``generation``, whose members said what is in ``joined`` in the layout of this name."""
    everybody = tuple(joined)
    view = view_of(generation, everybody, memory, leader_id, protocol_name)
    is_mixed = protocol_name == STREAM_PROTOCOL
    verdicts = verdicts_on(view, settings.group_id)
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
    )
    if view.unfit:
        return LeadingStep(leading, outcome=LeaderOutcome({}, memory, unfit=view.unfit))
    if view.in_doubt:
        why = f"It is not known what {', '.join(view.in_doubt)} has got: nothing new is assigned until that is clear."
        return _keep(leading, why, rejoin_after_ms=DOUBT_MS)
    return _choose(leading, now_ms)


def step(leading: Leading, event: Event, now_ms: int) -> LeadingStep:
    """What follows from an event. An answer that nobody waits for changes nothing."""
    match event, leading.awaits:
        case TopicsListed(image), ListTopics():
            return _configure(replace(leading, image=_with_created(image, leading.created), awaits=None), now_ms)
        case TopicsUnknown(reason), ListTopics():
            return _topics_unknown(leading, reason, now_ms)
        case TopicsCreated(errors), CreateTopics(specs):
            return _created(replace(leading, awaits=None), specs, errors, now_ms)
        case EndOffsetsListed(offsets), EndOffsets():
            return _offsets_listed(replace(leading, awaits=None), offsets, now_ms)
        case LeftCounted(unread), CountLeft():
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
            return _configure(replace(leading, image=_with_created(leading.image, leading.created)), now_ms)
        case CreateTopics(specs):
            errors = {spec.name: (int(ErrorCode.REQUEST_TIMED_OUT), "no answer in time") for spec in specs}
            return _created(leading, specs, errors, now_ms)
        case EndOffsets():
            return _offsets_listed(leading, {}, now_ms)
        case CountLeft():
            return _left_counted(leading, None, now_ms)


# ------------------------------------------------------------------------------------------------- which version runs


def _choose(leading: Leading, now_ms: int) -> LeadingStep:
    """Begins with the first version that may run."""
    view, version, lead = leading.view, leading.version, leading.lead
    if version is None or lead is None:
        return _keep(leading, "Nobody here runs the version of the application that the group runs.")
    if lead.digest in view.invalid:
        refusal = Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, view.invalid[lead.digest])
        return _refuse(leading, leading.runners, refusal, now_ms)
    missing = _missing_texts(leading, version, lead)
    if missing:
        asked = _whom_to_ask(leading, missing)
        own = replace(leading, candidates=(), asked=asked, unknown=_TEXT_MISSING)
        if _goes_on_with_its_own(leading, own):
            return _choose(own, now_ms)
        return _keep(leading, _TEXT_MISSING, asked=asked)
    if _runs_beside_older(leading) or leading.memory.generation != view.generation - 1:
        leading = replace(leading, memory=replace(leading.memory, looked=None))
    looks = _is_to_look(leading)
    if leading.image is NO_TOPICS or (looks and not leading.lists_all):
        return _list_topics(replace(leading, lists_all=looks))
    return _configure(leading, now_ms)


def _goes_on_with_its_own(leading: Leading, own: Leading) -> bool:
    """Whether the group has a version to go on with while it does not know the next one."""
    version, lead = own.version, own.lead
    if not leading.candidates or not own.runners or version is None or lead is None:
        return False
    if any(m.instance_id is not None for m in leading.view.members if m.version in leading.candidates):
        return False
    return not _missing_texts(own, version, lead)


def _list_topics(leading: Leading) -> LeadingStep:
    return _await(leading, ListTopics(None if leading.lists_all else _names(leading.view)))


def _refuse(leading: Leading, names: Iterable[str], refusal: Refusal, now_ms: int) -> LeadingStep:
    """A version can't run: its members are refused, and the next one has its turn."""
    refused = {**leading.refused, **dict.fromkeys(names, refusal)}
    was_candidate = bool(leading.candidates)
    leading = replace(
        leading,
        refused=refused,
        candidates=leading.candidates[1:],
        created=None,
        creation_detail="",
        has_counted=False,
        left="",
    )
    if was_candidate:
        return _choose(leading, now_ms)
    return _keep(leading, "The version of the application that the group was to run is refused.")


def _missing_texts(leading: Leading, version: Version, lead: Version) -> set[bytes]:
    """Of versions whose tasks members run, or may get back: which they are depends on nobody's memory."""
    view, refused = leading.view, _refused(leading, version)
    needed = {lead.digest}
    needed |= {m.version.digest for m in view.members if m.held or m.previous}
    needed |= {m.version.digest for m in view.members if m.version.epoch < version.epoch and m.member_id not in refused}
    return needed - view.texts.keys() - view.invalid.keys()


def _whom_to_ask(leading: Leading, digests: Iterable[bytes]) -> frozenset[str]:
    """One member of each version, one that is certainly there if there is one."""
    asked = set()
    for digest in digests:
        members = [
            (m.is_away, m.instance_id is not None, m.member_id)
            for m in leading.view.members
            if m.version.digest == digest and m.member_id not in leading.refused
        ]
        if members:
            asked.add(min(members)[-1])
    return frozenset(asked)


def _names(view: View) -> frozenset[str] | None:
    if any(part.source_patterns for topology in view.texts.values() for part in topology.subtopologies):
        return None
    return frozenset().union(*(topology.topics() for topology in view.texts.values()))


# ------------------------------------------------------------------------------------------------------------- topics


def _topics_unknown(leading: Leading, reason: str, now_ms: int) -> LeadingStep:
    why = f"The leader of the group can't list the topics: {reason}. Everybody keeps its tasks meanwhile."
    leading = _failed(replace(leading, awaits=None), now_ms)
    return _keep(leading, why, rejoin_after_ms=leading.memory.create_at_ms - now_ms)


def _configure(leading: Leading, now_ms: int) -> LeadingStep:
    lead = leading.lead
    assert lead is not None
    configuration = configure(leading.view.texts[lead.digest], leading.image)
    problem = configuration.problem
    if problem is not None and problem.is_fatal and leading.is_update:
        return _refuse_update(leading, topics_problem(problem), now_ms)
    if _is_to_look(leading):
        return _look(leading, now_ms)
    if configuration.to_create and leading.created is None and now_ms >= leading.memory.create_at_ms:
        return _await(leading, CreateTopics(configuration.to_create))
    if problem is not None and leading.is_update:
        return _postpone(leading, problem.detail + leading.creation_detail, now_ms)
    if configuration.is_ready:
        ask = changelogs_to_ask(leading.view, lead, configuration.task_counts)
        logs = {(name, task.partition, is_source) for task, names in ask.items() for name, is_source in names}
        gone = _gone(leading)
        if logs or gone:
            ends = frozenset((name, partition) for name, partition, is_source in logs if not is_source)
            committed = frozenset((name, partition) for name, partition, is_source in logs if is_source)
            return _await(leading, EndOffsets(ends, committed, gone))
    return _assign(leading, {}, now_ms)


def _gone(leading: Leading) -> frozenset[TopicPartition]:
    """Partitions of repartition topics that only older versions read."""
    assert leading.lead is not None
    assert leading.version is not None
    return gone_partitions(leading.view, leading.lead, _refused(leading, leading.version), leading.image)


def _offsets_listed(leading: Leading, offsets: Mapping[TopicPartition, int], now_ms: int) -> LeadingStep:
    """Of topics that are gone both are asked for, one after the other: the ends first, so that no record is overlooked."""
    gone = _gone(leading)
    if not gone:
        return _assign(leading, offsets, now_ms)
    if leading.ends is None and gone <= offsets.keys():
        return _await(replace(leading, ends=offsets), EndOffsets(frozenset(), gone))
    if leading.ends is not None and (offsets or not any(leading.ends[each] for each in gone)):
        return _assign(leading, leading.ends, now_ms, offsets)
    why = (
        "What is unread in repartition topics that the new version does not have is not known: offsets can't be listed."
    )
    return _keep(leading, why, rejoin_after_ms=DRAINING_MS)


def _unread(leading: Leading, committed: Mapping[TopicPartition, int]) -> Unread:
    """What the group has not read of topics that are gone."""
    ends = leading.ends or {}
    left = {each: ends.get(each, 0) - committed.get(each, 0) for each in _gone(leading)}
    return {each: count for each, count in left.items() if count > 0}


# ------------------------------------------------------------------------------- what nobody's topology knows any more


def _runs_beside_older(leading: Leading) -> bool:
    version = leading.version
    return version is not None and bool(older_versions(leading.view, version, _refused(leading, version)))


def _is_to_look(leading: Leading) -> bool:
    """Whether the version runs alone, and the leader does not know yet what older ones have left."""
    return not leading.has_counted and leading.memory.looked != leading.version and not _runs_beside_older(leading)


def _look(leading: Leading, now_ms: int) -> LeadingStep:
    """Asks only where there is a repartition topic that may have been one of an older version."""
    assert leading.version is not None
    topology, image = leading.view.texts[leading.version.digest], leading.image
    names = left_topics(leading.settings.group_id, topology, image)
    if not names:
        return _left_counted(leading, {}, now_ms)
    # What is its own tells whether another version would be refused for it.
    names |= {name for name in repartition_topics(topology) if name in image}
    return _await(leading, CountLeft(frozenset((name, p) for name in names for p in range(image[name].partitions))))


def _left_counted(leading: Leading, unread: Unread | None, now_ms: int) -> LeadingStep:
    version, group_id = leading.version, leading.settings.group_id
    assert version is not None
    members = {m.member_id: m for m in leading.view.members}
    may_lose = any(members[name].said.client_tags.get(LOSE_IN_FLIGHT) == "true" for name in leading.runners)
    is_new = leading.view.echoed != version and not leading.view.javas
    leading = replace(leading, has_counted=True)
    if unread is None:
        if not is_new or may_lose:
            return _configure(leading, now_ms)
        why = "What older versions have left unread in repartition topics is not known: offsets can't be listed."
        return _keep(leading, why, rejoin_after_ms=DRAINING_MS)
    found = left_of(leading.view.texts[version.digest], unread)
    if found.unread and is_new and not may_lose:
        return _start_together(leading, version, found, now_ms)
    left = left_detail(group_id, found.unread, may_lose=may_lose) if found.unread else ""
    return _configure(replace(leading, left=left, memory=replace(leading.memory, looked=version)), now_ms)


def _start_together(leading: Leading, version: Version, found: LeftUnread, now_ms: int) -> LeadingStep:
    """Something is unread that this version does not read: takes it where others do, else waits for them, or refuses it."""
    group_id, is_certain = leading.settings.group_id, leading.verdicts.is_certain
    again, rest = (frozenset(), found) if is_certain else returning(leading.view, version, found)
    if not rest.unread:
        return _choose(replace(leading, again=again), now_ms)
    if again or (found.own and not is_certain):
        why = detail_of_waiting(group_id, rest.unread, found.own)
        return _keep(leading, why, rejoin_after_ms=IN_FLIGHT_MS)
    refusal = Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, refusal_to_leave(group_id, version.epoch, found.unread))
    return _refuse(leading, leading.runners, refusal, now_ms)


def _refuse_update(leading: Leading, problem: str, now_ms: int) -> LeadingStep:
    version, group = leading.version, leading.verdicts.group
    assert version is not None
    assert group is not None
    refusal = could_not_run(leading.settings.group_id, version.epoch, group.epoch, problem)
    names = [m.member_id for m in leading.view.members if m.version == version]
    return _refuse(leading, names, refusal, now_ms)


def _postpone(leading: Leading, detail: str, now_ms: int) -> LeadingStep:
    """The update waits for its topics: the group goes on with the version that it has."""
    leading = replace(leading, candidates=(), postponed=detail, created=None, creation_detail="")
    return _choose(replace(leading, has_counted=False, left=""), now_ms)


def _created(
    leading: Leading, specs: tuple[TopicSpec, ...], errors: Mapping[str, tuple[int, str]], now_ms: int
) -> LeadingStep:
    real = {name: error for name, error in sorted(errors.items()) if error[0] != ErrorCode.TOPIC_ALREADY_EXISTS}
    made = {spec.name: spec.partitions for spec in specs if spec.name not in errors}
    if not real:
        memory = replace(leading.memory, creations=0, create_at_ms=0)
        leading = replace(leading, created=made, memory=memory)
        return _list_topics(leading)
    detail = _creation_detail(real)
    if leading.is_update and all(code in _FINAL for code, _ in real.values()):
        return _refuse_update(leading, _cannot_be_made(real), now_ms)
    leading = replace(
        _failed(leading, now_ms), created=made, creation_detail=detail, image=_with_created(leading.image, made)
    )
    return _configure(leading, now_ms)


def _failed(leading: Leading, now_ms: int) -> Leading:
    failures = leading.memory.creations + 1
    backoff_ms = min(FIRST_BACKOFF_MS * 2 ** min(failures - 1, 16), MAX_BACKOFF_MS)
    return replace(leading, memory=replace(leading.memory, creations=failures, create_at_ms=now_ms + backoff_ms))


def _with_created(image: TopicsImage, created: Mapping[str, int] | None) -> TopicsImage:
    """The image with what has been made and is not everywhere known yet."""
    new = {n: TopicImage(NO_TOPIC_ID, n, count) for n, count in (created or {}).items() if n not in image}
    return TopicsImage({**image, **new}) if new else image


def _creation_detail(errors: Mapping[str, tuple[int, str]]) -> str:
    forbidden = [name for name, (code, _) in errors.items() if code in _UNAUTHORIZED]
    if forbidden:
        return f"; {unauthorized(forbidden)}"
    listed = ", ".join(f"{name} ({message.rstrip('. ')})" for name, (_, message) in errors.items())
    return f"; Creation failed: {listed}."


def _cannot_be_made(errors: Mapping[str, tuple[int, str]]) -> str:
    if any(code in _UNAUTHORIZED for code, _ in errors.values()):
        return _creation_detail(errors).removeprefix("; ")
    return creation_problem({name: message for name, (_, message) in errors.items()})


_UNAUTHORIZED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
_FINAL = _UNAUTHORIZED | {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.POLICY_VIOLATION,
}


# --------------------------------------------------------------------------------------------------- what they are told


def _keep(
    leading: Leading,
    why: str,
    *,
    asked: frozenset[str] = frozenset(),
    rejoin_after_ms: int | None = None,
) -> LeadingStep:
    """Everybody keeps what it claims."""
    view = leading.view
    claims = claims_of(view, leading.image)
    kept = {
        m.member_id: without(m.held, claims.to_let_go.get(m.member_id, frozenset()))
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
        asked=asked,
        waiting=why,
        conflicts=claims.twice,
        image=leading.image,
        rejoin_after_ms=rejoin_after_ms,
    )
    return _done(leading, plan)


def _assign(
    leading: Leading,
    offsets: Mapping[TopicPartition, int],
    now_ms: int,
    committed: Mapping[TopicPartition, int] = NO_OFFSETS,
) -> LeadingStep:
    view, version, lead, settings = leading.view, leading.version, leading.lead, leading.settings
    assert version is not None
    assert lead is not None
    configuration = configure(view.texts[lead.digest], leading.image)
    refused = _refused(leading, version)
    waiting = {m.member_id for m in view.members if m.version.epoch > version.epoch}
    claims = claims_of(view, leading.image)
    ends = _task_ends(view, lead, configuration, offsets)
    unread = _unread(leading, committed)
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
        )
    except AssignedTwiceError as error:
        return _keep(leading, f"The assignor made a mistake: {error}.")
    told_now = {m.member_id: m for m in view.members if m.member_id not in refused}
    targets = {name: made.get(name, NO_TASKS) for name in told_now}
    plan = GenerationPlan(
        group=version,
        given={name: given(m, view, targets[name], claims) for name, m in told_now.items()},
        targets=targets,
        refused=refused,
        asked=leading.asked,
        configuration=configuration,
        creation_detail=leading.creation_detail,
        postponed=leading.postponed,
        unknown=leading.unknown,
        conflicts=claims.twice,
        image=leading.image,
        draining=draining_text(view, lead, refused, unread) if unread else "",
        rejoin_after_ms=_rejoin_after(leading, configuration, targets, unread, now_ms),
        left=leading.left,
    )
    return _done(leading, plan)


def _refused(leading: Leading, version: Version) -> dict[str, Refusal]:
    """Who is refused if the group runs this version."""
    found = refusals(leading.view, version, leading.settings.group_id, leading.verdicts.group)
    return {name: why for name, why in {**found, **leading.refused}.items() if name not in leading.again}


def _rejoin_after(
    leading: Leading, configuration: Configuration, targets: Mapping[str, Tasks], unread: Unread, now_ms: int
) -> int | None:
    """When the leader joins again though nobody else does."""
    due = []
    if unread and leading.lead is not None and leading.version is not None:
        waits = waiting_of(leading.view, leading.lead, _refused(leading, leading.version), unread)
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
    """The ends of tasks, where those of all their changelogs are known."""
    found = {}
    for task, logs in changelogs_to_ask(view, lead, configuration.task_counts).items() if offsets else ():
        ends = [offsets.get((name, task.partition)) for name, _ in logs]
        known = [end for end in ends if end is not None]
        if known and len(known) == len(ends):
            found[task] = sum(known)
    return found


def _done(leading: Leading, plan: GenerationPlan) -> LeadingStep:
    outcome = told(
        leading.view,
        plan,
        leading.settings,
        leading.memory,
        leading.leader_id,
        leading.sizes,
        leading.versions,
    )
    return LeadingStep(leading, outcome=outcome)
