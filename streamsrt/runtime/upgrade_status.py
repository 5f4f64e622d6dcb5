"""The progress of an upgrade, and what to do next: values in, values out.

1. The newest version is the highest topology epoch that a member runs. An upgrade is under way while members run
   several versions, or while no member runs the group's epoch.
2. The progress of a warm-up is what members reported: the sum of the offsets of a task's changelogs, and of their ends.
   Ends reported by another member count too; the largest is the newest.
3. A speed is computed from two looks between which a member reported another offset. Without it there is no estimate.
   The speed of a drain is computed from two looks between which records were read.
4. The next steps are commands; APP, OLD and NEW are placeholders for names that the group does not know.
5. A rollback is advised only if it is possible (:mod:`streamsrt.runtime.way_back`).
6. Records in flight that nobody reads come first. The status says which version reads them, and with which epoch it is
   accepted, as far as the group knows its versions. An upgrade is not over while tasks wait for such records.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias

from streamsrt.runtime.group_facts import ROLES, STABLE, GroupFacts, KnownVersion, MemberFacts, Role, Task
from streamsrt.runtime.way_back import FormerVersion, former_version, way_back
from streamsrt.wording import counted

Phase: TypeAlias = Literal["no members", "one version", "upgrading", "no new member", "versions unknown"]
"""``versions unknown``: a classic group rebalances, and reports nothing about its members until that is over.
``no new member``: the group has taken a version that nobody runs (any more); the old ones run everything."""


@dataclass(frozen=True, slots=True)
class VersionRow:
    """A version that members run. ``tasks``: their number by role."""

    topology_epoch: int | None
    digest: str | None
    members: int
    tasks: Mapping[Role, int]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A task whose state a member restores before it runs there. ``offset`` and ``end``: None if not reported. ``eta_s``:
    None if the speed is unknown."""

    task: str
    member: str
    offset: int | None
    end: int | None
    offsets_per_second: float | None = None

    @property
    def behind(self) -> int | None:
        return None if self.offset is None or self.end is None else max(0, self.end - self.offset)

    @property
    def eta_s(self) -> float | None:
        if self.behind == 0:
            return 0.0
        return None if self.behind is None or not self.offsets_per_second else self.behind / self.offsets_per_second


@dataclass(frozen=True, slots=True)
class Drain:
    """Repartition topics that old members read to the end before a new version takes over. ``records``: how many are
    unread. ``written``: those to which old members still write: the end is not known before new ones do that."""

    topics: tuple[str, ...]
    records: int
    records_per_second: float | None = None
    written: tuple[str, ...] = ()

    @property
    def eta_s(self) -> float | None:
        if self.written:
            return None
        if not self.records:
            return 0.0
        return self.records / self.records_per_second if self.records_per_second else None


