"""Records that wait in repartition topics which another version of the topology does not read: who reads them first.

1. A repartition topic is *gone* if an older version has it and the newest does not. Only members with a version that has
   it can read its unread records.
2. While there are such members, it is drained: the subtopologies that write it change hands first, all their partitions
   together. Those that read it continue, partition by partition, as long as something writes it or records of the
   partition are unread. A subtopology that reads one such topic and writes another one writes until it has read its own
   to the end.
3. A task of the newest version that meets one that drains waits for it: two would write one changelog.
4. If no member is left that can read it, tasks of the newest version that meet its readers are *held*: they are not
   assigned until nothing is unread, or the user allows the loss.
5. A version is refused if nobody could read the records that it leaves unread. An older version is accepted again, with
   its own epoch, as long as it alone reads unread records: it reads these, while tasks of the newest version that meet
   its own wait. So two versions that each read what the other leaves start in either order. A version that was rolled
   back is not accepted again in this way: it may have written values that the others can't read.
6. Without knowledge of the older versions, their topics are found by name: repartition topics of the application,
   including those of foreign-key joins, that the newest version does not have, and for which the group has committed
   offsets.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamsrt.assignment.tasks import TaskId
from streamsrt.assignment.topology import Subtopology, Topology
from streamsrt.assignment.versions import versions_of
from streamsrt.wording import counted

Unread = Mapping[tuple[str, int], int]
"""How many records of a partition of a repartition topic the group has not read."""

NOTHING_UNREAD: Unread = {}

Waits = frozenset[int] | None
"""Partitions; None: all."""


_CALLED = re.compile(
    r".*(-repartition|-subscription-(registration|response)-topic|-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)
"""How names of repartition topics end: of those for groups, and, named and unnamed, of those that foreign-key joins have."""

NOBODY_READS = "Records are in flight that no member can read: "
READ_TO_THE_END = "Repartition topics that the new version does not have are read to the end by old members first: "
STILL_WRITTEN = "Old members still write to repartition topics that the new version does not have: "
NOTHING_RUNS = "Nothing is processed until then."
_DRAINED = re.compile(r"([\w.-]+) \(topology epoch \d+\)")
_AWAITED = re.compile(r"([\w.-]+): [\d,]+ records?")


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unread ``records`` of a removed repartition topic. ``epoch``: the newest version that reads it; ``readers``: how
    many members run such a version."""

    topic: str
    epoch: int
    records: int
    readers: int


def repartition_topics(topology: Topology) -> frozenset[str]:
    """Returns the repartition topics that its tasks read."""
    return frozenset(topic.name for part in topology.subtopologies for topic in part.repartition_sources)