@dataclass(frozen=True, slots=True)
class UpgradeStatus:
    """``phase``: the upgrade's phase. ``advice``: what blocks and what to do, most urgent first. ``last_assignment``: why
    the group was assigned last, as its coordinator or leader puts it. ``drain``: None if no topics have to be read to the
    end. ``unread``: records in repartition topics that nobody reads, by topic; ``holds``: tasks wait for those, and if it
    ``stands_still``, all do.
    ``unread_unassigned``: records in all repartition topics, while the versions are unknown.
    ``unread_sources``: records in source topics that the newest version does not read."""

    group: str
    protocol: str
    state: str
    topology_epoch: int | None
    phase: Phase
    versions: tuple[VersionRow, ...]
    warming_up: tuple[WarmUp, ...]
    advice: tuple[str, ...]
    last_assignment: str = ""
    drain: Drain | None = None
    unread: Mapping[str, int] = field(default_factory=dict)
    holds: bool = False
    stands_still: bool = False
    unread_sources: Mapping[str, int] = field(default_factory=dict)
    unread_unassigned: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self.phase == "one version" and not self.pending and self.state in STABLE

    @property
    def pending(self) -> tuple[str, ...]:
        """What the group still waits for although all its members run its version; empty elsewhere."""
        if self.phase != "one version":
            return ()
        found = []
        newest = max((row.topology_epoch for row in self.versions if row.topology_epoch is not None), default=None)
        if newest is not None and self.topology_epoch is not None and newest > self.topology_epoch:
            found.append(f"the group has not taken topology epoch {newest} yet")
        if self.holds:
            unread = counted(sum(self.unread.values()), "record")
            who = "nothing is processed: all tasks" if self.stands_still else "tasks"
            found.append(f"{who} wait for {unread} in flight that no instance reads")
        if self.warming_up:
            eta = "" if self.eta_s is None else f" (about {self.eta_s:.0f} s)"
            found.append(f"{counted(len(self.warming_up), 'task')} still warming up{eta}")
        return tuple(found)

    @property
    def headline(self) -> str:
        """The phase for people, with what is pending."""
        if self.phase == "versions unknown":
            return "versions unknown while the group rebalances"
        return f"one version, but {' and '.join(self.pending)}" if self.pending else self.phase

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last task that is warming up now has caught up."""
        etas = [each.eta_s for each in self.warming_up]
        known = [eta for eta in etas if eta is not None]
        return max(known) if known and len(known) == len(etas) else None

    def to_json(self) -> dict[str, object]:
        return {
            **asdict(self),
            "is_over": self.is_over,
            "headline": self.headline,
            "pending": self.pending,
            "eta_s": self.eta_s,
            "drain": None if self.drain is None else {**asdict(self.drain), "eta_s": self.drain.eta_s},
            "warming_up": [{**asdict(e), "behind": e.behind, "eta_s": e.eta_s} for e in self.warming_up],
        }


class UpgradeWatch:
    """Computes the status from consecutive snapshots. ``at_s``: any clock in seconds that does not go back."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Task], tuple[float, int]] = {}
        self._speeds: dict[tuple[str, Task], float] = {}
        self._drained: tuple[float, int] | None = None
        self._drain_speed: float | None = None

    def status(self, now: GroupFacts, at_s: float) -> UpgradeStatus:
        """Returns the status at this moment."""
        present = {member.member_id for member in now.members}
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in present}
        self._speeds = {key: speed for key, speed in self._speeds.items() if key[0] in present}
        for member in now.members:
            for task, offset in member.offsets.items():
                self._note((member.member_id, task), at_s, offset)
        return _status(now, self._speeds, self._drain(now, at_s))

    def _drain(self, now: GroupFacts, at_s: float) -> Drain | None:
        written = now.written if len(now.epochs) > 1 else frozenset()
        if not now.in_flight and not written:
            self._drained = self._drain_speed = None
            return None
        records = sum(now.in_flight.values())
        since_s, before = self._drained or (at_s, records)
        if records < before and at_s > since_s:
            self._drain_speed = (before - records) / (at_s - since_s)
        if records != before or self._drained is None:
            self._drained = (at_s, records)
        topics = tuple(sorted(written.union(now.in_flight)))
        return Drain(topics, records, self._drain_speed, tuple(sorted(written)))

    def _note(self, key: tuple[str, Task], at_s: float, offset: int) -> None:
        since_s, before = self._seen.setdefault(key, (at_s, offset))
        if offset < before:
            self._seen[key] = (at_s, offset)
            self._speeds.pop(key, None)
        elif offset > before and at_s > since_s:
            self._speeds[key] = (offset - before) / (at_s - since_s)
            self._seen[key] = (at_s, offset)


def _status(now: GroupFacts, speeds: Mapping[tuple[str, Task], float], drain: Drain | None) -> UpgradeStatus:
    warming_up = tuple(_warm_ups(now, speeds))
    phase = _phase(now)
    return UpgradeStatus(
        group=now.name,
        protocol=now.kind,
        state=now.state,
        topology_epoch=now.epoch,
        phase=phase,
        versions=tuple(_versions(now)),
        warming_up=warming_up,
        advice=tuple(_advice(now, phase, warming_up, drain)),
        last_assignment=now.why,
        drain=drain,
        unread=now.left,
        holds=_holds(now),
        stands_still=now.stands_still,
        unread_sources=now.dropped,
        unread_unassigned=now.unassigned,
    )


def _holds(now: GroupFacts) -> bool:
    return bool(now.members and now.left and now.holds)


def _phase(now: GroupFacts) -> Phase:
    if not now.members:
        return "no members"
    if not now.knows_versions:
        return "versions unknown"
    newest = now.epochs[0] if now.epochs else None
    if newest is not None and now.epoch is not None and newest < now.epoch:
        return "no new member"
    return "upgrading" if len(now.epochs) > 1 else "one version"


def _versions(now: GroupFacts) -> Iterator[VersionRow]:
    found: dict[tuple[int | None, str | None], list[MemberFacts]] = defaultdict(list)
    for member in now.members:
        found[member.epoch, member.digest].append(member)
    for (epoch, digest), members in sorted(found.items(), key=lambda row: -1 if row[0][0] is None else -row[0][0]):
        counts: Counter[Role] = Counter()
        for member in members:
            counts.update({role: len(member.tasks[role]) for role in ROLES})
        yield VersionRow(epoch, digest, len(members), {role: counts[role] for role in ROLES})


def _warm_ups(now: GroupFacts, speeds: Mapping[tuple[str, Task], float]) -> Iterator[WarmUp]:
    ends = now.task_ends
    for member in now.members:
        for task in sorted(member.tasks["warmup"]):
            speed = speeds.get((member.member_id, task))
            name = f"{task[0]}_{task[1]}"
            yield WarmUp(name, member_name(member), member.offsets.get(task), ends.get(task), speed)


def member_name(member: MemberFacts) -> str:
    """The member's name for people: its instance id, else its address or host, with the start of its member id."""
    if member.instance_id is not None:
        return member.instance_id
    # In a classic group, all ids begin with the client id.
    return f"{member.member_id.removeprefix(f'{member.client_id}-')[:8]} on {member.endpoint or member.host}"


# ------------------------------------------------------------------------------------------------------- what to do


def _advice(now: GroupFacts, phase: Phase, warming_up: tuple[WarmUp, ...], drain: Drain | None) -> Iterator[str]:
    """Yields what blocks and what to do, most urgent first."""
    if phase == "no members":
        yield from _without_instances(now)
        yield from _of_dropped_sources(now)
        return
    if now.state in ("NotReady", "NOT_READY"):
        yield "topics of the group's topology are missing or don't fit: an instance's log, or its /upgrade, says which ones"
    away = [member_name(each) for each in now.members if each.is_away]
    if away:
        yield (
            f"{', '.join(sorted(away))} is stopped and keeps its tasks until its session ends: start it, or give its tasks "
            f"to others at once (streamsrt groups remove-members {now.name} --all --execute)"
        )
    if phase == "versions unknown":
        yield from _while_rebalancing(now)
    elif now.strangers:
        yield f"{now.strangers} run in this group, and report no versions"
    elif any(each.epoch is None for each in now.members):
        yield "the versions of the members are not known at this moment: some do not report theirs"
    if now.left:
        yield from _of_unread(now)
    if phase == "no new member":
        yield from _without_new(now)
    elif phase == "upgrading":
        yield from _while_rolling(now, warming_up, drain)
    yield from _of_dropped_sources(now)


def _without_new(now: GroupFacts) -> Iterator[str]:
    """Yields advice for a group whose own version nobody runs."""
    nobody = f"no instance runs topology epoch {now.epoch}"
    runs = f"{nobody}, and instances with epoch {max(now.epochs)} run everything"
    former = former_version(now)
    blocked = None if former is None else way_back(now, former)
    if former is not None and blocked == "values":
        yield f"{nobody}, and {_of_later_values(now, former)}"
    elif now.rolled_back_to:
        epochs = ", ".join(map(str, now.rolled_back_to))
        yield (
            f"the group was rolled back, and {nobody} yet: restart the instances with epoch {epochs}, one after the other, "
            f"and those that were stopped, with topology.epoch={now.epoch}. Stop instances with any other version"
        )
    elif former is not None and blocked == "nobody":
        yield f"{runs}: start a corrected version. {advice_on_way_back(now, former)}"
    elif blocked == "records" or _own(now):
        yield (
            f"{runs}: start an instance of epoch {now.epoch} again, or roll back and leave its records unread (streamsrt "
            f"upgrade abort OLD --group {now.name} --lose-in-flight)"
        )
    else:
        yield (
            f"{runs}: roll back with streamsrt upgrade abort OLD --group {now.name}, or start a corrected version (epoch "
            f"{now.epoch} if its topology is the same, else {now.next_epoch})"
        )