def gone_topics(newest: Topology, older: Iterable[Topology]) -> frozenset[str]:
    """Repartition topics of older versions that the newest does not have."""
    return frozenset().union(*map(repartition_topics, older)) - repartition_topics(newest)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Subtopologies that are handed over stepwise because of removed topics. ``draining``: the ones that continue to
    read, for each older version with members, by its epoch; ``held``: tasks of the newest version that no member may run."""

    draining: tuple[tuple[int, frozenset[tuple[str, Waits]]], ...] = ()
    held: frozenset[TaskId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.draining or self.held)


NOTHING_WAITS = Waiting()


def waiting(
    topologies: Sequence[Topology], unread: Unread, writing: Mapping[int, Collection[str]], *, may_lose: bool = False
) -> Waiting:
    """Computes the hand-over. If this value changes, a new assignment is needed.

    ``topologies``: the group's and older ones, the newest first. ``writing``: for each epoch that members run, subtopologies
    of which these may still run active tasks.
    """
    lead = next((one for one in topologies if one.epoch in writing), topologies[0])
    older = [one for one in topologies if one.epoch < lead.epoch]
    found = []
    for old in older:
        if old.epoch in writing:
            waits = draining(old, lead, unread, writing[old.epoch])
            if waits:
                found.append((old.epoch, frozenset(waits.items())))
    left = [] if may_lose else [one for one in older if one.epoch not in writing]
    running = [one for one in topologies if one.epoch in writing]
    return Waiting(tuple(found), held_tasks(lead, left, running, unread))


def refusal_to_strand(
    newest: Topology, known: Sequence[Topology], unread: Unread, epochs: Collection[int]
) -> str | None:
    """Returns why ``newest`` must not follow the ``known`` versions (newest first): nobody would read the records in
    flight.

    ``epochs``: those that other members run.
    """
    found = backlogs(newest, known, unread, epochs)
    lost = [each for each in found if not each.readers]
    if lost:
        return (
            f"Records are in flight in repartition topics that it does not read: {_listed(lost)}. No member is left that "
            f"reads them. {_cure(lost, known)} Then start this version in addition."
        )
    early = [each for each in found if each.epoch < max(epochs)]
    if early:
        return (
            f"An earlier upgrade is not finished: members with topology epoch {early[0].epoch} are still reading "
            f"{_listed(early)} to the end. Start this version again when they are done. If these members write to the "
            "topics as well, that does not end: go back step by step, to the version of topology epoch "
            f"{early[0].epoch} first."
        )
    return None


def left_topics(group_id: str, newest: Topology, names: Iterable[str]) -> frozenset[str]:
    """Returns existing topics whose names mark them as repartition topics of unknown versions of the application. Another
    application's may be among them: the group's committed offsets show which ones belong to it."""
    own = newest.topics()
    return frozenset(name for name in names if is_called_repartition(group_id, name) and name not in own)


def is_called_repartition(group_id: str, topic: str) -> bool:
    """Whether a topic has the name of a repartition topic of this application."""
    return topic.startswith(f"{group_id}-") and _CALLED.fullmatch(topic) is not None


def refusal_to_leave(group_id: str, epoch: int, unread: Unread) -> str:
    """Returns why no member may run this version: nobody would read the unread records in topics of versions without
    members."""
    return (
        f"Topology epoch {epoch} does not start in group {group_id}. Records are in flight in repartition topics "
        f"that it does not read: {_counted(unread)}. No member is left that reads them. Start the version that has "
        "these topics again, then this one beside it, and stop the old one when it has no tasks left: it reads the "
        "topics to the end first. If that version is refused too, because each version has unread topics that the "
        "other does not read, start the earlier one with --lose-in-flight and the later one without it: each then "
        f"reads its own topics. {_LOSE}"
    )


def detail_of_waiting(group_id: str, left: Unread, own: Unread) -> str:
    """Returns the text for a version that reads some of the unread records, and waits for the version that reads the
    rest."""
    reads = f", and reads {_counted(own)} itself" if own else ""
    return (
        f"Group {group_id}: {NOBODY_READS[0].lower()}{NOBODY_READS[1:]}{_counted(left)}. Start the version that has these "
        f"topics as well, each version with the topology.epoch that it had: this one waits for it{reads}. {NOTHING_RUNS} "
        f"{_LOSE}"
    )


def is_version_again(group: Topology, older: Sequence[Topology], requested: Topology) -> bool:
    """Whether ``requested`` is one of the older versions, and not one that the group was rolled back from."""
    return any(one.epoch == requested.epoch and one.is_same_version(requested) for one in older) and not is_sent_back(
        group, older, requested.epoch
    )


def is_sent_back(group: Topology, older: Iterable[Topology], epoch: int) -> bool:
    """Whether the group runs the version before this one again."""
    return epoch < group.epoch and any(one.epoch < epoch and one.is_same_version(group) for one in older)


def is_needed(newest: Topology, older: Sequence[Topology], unread: Unread, epochs: Collection[int], epoch: int) -> bool:
    """Whether that version reads unread records that no member's version (``epochs``) reads."""
    names = frozenset().union(*(repartition_topics(one) for one in older if one.epoch == epoch))
    return any(each.topic in names and not each.readers for each in backlogs(newest, older, unread, epochs))


def left_detail(group_id: str, unread: Unread, *, may_lose: bool) -> str:
    """Returns a warning about unread records that no version with members reads."""
    found = f"Group {group_id}: {NOBODY_READS[0].lower()}{NOBODY_READS[1:]}{_counted(unread)}."
    if may_lose:
        return f"{found} They are left unread because upgrade.lose.in.flight=true."
    return (
        f"{found} They are left unread until a version that has these topics runs again: start it with the next "
        f"epoch, and upgrade while an instance of it runs. {_READS_STORES} If they do not matter, delete the topics."
    )