def _while_rebalancing(now: GroupFacts) -> Iterator[str]:
    yield (
        "a classic group reports the versions of its members only between rebalances: wait for the next report before you "
        "stop an old instance"
    )
    if now.unassigned:
        yield (
            f"unread in repartition topics: {_listed(now.unassigned)}. Only the next report says whether the new version "
            "reads them, too"
        )


# ------------------------------------------------------------------------------------------- records that nobody reads


def _listed(left: Mapping[str, int]) -> str:
    return ", ".join(f"{topic}: {counted(records, 'record')}" for topic, records in sorted(left.items()))


def _own(now: GroupFacts) -> bool:
    """Whether the group's own version reads some of the unread records."""
    return any(each.epoch == now.epoch and each.repartition_topics & now.left.keys() for each in now.versions)


def _without_instances(now: GroupFacts) -> Iterator[str]:
    yield from _what_to_start(now)
    if now.later_values:
        yield f"{_listed_values(now)}: a version that can't read them is refused"


def _what_to_start(now: GroupFacts) -> Iterator[str]:
    former = _ran_before(now)
    if not now.left and former is not None:
        yield (
            f"no instance runs. Topology epoch {now.epoch} has not taken over, and its version may have failed: start the "
            f"version that ran before it, with topology.epoch={former.epoch}, or that of topology epoch {now.epoch} if it "
            "works"
        )
        return
    if not now.left:
        yield "no instance runs: start one (streamsrt upgrade start, or streamsrt run)"
        return
    yield f"no instance runs, and records are in flight: {_listed(now.left)}"
    if now.versions:
        yield from _readers(now)
        return
    yield (
        "start a version that has these topics. If no version has all of them, start all versions "
        "that have some, each with its previous topology.epoch: the earlier one reads its own first"
    )
    if now.epoch is None and len(now.left) > 1:
        yield (
            "if the first one is refused nevertheless (the streams group was deleted or had another protocol), start "
            "the earlier one with --lose-in-flight and the later one without it: each then reads its own topics"
        )


_SOME_WAIT = "tasks that share state with their readers wait"


def _of_unread(now: GroupFacts) -> Iterator[str]:
    """Yields advice about unread records while instances run."""
    listed = _listed(now.left)
    if any(each.may_lose for each in now.with_epoch(now.epochs[0] if now.epochs else None)):
        yield (
            f"in flight, and left unread because of --lose-in-flight: {listed}. Keep that option until these topics "
            "are deleted: without it, tasks wait for the records. A version that has the topics reads them: start "
            f"it with the next epoch, {now.next_epoch}, and continue as in an upgrade"
        )
        return
    who = "nothing is processed until they have a reader" if now.stands_still else _SOME_WAIT
    waits = f", and {who}" if _holds(now) else ""
    yield f"in flight, and no instance reads them{waits}: {listed}"
    yield from _readers(now)


def _readers(now: GroupFacts) -> Iterator[str]:
    """Yields which versions to start so that the unread records are read."""
    topics = set(now.left)
    found = []
    for version in _as_readers(now):
        mine = sorted(topics & version.repartition_topics)
        topics -= version.repartition_topics
        if mine:
            found.append((version, ", ".join(mine)))
    found.sort(key=lambda each: -each[0].epoch)
    for version, listed in reversed(found):
        if version.epoch in now.epochs:
            yield (
                f"instances of topology epoch {version.epoch} run, and have no task that reads {listed}: they read it as "
                "soon as they get these tasks. Warm-up tasks, and instances with an earlier version, come first"
            )
        elif version.is_sent_back:
            yield (
                f"topology epoch {version.epoch} was rolled back (the group has the topology of an earlier version again): "
                f"start its version with the next epoch, {now.next_epoch}; it reads {listed}"
            )
        else:
            yield (
                f"start an instance of the version of topology epoch {version.epoch} (topology.epoch={version.epoch}): it "
                f"reads {listed}{_so_do_others(now, version)}"
            )
    if len(found) > 1:
        yield _order([version for version, _ in found], now)
    if topics and now.stands_still:
        yield (
            f"start the version that has {', '.join(sorted(topics))} beside these instances, each version with the "
            "topology.epoch that it had: the earlier one reads its own topics first. Or restart all instances with "
            "--lose-in-flight: the records stay unread in their topics, where a version that has these reads them later"
        )
    elif topics:
        yield (
            f"the group does not know which version has {', '.join(sorted(topics))}: start that one with the next "
            f"epoch, {now.next_epoch}, when nothing else is in flight. It reads them late. If they do not "
            "matter, delete the topics"
        )