def held_by_name(group_id: str, epoch: int, unread: Unread) -> str:
    """Returns why tasks of this version are held, if the versions that would read the records are unknown."""
    return (
        f"{NOBODY_READS}{_counted(unread)}. Tasks that share state with their readers wait until they are read. "
        f"Start the version that has these topics again, with the next epoch (topology.epoch={epoch + 1}), and "
        f"continue as in any upgrade (streamsrt upgrade status --group {group_id}): it reads them. {_READS_STORES} "
        f"{_LOSE}"
    )


def refusal_to_follow(unread: Unread) -> str:
    """Returns why a version can't be the next one of a group that holds tasks."""
    return (
        f"{NOBODY_READS}{_counted(unread)}. Tasks of the running version wait for them. Start a version that has "
        f"these topics first, with this epoch: it reads them. Then start this one with the next epoch. {_LOSE}"
    )


def topics_met(newest: Topology, older: Iterable[Topology]) -> dict[str, frozenset[str]]:
    """Returns the repartition topics of older versions that the newest does not have, each with the subtopologies of the
    newest that conflict with its readers."""
    found: dict[str, frozenset[str]] = {}
    for old in older:
        versions, gone = versions_of(newest, (old,)), gone_topics(newest, [old])
        for part in old.subtopologies:
            met = frozenset(each.id for each in versions.meeting(old.epoch, part.id) if each.epoch == newest.epoch)
            for topic in {each.name for each in part.repartition_sources} & gone:
                found[topic] = found.get(topic, frozenset()) | met
    return found


def _counted(unread: Unread) -> str:
    topics = sorted({name for name, _ in unread})
    counts = {topic: sum(count for (name, _), count in unread.items() if name == topic) for topic in topics}
    return ", ".join(f"{topic}: {counted(count, 'record')}" for topic, count in counts.items())


def held_detail(found: Iterable[Backlog], known: Sequence[Topology]) -> str:
    """Returns why tasks are held. ``known``: the group's topology and older ones, newest first."""
    lost = [each for each in found if not each.readers]
    return (
        f"{NOBODY_READS}{_listed(lost)}. Tasks that share state with their readers wait until they are read. "
        f"{_cure(lost, known)}"
    )


def draining_detail(found: Iterable[Backlog]) -> str:
    """Returns which topics are drained if nothing is held."""
    return f"{READ_TO_THE_END}{_with_epochs((each.topic, each.epoch) for each in found if each.readers)}."


def draining_topics(why: str) -> frozenset[str]:
    """Parses the topics of :func:`draining_detail` from the reason of an assignment; empty if none is drained."""
    return _named_after(READ_TO_THE_END, why)


def written_detail(newest: Topology, older: Sequence[Topology], writing: Mapping[int, Collection[str]]) -> str:
    """Returns which removed topics older versions write until the newest takes over; empty if there are none. ``writing``:
    for each epoch that members run, subtopologies of which these may still run active tasks."""
    found = {
        (topic, old.epoch) for old in older for topic in still_written(old, newest, writing.get(old.epoch, frozenset()))
    }
    return f"{STILL_WRITTEN}{_with_epochs(found)}." if found else ""


def written_topics(why: str) -> frozenset[str]:
    """Parses the topics of :func:`written_detail` from the reason of an assignment; empty if none is written."""
    return _named_after(STILL_WRITTEN, why)


def _named_after(intro: str, why: str) -> frozenset[str]:
    listed = why.partition(intro)[2]
    return frozenset(_DRAINED.findall(listed.partition(";")[0]))