def _order(versions: Sequence[KnownVersion], now: GroupFacts) -> str:
    """In which order to start versions that each have unread topics."""
    if any(version.is_sent_back for version in versions) and any(version.epoch == now.epoch for version in versions):
        # The next epoch is refused while nobody reads the records of this one.
        return f"start the version of topology epoch {now.epoch} first, and the other one beside it"
    return "start these beside each other, in any order: the earlier version reads its own topics first"


def _ran_before(now: GroupFacts) -> KnownVersion | None:
    """The version that ran last, where nobody runs the group's own one and that has not taken over; None elsewhere."""
    if now.members or len(now.versions) < 2:
        return None
    newest, former, *_ = now.versions
    return None if newest.has_taken_over or former.is_sent_back else former


def _as_readers(now: GroupFacts) -> list[KnownVersion]:
    """The versions that the group knows, first the one that is to read what several of them can read. A classic group knows
    those that its members run."""
    former = _ran_before(now)
    if not now.versions:
        reads = {epoch: [member.reads for member in now.with_epoch(epoch)] for epoch in now.epochs}
        return [KnownVersion(epoch, frozenset().union(*topics)) for epoch, topics in reads.items()]
    if former is None:
        return list(now.versions)
    newest, *older = now.versions
    return [*(each for each in older if not each.is_sent_back), newest, *(each for each in older if each.is_sent_back)]


def _so_do_others(now: GroupFacts, reader: KnownVersion) -> str:
    """A note that a version which may have failed reads the same."""
    newest = now.versions[0]
    mine = reader.repartition_topics & now.left.keys()
    if _ran_before(now) is None or newest.epoch == reader.epoch or not mine & newest.repartition_topics:
        return ""
    return (
        f". So does that of topology epoch {newest.epoch}, which has not taken over and may have failed: start it instead "
        "if it works"
    )


def _of_dropped_sources(now: GroupFacts) -> Iterator[str]:
    """Yields advice about unread records in source topics that the newest version does not have."""
    newest = max((*now.epochs, -1 if now.epoch is None else now.epoch))
    for topic, records in sorted(now.dropped.items()):
        unread = (
            f"source topic {topic} is not read by topology epoch {newest}: {counted(records, 'record')} not read yet"
        )
        later = f"a version that has the topic reads them: start it with the next epoch, {newest + 1}"
        if any(each.tasks["active"] for each in now.members if each.epoch != newest):
            yield (
                f"{unread}. Only instances of an earlier version read them: stop the topic's producers, and stop the last "
                f"of these instances when no record is left. Afterwards, {later}"
            )
        else:
            yield f"{unread}, and no instance reads them. If you need them, {later}. If not, nothing has to be done"


# ------------------------------------------------------------------------------------------------------ step by step


def _while_rolling(now: GroupFacts, warming_up: tuple[WarmUp, ...], drain: Drain | None) -> Iterator[str]:
    newest, *older = now.epochs
    old = [each for each in now.members if each.epoch in older]
    names = ", ".join(sorted(member_name(each) for each in old))
    if warming_up:
        yield f"{counted(len(warming_up), 'task')} warming up on new instances: old instances process them until then"
    if now.setbacks is not None and now.setbacks[0] == newest:
        yield (
            f"instances with topology epoch {newest} stopped {now.setbacks[1]} times in a row, so the group gives them no "
            f"more tasks of old instances for a while. Keep the old instances running ({names}), and find the reason in the "
            "logs of the new ones"
        )
    if drain is not None:
        yield from _while_draining(now, drain, names)
    elif _have_same_topology(now):
        yield (
            f"all instances have the same topology, {len(old)} of them under an earlier epoch ({names}), as after upgrade "
            "abort: they go on as they are, but can't join again when they are stopped or lose their membership (exit code "
            f"2). Restart them one after the other with --config topology.epoch={newest}"
        )
        return
    elif now.setbacks is None:
        then = "when no task is warming up any more, stop" if warming_up else "stop"
        yield _next_step(now, then, names)
    former = former_version(now)
    if former is not None:
        yield advice_on_way_back(now, former)


# ------------------------------------------------------------------------------------------------------- the way back


def advice_on_way_back(now: GroupFacts, former: FormerVersion) -> str:
    """Returns how to roll back, or what is possible instead. No command that would be refused is named."""
    match way_back(now, former):
        case "values":
            return _of_later_values(now, former)
        case "nobody":
            return (
                f"instances with topology epoch {former.epoch} don't say which version they run (Java's Kafka Streams, "
                "or an earlier release), so no command sends the upgrade back to them. To go back, start the former version "
                f"with the next epoch, {now.next_epoch}, and continue as in an upgrade"
            )
        case "records":
            return (
                f"only the new version reads what is in flight ({_listed(now.only_later_reads)}), so it has to run on while "
                f"you roll back: start instances of the former version with the next epoch, {now.next_epoch}, until "
                "they are at least half of all, and stop the new ones when nothing is unread. To leave the records unread: "
                f"streamsrt upgrade abort OLD --group {now.name} --lose-in-flight"
            )
        case None:
            which = f", where OLD is the version of topology epoch {former.epoch}" if len(now.epochs) > 2 else ""
            return f"to roll back: streamsrt upgrade abort OLD --group {now.name}{which}{_while_possible(former)}"


def _of_later_values(now: GroupFacts, former: FormerVersion) -> str:
    newest = max(now.epochs[0], now.epoch or 0)
    return (
        f"there is no way back: {_listed_values(now)}, and instances with topology epoch {former.epoch} fail at the first "
        "one that they read. Go on with the new version: correct it if it fails (epoch "
        f"{newest} if its topology stays the same, else {newest + 1})"
    )


def _listed_values(now: GroupFacts) -> str:
    return ", ".join(f"{log} has values of version {version}" for log, version in sorted(now.later_values.items()))


def _while_possible(former: FormerVersion) -> str:
    logs = ", ".join(former.unwritten)
    return f". This is possible until a new instance has written values of a later version into {logs}" if logs else ""


def _have_same_topology(now: GroupFacts) -> bool:
    digests = {each.digest for each in now.members}
    return len(digests) == 1 and None not in digests


def _next_step(now: GroupFacts, then: str, names: str) -> str:
    newest = now.epochs[0]
    return (
        f"{len(now.with_epoch(newest))} of {len(now.members)} instances run topology epoch {newest}: {then} one of the "
        f"others, and start it with the new version ({names})"
    )


def _while_draining(now: GroupFacts, drain: Drain, names: str) -> Iterator[str]:
    """Yields why old instances have to run on: they alone read, or still write, what the new version does not have."""
    new, removed = len(now.with_epoch(now.epochs[0])), ", ".join(drain.written)
    keep = f"Keep the remaining old instances running ({names})"
    if drain.records:
        eta_s = drain.eta_s
        left = "" if eta_s is None else f", about {eta_s:.0f} s at {drain.records_per_second:,.0f} records/s"
        yield (
            f"old instances read {', '.join(drain.topics)} to the end, which the new version does not have: "
            f"{counted(drain.records, 'record')} left{left}. {keep}"
        )
    if drain.written and 2 * new >= len(now.members):
        yield (
            f"old instances still write to {removed}, which the new version does not have, until new instances have warmed "
            f"up these tasks and take them over. {keep}"
        )
    elif drain.written:
        yield (
            f"old instances still write to {removed}, which the new version does not have: new instances take these tasks "
            "over when they are at least half of all instances. Always leave one old instance running until then"
        )
        yield _next_step(now, "stop", names)