def _with_epochs(found: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{topic} (topology epoch {epoch})" for topic, epoch in sorted(found))


def still_written(old: Topology, newest: Topology, writing: Collection[str]) -> frozenset[str]:
    """Returns removed topics that members with ``old`` write until the newest version takes over the writers.

    Nothing takes over a subtopology that meets none of the newest, nor what reads its removed topics: these continue as
    long as members run ``old``, so waiting for them would never end.
    """
    gone, versions = gone_topics(newest, [old]), versions_of(newest, (old,))
    stays = {
        part.id
        for part in old.subtopologies
        if part.id in writing and not any(each.epoch == newest.epoch for each in versions.meeting(old.epoch, part.id))
    }
    writes = {part.id: gone.intersection(part.repartition_sinks) for part in old.subtopologies}
    while True:
        fed = frozenset().union(*(writes[name] for name in stays))
        more = {p.id for p in old.subtopologies if fed & {topic.name for topic in p.repartition_sources}} - stays
        if not more:
            return frozenset().union(*(writes[name] for name in (writes.keys() & writing) - stays))
        stays |= more


def names_held_tasks(why: str) -> bool:
    """Whether the reason of an assignment says that tasks are held."""
    return NOBODY_READS in why or NOTHING_RUNS in why


def awaited_topics(why: str) -> frozenset[str]:
    """Parses the topics that tasks wait for from the reason of an assignment; empty if no task waits."""
    if not names_held_tasks(why):
        return frozenset()
    listed = re.split(re.escape(NOBODY_READS), why, maxsplit=1, flags=re.IGNORECASE)[-1]
    return frozenset(_AWAITED.findall(listed.partition(". ")[0]))


def _listed(found: Iterable[Backlog]) -> str:
    return ", ".join(
        f"{each.topic}: {counted(each.records, 'record')} of topology epoch {each.epoch}" for each in found
    )


def _cure(lost: Sequence[Backlog], known: Sequence[Topology]) -> str:
    """Describes how to continue without loss, and what the alternative loses."""
    epoch = lost[0].epoch
    if is_sent_back(known[0], known[1:], epoch):
        way = (
            f"The version of topology epoch {epoch} was rolled back: the group has the topology of an earlier version "
            f"again. Start it with the next epoch, {known[0].epoch + 1}, and continue from there: it reads them. "
            f"{_READS_STORES}"
        )
    else:
        way = (
            f"Start an instance of the version of topology epoch {epoch} again, with "
            f"topology.epoch={epoch}: it is accepted for this purpose and reads them to the end. Stop "
            "it when upgrade status shows no unread records."
        )
    return f"{way} {_LOSE}"


_READS_STORES = (
    "If stores have received values of a later version since, the version that you start needs that version and its "
    "upcast, too."
)
_LOSE = (
    "Or run the new version with --lose-in-flight (upgrade.lose.in.flight=true): it does not wait for them. They "
    "stay unread in their topics, where a version that has these topics reads them later, until the topics are "
    "deleted."
)


def readers_of_gone(old: Topology, newest: Topology) -> frozenset[str]:
    """Returns subtopologies of ``old`` that read a topic that the newest does not have."""
    gone = gone_topics(newest, [old])
    return frozenset(part.id for part in old.subtopologies if any(t.name in gone for t in part.repartition_sources))


def backlogs(newest: Topology, older: Sequence[Topology], unread: Unread, epochs: Iterable[int]) -> list[Backlog]:
    """Returns the unread records of removed topics. ``older``: newest first; ``epochs``: of each member."""
    runs = list(epochs)
    found = []
    for topic in sorted(gone_topics(newest, older)):
        records = sum(count for (name, _), count in unread.items() if name == topic)
        if records:
            versions = [one.epoch for one in older if topic in repartition_topics(one)]
            found.append(Backlog(topic, versions[0], records, sum(epoch in versions for epoch in runs)))
    return found


def draining(old: Topology, newest: Topology, unread: Unread, writing: Collection[str]) -> Mapping[str, Waits]:
    """Returns subtopologies of ``old`` that continue to read while the others change hands, each with its partitions;
    None: all.

    ``writing``: subtopologies of which members with ``old`` may still run active tasks.
    """
    return _Draining(old, newest, unread, writing).found()


def held_tasks(
    newest: Topology, left: Sequence[Topology], running: Iterable[Topology], unread: Unread
) -> frozenset[TaskId]:
    """Returns tasks of the newest version that must not run while records are unread that only versions without members
    could read.

    ``left``: these versions. ``running``: those that members run, which read their own topics.
    """
    read = frozenset().union(*map(repartition_topics, running))
    unread = {tp: records for tp, records in unread.items() if tp[0] not in read}
    held = set()
    for old in left:
        versions = versions_of(newest, (old,))
        for name, partitions in draining(old, newest, unread, ()).items():
            for part in versions.meeting(old.epoch, name):
                held |= {TaskId(part.id, partition) for partition in _partitions(old, name, partitions, unread)}
    return frozenset(held)


class _Draining:
    def __init__(self, old: Topology, newest: Topology, unread: Unread, writing: Collection[str]) -> None:
        gone = gone_topics(newest, [old])
        self._unread, self._writing = unread, writing
        self._reads = {p.id: {topic.name for topic in p.repartition_sources} & gone for p in old.subtopologies}
        self._writes = {part.id: set(part.repartition_sinks) & gone for part in old.subtopologies}
        self._known: dict[frozenset[str], bool] = {}

    def found(self) -> dict[str, Waits]:
        found: dict[str, Waits] = {}
        for name in sorted(name for name, reads in self._reads.items() if reads):
            if self._is_written(self._circle(name)):
                found[name] = None
            else:
                waits = frozenset(
                    p for (topic, p), count in self._unread.items() if count and topic in self._reads[name]
                )
                if waits:
                    found[name] = waits
        return found

    def _writers(self, names: Iterable[str]) -> set[str]:
        topics = set().union(*(self._reads[name] for name in names))
        return {name for name, writes in self._writes.items() if writes & topics}

    def _before(self, name: str) -> set[str]:
        """Returns the direct and indirect writers of its input topics."""
        found: set[str] = set()
        more = self._writers([name])
        while more:
            found |= more
            more = self._writers(more) - found
        return found

    def _circle(self, name: str) -> frozenset[str]:
        """Returns the subtopology with those that it feeds and that feed it."""
        return frozenset({name, *(other for other in self._before(name) if name in self._before(other))})

    def _is_written(self, circle: frozenset[str]) -> bool:
        """Whether a topic that the circle reads may still be written."""
        if circle not in self._known:
            topics = set().union(*(self._reads[name] for name in circle))
            writers = self._writers(circle)
            flows = bool(writers & circle) and any(n for (topic, _), n in self._unread.items() if topic in topics)
            self._known[circle] = flows or any(name in self._writing or self._drains(name) for name in writers - circle)
        return self._known[circle]

    def _drains(self, name: str) -> bool:
        if not self._reads[name]:
            return False
        waits = any(count for (topic, _), count in self._unread.items() if topic in self._reads[name])
        return waits or self._is_written(self._circle(name))


def _partitions(old: Topology, name: str, waits: Waits, unread: Unread) -> Iterator[int]:
    part = next(part for part in old.subtopologies if part.id == name)
    reads = {topic.name for topic in part.repartition_sources}
    yield from (waits if waits is not None else {p for topic, p in unread if topic in reads})


@dataclass(frozen=True, slots=True)
class MovedFeed:
    """A changelog whose store is fed by other repartition topics in the newest version, of which both versions have some.
    ``before`` and ``after``: only these others."""

    changelog: str
    before: frozenset[str]
    after: frozenset[str]


def moved_feeds(old: Topology, newest: Topology) -> list[MovedFeed]:
    """Returns what can't be handed over while records are in flight: those in a topic that both versions have would not
    reach a store that is fed by another one from now on, or reach it twice."""
    feeds = {log.name: _fed_by(part) for part in old.subtopologies for log in part.changelogs}
    both = repartition_topics(old) & repartition_topics(newest)
    found = []
    for part in newest.subtopologies:
        for log in part.changelogs:
            now = _fed_by(part)
            had = feeds.get(log.name, now)
            before, after = had - now, now - had
            if before and after and both & (before | after):
                found.append(MovedFeed(log.name, before, after))
    return found


def refusal_of_moved_feeds(
    newest: Topology, known: Iterable[Topology], unread: Unread, epochs: Collection[int]
) -> str | None:
    """Returns why ``newest`` must not follow the ``known`` versions: they feed a store by another way. ``epochs``: those
    that other members run; of a version without members, only what it left unread matters."""
    waiting = {topic for topic, _ in unread}
    for old in known:
        for moved in moved_feeds(old, newest):
            if old.epoch in epochs or waiting & moved.before:
                before, after = (", ".join(sorted(topics)) for topics in (moved.before, moved.after))
                return (
                    f"{moved.changelog} is the changelog of a store that was fed by {before}, and is fed by {after} now. "
                    "Records in flight in a topic that both versions have would not reach it, or reach it twice. "
                    f"{NEW_WAYS}"
                )
    return None


NEW_WAYS = (
    "Give the repartition steps that feed it names that the old version does not have (name=): old members read their "
    "topics to the end then. Or stop the producers, let the old version read everything (streamsrt run --until quiet), "
    "stop all its instances, and start the new version afterwards."
)
"""What to do if a store is fed by another way."""


def _fed_by(part: Subtopology) -> frozenset[str]:
    return frozenset(topic.name for topic in part.repartition_sources)
