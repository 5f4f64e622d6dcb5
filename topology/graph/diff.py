"""What happens to existing state when one version of a topology replaces another.

1. State belongs to a store's name and its changelog. A store that both versions have, with the same format, is *carried
   over*, whichever subtopology it is in now: what is on disk is not restored again. The name that counts is the one
   under which the state was created: a renamed store keeps the changelog and files of its former name.
2. A store that is new to the application, or whose changelog has another name, starts empty. It is *rebuilt* from the
   records that are read from now on, or by a backfill of the history. If its changelog has records of an earlier run, it is
   *resumed* instead (:mod:`topology.graph.new_state`).
3. A store or repartition topic that only the old version has is *orphaned*: its topic remains until someone deletes it.
4. A store with a later version of its values is carried over if it can read the existing ones. It can't be rolled back.
   So a topology that raises this version must not drop a repartition topic that the store's subtopology reads: only the
   old topology reads the records in flight there, and it can't read the store any more. A store with the same name but
   another format is *incompatible*: the new topology would misread the old values, so the store needs another name. Also
   incompatible are a store whose rows have windows of another meaning (:mod:`topology.graph.row_windows`), one whose
   changelog does not have as many partitions as its subtopology has tasks, one that is fed by another repartition topic
   while both versions have one of these, and a repartition topic with another number of
   partitions or other serdes, as far as they are known.
5. A generated name says nothing about the contents. A store whose generated name stands for something else now
   (:mod:`topology.graph.origins`) is incompatible: the new version would take one table's rows for another's. A given
   name is taken at its word: what is fed from elsewhere is carried over, and said. It is incompatible only where it is
   certain that its rows are another one's: the sides of a join, or two names, have changed places.
6. Stream times are committed with the offsets of a task's inputs, not with its stores. A windowed operator, or a store with
   a ``ttl``, whose tasks share no input with the old ones starts without its stream time, which is said.
7. The topology epoch is raised by one whenever the digests differ, and only then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, TypeAlias

from topology.graph.misread import (
    DEFAULT_PARTITIONER,
    OWN_PARTITIONER,
    PARTITIONER,
    VALUE_SERDE,
    ComparedState,
    KeptVersions,
    Misread,
    kept_by,
)
from topology.graph.new_state import NOTHING_FOUND, PATTERN, FoundTopics, new_state
from topology.graph.operations.traits import TRAITS, ObservedTime
from topology.graph.origins import Origin
from topology.graph.outline import NOT_WRITTEN, StoreOutline, SubtopologyOutline, TopologyOutline
from topology.graph.partitions import Partitions, partitions_needed
from topology.graph.row_windows import misread_windows, partial_windows
from topology.graph.same_tasks import have_same_tasks, is_described

Fate: TypeAlias = Literal["carried over", "resumed", "rebuilt", "orphaned", "incompatible"]


class Verdict(IntEnum):
    """The worst of what was found; also the exit code of ``streamsrt topology diff``."""

    SAME = 0
    CARRIED_OVER = 10
    REBUILT_OR_ORPHANED = 11
    INCOMPATIBLE = 12


@dataclass(frozen=True, slots=True)
class StateChange:
    """What happens to one store or repartition topic, and why.

    ``cure``: what helps if state starts empty or is left behind; APP stands for the application id. ``topics``: where
    the records are that it is about, internal ones as they are called in the topology. ``read_anew``: those of them
    that a store that starts empty reads from their start, because nobody has read them before.
    """

    kind: Literal["store", "repartition topic"]
    name: str
    fate: Fate
    reason: str
    cure: str = ""
    topics: tuple[str, ...] = ()
    read_anew: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubtopologyChange:
    """What happens to one subtopology: ``same``, ``changed``, ``new`` or ``gone``.

    ``same``: its tasks are the same tasks and stay where they are, whatever its steps are. ``has_other_steps``: its steps
    or formats differ; False where that is not known.
    """

    id: str
    change: Literal["same", "changed", "new", "gone"]
    number_before: int | None
    number_after: int | None
    has_other_steps: bool = False

    @property
    def why(self) -> str:
        """What else differs."""
        before, after = self.number_before, self.number_after
        number = f"number {before} -> {after}" if None not in (before, after) and before != after else ""
        steps = "other steps or formats, the same tasks" if self.change == "same" and self.has_other_steps else ""
        return ", ".join(filter(None, (number, steps)))


@dataclass(frozen=True, slots=True)
class SourceChange:
    """Whether a source topic is read by both versions (``same``), by the new one only, or not any more."""

    name: str
    change: Literal["same", "new", "gone"]


@dataclass(frozen=True, slots=True)
class TopologyDiff:
    """The comparison of two versions. ``epoch_needed`` is what the new version has to run with."""

    subtopologies: tuple[SubtopologyChange, ...]
    state: tuple[StateChange, ...]
    epoch_before: int
    epoch_needed: int
    verdict: Verdict
    sources: tuple[SourceChange, ...] = ()

    @property
    def kept_otherwise(self) -> tuple[str, ...]:
        """What to know of state that is carried over, a sentence each. Digests don't cover all of it, such as the serdes
        of upcasts, so there may be some for the same topology."""
        kept = (each for each in self.state if each.fate == "carried over" and each.reason)
        return tuple(f"{each.kind} {each.name}: {each.reason}" for each in kept)


@dataclass(frozen=True, slots=True)
class ClusterTopics:
    """How many partitions topics have: ``sources`` by name, ``internal`` by name without the application id. ``found``: what
    else a new store finds there."""

    sources: Mapping[str, int] = field(default_factory=dict)
    internal: Mapping[str, int] = field(default_factory=dict)
    found: FoundTopics = NOTHING_FOUND


def diff(
    old: TopologyOutline,
    new: TopologyOutline,
    topics: ClusterTopics | None = None,
    kept: ComparedState | None = None,
) -> TopologyDiff:
    """Compares two versions of an application's topology. ``topics``: those of its cluster, as far as they are known.
    ``kept``: what both keep, if the outline of the old one does not say it: what running instances tell."""
    compared = _Compared(old, new, topics or ClusterTopics(), kept or KeptVersions(kept_by(old), kept_by(new)))
    state = (*compared.stores(), *compared.repartition_topics())
    if any(change.fate == "incompatible" for change in state):
        verdict = Verdict.INCOMPATIBLE
    elif old.digest == new.digest:
        verdict = Verdict.SAME
    elif any(change.fate != "carried over" for change in state):
        verdict = Verdict.REBUILT_OR_ORPHANED
    else:
        verdict = Verdict.CARRIED_OVER
    return TopologyDiff(
        subtopologies=tuple(_subtopologies(old, new)),
        state=state,
        epoch_before=old.epoch,
        epoch_needed=old.epoch if old.digest == new.digest else old.epoch + 1,
        verdict=verdict,
        sources=tuple(_sources(old, new)),
    )


def _sources(old: TopologyOutline, new: TopologyOutline) -> Iterator[SourceChange]:
    named = {topic for version in (old, new) for part in version.subtopologies for topic in part.source_topics}
    for topic in sorted(named):
        was, is_ = (each.reads_source(topic) for each in (old, new))
        yield SourceChange(topic, "same" if was and is_ else "new" if is_ else "gone")


def _subtopologies(old: TopologyOutline, new: TopologyOutline) -> Iterator[SubtopologyChange]:
    before: dict[str, SubtopologyOutline] = {each.id: each for each in old.subtopologies}
    for each in new.subtopologies:
        known = before.pop(each.id, None)
        if known is None:
            yield SubtopologyChange(each.id, "new", None, each.number)
        else:
            change: Literal["same", "changed"] = "same" if have_same_tasks(known, old, each, new) else "changed"
            differs = not is_described(known) and known.digest != each.digest
            yield SubtopologyChange(each.id, change, known.number, each.number, has_other_steps=differs)
    for gone in before.values():
        yield SubtopologyChange(gone.id, "gone", gone.number, None)


class _Compared:
    """Two versions, with the partitions that their topics have or need."""

    def __init__(self, old: TopologyOutline, new: TopologyOutline, topics: ClusterTopics, kept: ComparedState) -> None:
        self._old, self._new = old, new
        self._there = topics.internal
        self._found = topics.found
        self._kept = kept
        self._before = partitions_needed(old, topics.sources)
        self._after = partitions_needed(new, topics.sources)

    def stores(self) -> Iterator[StateChange]:
        before = {store.kept_as: store for store in self._old.stores}
        for store in self._new.stores:
            known = before.pop(store.kept_as, None)
            fate, reason = ("rebuilt", None) if known is None else self._fate(known, store)
            if fate == "rebuilt":
                found = new_state(store, reason, self._old, self._new, self._found)
                yield StateChange("store", store.name, *found)
            else:
                yield StateChange("store", store.name, fate, reason or "")
        for gone in before.values():
            if gone.changelog == gone.own_changelog:
                reason = f"gone: its changelog {gone.changelog} stays until it is deleted"
                cure = f"streamsrt topics delete APP-{gone.changelog} --execute"
                yield StateChange("store", gone.name, "orphaned", reason, cure, (gone.changelog,))
            else:
                reason = f"gone: its changelog was the source topic {gone.changelog}" if gone.changelog else _UNLOGGED
                yield StateChange("store", gone.name, "orphaned", reason)

    def _fate(self, old: StoreOutline, new: StoreOutline) -> tuple[Fate, str | None]:
        wrong = self._kept.misread(new.kept_as)
        if wrong is not None:
            return "incompatible", self._why_misread(wrong, old, new)
        moved = self._moved_feed(old, new)
        if moved:
            return "incompatible", moved
        if old.changelog != new.changelog and new.has_source_topic:
            return "carried over", (
                f"its changelog was {old.changelog or 'none'}, and is its source topic {new.changelog}: it is restored with "
                "what the group has read of that, as far as the topic still has it"
            )
        if old.changelog != new.changelog:
            return (
                "rebuilt",
                f"its changelog was {old.changelog or 'none'} and is {new.changelog or 'none'}: it starts empty",
            )
        notes = (
            self._fed_otherwise(old, new),
            partial_windows(*self._kept.row_windows(new.kept_as)),
            self._without_stream_time(old, new),
            *self._placed_otherwise(old, new),
        )
        said = [each for each in notes if each]
        return self._partitions_of(old, new) or _carried_over(old, new, said)

    def _moved_feed(self, old: StoreOutline, new: StoreOutline) -> str:
        """Why records in flight would not reach a store, or reach it twice; empty if all do. The group has the same rule
        (``streamsrt.assignment.in_flight``)."""
        if old.changelog != old.own_changelog or old.changelog != new.changelog:
            return ""
        feeds = [
            next((set(part.repartition_source_topics) for part in version.subtopologies if name in part.stores), set())
            for version, name in ((self._old, old.name), (self._new, new.name))
        ]
        before, after = feeds[0] - feeds[1], feeds[1] - feeds[0]
        both = self._old.repartition_topics.keys() & self._new.repartition_topics.keys()
        if not before or not after or not both & (before | after):
            return ""
        return (
            f"it was fed by repartition topic {', '.join(sorted(before))}, and is fed by {', '.join(sorted(after))}: "
            "records in flight in one that both versions have would not reach it, or reach it twice. Give the "
            "repartition steps that feed it names that the old version does not have (name=), or stop the producers, let "
            "the old version read everything, stop all its instances, and start the new version afterwards"
        )

    def _partitions_of(self, old: StoreOutline, store: StoreOutline) -> tuple[Fate, str] | None:
        """What is wrong with the partitions of a store's changelog."""
        had = self._there.get(store.own_changelog, _tasks_of(self._old, old.name, self._before))
        needs = _tasks_of(self._new, store.name, self._after)
        if had is None or needs is None or had == needs or store.changelog != store.own_changelog:
            return None
        return (
            "incompatible",
            f"partitions: its changelog has {had}, and its subtopology has {needs} tasks, one for each partition of its "
            f"largest input: {_cure_of_partitions(had, needs)}",
        )

    def _why_misread(self, wrong: Misread, old: StoreOutline, new: StoreOutline) -> str:
        match wrong.why:
            case "version" | "upcast":
                return values_not_read(old.version, new.version)
            case "format":
                return f"{', '.join(_changed_format(wrong, old, new))}: give the new store another name"
            case "windows":
                return misread_windows(*self._kept.row_windows(new.kept_as))
            case _:
                return self._why_another(wrong, old.name, new.name, "store")

    def _why_another(
        self, wrong: Misread, name: str, name_now: str, what: Literal["store", "repartition topic"]
    ) -> str:
        """Why a name now refers to something else."""
        before, after = self._old.origins.get(name), self._new.origins[name_now]
        if before is None:
            return self._why_another_runs(wrong, name, name_now, what)
        if wrong.why == "sides":
            return _sides_changed(before, after)
        if wrong.why == "swapped":
            other = next((store.name for store in self._old.stores if store.kept_as == wrong.other), wrong.other)
            return f"it was {before} and is {after}, and {other} the other way round: {SWAP_BACK}"
        now = next((each for each, origin in self._new.origins.items() if origin == before), None)
        found = f" (that is {now} now)" if now is not None else ""
        if name != name_now:
            return f"renamed_from={name} was another table: it was {before}{found}, and {name_now} is {after}"
        meaning = f"a generated name that means something else: it was {before}{found} and is {after}"
        if what != "store":
            return f"{meaning}: {NAME_REPARTITION}"
        return f"{meaning}. {name_both(name, before)}"

    def _why_another_runs(
        self, wrong: Misread, name: str, name_now: str, what: Literal["store", "repartition topic"]
    ) -> str:
        """The same, where running instances tell that the origin is another one, but not which."""
        after = self._new.origins[name_now]
        if wrong.why == "sides":
            kept, met = after.sides
            return f"{SIDES_CHANGED}: it would get records of {kept} now, joined with {met}. {KEEP_SIDES}"
        if wrong.why == "swapped":
            return f"it is {after} now, and was what is {wrong.other} now: {SWAP_BACK}"
        if name != name_now:
            return f"renamed_from={name} was another table, and {name_now} is {after}"
        meaning = f"a generated name that means something else: it was another table, and is {after}"
        return f"{meaning}: {NAME_REPARTITION}" if what != "store" else f"{meaning}. {name_both(name, after)}"

    def _fed_otherwise(self, old: StoreOutline, new: StoreOutline) -> str:
        """A note about a store that is kept with other inputs or keys; empty if there is none."""
        before, after = self._old.origins.get(old.name), self._new.origins.get(new.name)
        if after is None or not self._kept.is_fed_otherwise(new.kept_as):
            return ""
        if before is None:
            return f"other topics or steps fill it: it is {after} now, and the rows that it has stay. {_IF_ANOTHER}"
        return f"it was {before} and is {after}: the rows that it has stay. {_IF_ANOTHER}"

    def _without_stream_time(self, old: StoreOutline, new: StoreOutline) -> str:
        """A note about a store that is kept by an operator, or a task, that loses its stream time; empty if none is."""
        origin = self._new.origins.get(new.name)
        effects = []
        if origin is not None and _has_stream_time(origin):
            effects.append("late records can reopen closed windows and emit final results twice")
        if new.ttl_ms not in (None, NOT_WRITTEN):
            effects.append("late records stay in it beyond their ttl, until current ones come")
        if not effects:
            return ""
        before = next((_inputs(part) for part in self._old.subtopologies if old.name in part.stores), frozenset())
        after = next((_inputs(part) for part in self._new.subtopologies if new.name in part.stores), frozenset())
        if not before or any(_reads_same(one, other) for one in before for other in after):
            return ""
        return (
            f"its stream time was committed with the offsets of {', '.join(sorted(before))}, and it now reads "
            f"{', '.join(sorted(after))}: it starts without one, so {' and '.join(effects)}. Let late records pass before "
            "the upgrade"
        )

    def _placed_otherwise(self, old: StoreOutline, new: StoreOutline) -> Iterator[str]:
        """A note for each topic that the program writes and this store is filled from, where its partitioner is another
        one."""
        before, after = self._old.sink_partitioners or {}, self._new.sink_partitioners or {}
        for topic in sorted(before.keys() & after.keys() & self._fed_by(self._old, old) & self._fed_by(self._new, new)):
            one, other = before[topic], after[topic]
            versions = {code.partition(":")[0] for code in (*one, *other)}
            if one == other or len(versions) > 1:
                continue
            differs = "the code of the partitioner differs" if one and other else other_partitioner(is_own=bool(other))
            yield (
                f"{differs}, in the to(partitioner=) that writes {topic}. A record whose key goes to another partition than "
                "before does not find its row there. Keep the partitioner, or give the store another name: it starts empty"
            )

    def _fed_by(self, version: TopologyOutline, store: StoreOutline) -> set[str]:
        """The source topics of its subtopology that fill it, as far as it is known what does."""
        read = {topic for part in version.subtopologies if store.name in part.stores for topic in part.source_topics}
        origin = version.origins.get(store.name)
        return read if origin is None else read.intersection(origin.topics)

    def repartition_topics(self) -> Iterator[StateChange]:
        before = dict(self._old.repartition_topics)
        for name, partitions in self._new.repartition_topics.items():
            if name not in before:
                yield StateChange("repartition topic", name, "rebuilt", "new: the coordinator creates it")
                continue
            known = before.pop(name)
            had = self._there.get(name, self._before.repartition.get(name))
            needs = self._after.repartition.get(name)
            wrong = self._kept.misread(name)
            is_known = had is not None and needs is not None
            if known != partitions and not (is_known and had == needs):
                reason = (
                    f"partitions {known or 'derived'} -> {partitions or 'derived'}: give the repartition another name"
                )
                if not is_known:
                    now = known or partitions
                    reason += (
                        f". If the topic has {now} already, nothing changes: streamsrt topology diff --group APP knows"
                    )
                yield StateChange("repartition topic", name, "incompatible", reason)
            elif had is not None and needs is not None and had != needs:
                reason = f"partitions {had} -> {needs}, with its sources: {_cure_of_repartition(had, needs)}"
                yield StateChange("repartition topic", name, "incompatible", reason)
            elif wrong is not None:
                reason = (
                    f"{', '.join(self._changed_records(wrong, name))}: {cure_of_records(wrong)}"
                    if wrong.why == "format"
                    else self._why_another(wrong, name, name, "repartition topic")
                )
                yield StateChange("repartition topic", name, "incompatible", reason)
            else:
                yield StateChange("repartition topic", name, "carried over", self._other_partitioner(name))
        for name in before:
            raised = self._raised_beside(name)
            if raised:
                yield StateChange("repartition topic", name, "incompatible", _two_steps(raised))
                continue
            reason = "gone: unread records stay in it"
            cure = (
                "old instances read it to the end first: leave one running until streamsrt upgrade status --group APP shows "
                f"no unread records; then streamsrt topics delete APP-{name} --execute"
            )
            yield StateChange("repartition topic", name, "orphaned", reason, cure, (name,))

    def _other_partitioner(self, topic: str) -> str:
        """A note about a function that chooses partitions and was edited: whether it chooses others is not known."""
        before, after = (each.partitioners.get(topic, ()) for each in (self._old, self._new))
        versions = {code.partition(":")[0] for code in (*before, *after)}
        if not before or not after or before == after or len(versions) > 1:
            return ""
        return (
            "the code of its partitioner differs: if it names other partitions for keys that have rows, those are not "
            "found, and the stores behind it need other names"
        )

    def _changed_records(self, wrong: Misread, topic: str) -> Iterator[str]:
        """What differs of a repartition topic's records. Running instances tell hashes of the old serdes only."""
        before, after = self._old.repartition_serdes.get(topic), self._new.repartition_serdes.get(topic)
        for name in wrong.fields:
            if name == PARTITIONER:
                yield other_partitioner(is_own=bool(self._new.partitioners[topic]))
                continue
            side = name.removesuffix("_serde")
            now = getattr(after, side)
            yield f"{name} {getattr(before, side)} -> {now}" if before else f"{name} is {now} now, and was another one"

    def _raised_beside(self, topic: str) -> list[str]:
        """Stores with a raised value version in subtopologies that read a removed topic."""
        owned = {s for part in self._old.subtopologies if topic in part.repartition_source_topics for s in part.stores}
        had = {store.kept_as: store.version for store in self._old.stores if store.name in owned}
        return [store.name for store in self._new.stores if store.version > had.get(store.kept_as, store.version)]


NO_WAY_BACK = "The old version can't read what the new one writes: once it has written, there is no way back"
_NAME_JOIN = "give the join another store= (a foreign-key join: another name=): then it starts empty"
SIDES_CHANGED = "the sides of the join have changed places"
KEEP_SIDES = f"Keep the order of the sides, or {_NAME_JOIN}"
"""What to do if the sides of a join have changed places."""

_IF_ANOTHER = "If it is another table now, give it another name"
SWAP_BACK = "exchange the names again, or give the new ones other names"
NAME_REPARTITION = "name it (name=)"
RENAME_STEP = (
    "records in flight, and those that old and new instances write for each other, would be misread. Give the step that "
    "writes it another name (name=)"
)
"""What to do if a repartition topic has other serdes."""

_KEEP_PARTITIONER = (
    "keys would go to other partitions than their rows. Keep the partitioner, or give the step (name=) and the stores "
    "behind it other names: they start empty"
)

_UNLOGGED = "gone: it had no changelog"


_STREAM_TIMES: Mapping[str, ObservedTime] = {kind.__name__: row.stream_time for kind, row in TRAITS.items()}


def _sides_changed(before: Origin, after: Origin) -> str:
    (mine, other), (now, other_now) = before.sides, after.sides
    by = ", with other functions" if str(mine) == str(now) else ""
    return (
        f"{SIDES_CHANGED}: it had records of {mine}, joined with {other}, and would get "
        f"those of {now}, joined with {other_now}{by}. {KEEP_SIDES}"
    )


def name_both(name: str, before: Origin) -> str:
    """What to do if a generated store name, which was of this origin, stands for something else than before."""
    if before.sides:
        # What a join calls its stores is only begun by store=.
        return f"Keep the steps in front of it, or {_NAME_JOIN}"
    return f'Name both: the table that had this name keeps its state as store="{name}", the other one starts empty'


def other_partitioner(*, is_own: bool) -> str:
    """That the partitions of a repartition topic are chosen in another way now."""
    was, now = (DEFAULT_PARTITIONER, OWN_PARTITIONER) if is_own else (OWN_PARTITIONER, DEFAULT_PARTITIONER)
    return f"partitioner: it was {was}, and is {now}"


def cure_of_records(wrong: Misread) -> str:
    """What to do if the records of a repartition topic that stays would be misread, or be in other partitions."""
    cures = [RENAME_STEP] if set(wrong.fields) - {PARTITIONER} else []
    return ". ".join([*cures, *([_KEEP_PARTITIONER] if PARTITIONER in wrong.fields else [])])


def _two_steps(stores: list[str]) -> str:
    names = ", ".join(stores)
    return (
        f"removed, and the values of {names} get a later version: only the old version reads the records in flight "
        f"in this topic, and it can't read {names} once the new one has written to it. Do it in two upgrades: first "
        "drop or rename the repartition topic, then raise the version of the values"
    )


def _changed_format(wrong: Misread, old: StoreOutline, new: StoreOutline) -> Iterator[str]:
    for name in wrong.fields:
        after = getattr(new, name)
        if name == VALUE_SERDE:
            after = new.upcasts.get(str(old.version), after)
        yield f"{name} {getattr(old, name)} -> {after}"


def values_not_read(before: int, after: int) -> str:
    """Why values of one version can't be read by a store with another one."""
    if after < before:
        return (
            f"its values get version {before}, which version {after} can't read: once such values are written, there is no "
            "way back, and a later version has to continue. `streamsrt upgrade abort OLD` goes back if there are none"
        )
    return f"its values have version {before}, and there is no upcast={{{before}: ...}}: add it"


def _has_stream_time(origin: Origin) -> bool:
    """Whether what fills a store observes a stream time, which says what is late."""
    times = {_STREAM_TIMES.get(step, ObservedTime.NONE) for step in origin.filled_by}
    return ObservedTime.ALWAYS in times or (origin.windows is not None and ObservedTime.OF_WINDOWS in times)


def _inputs(part: SubtopologyOutline) -> frozenset[str]:
    patterns = (f"{PATTERN}{each}" for each in part.source_topic_patterns)
    return frozenset((*part.source_topics, *part.repartition_source_topics, *patterns))


def _reads_same(one: str, other: str) -> bool:
    """Whether two inputs may be the same topic: nobody knows what a pattern matches."""
    return one == other or one.startswith(PATTERN) or other.startswith(PATTERN)


def _tasks_of(topology: TopologyOutline, store: str, partitions: Partitions) -> int | None:
    owner = next((each for each in topology.subtopologies if store in each.stores), None)
    return None if owner is None else partitions.tasks.get(owner.id)


def _is_longer(before_ms: int | None, after_ms: int | None) -> bool:
    """Whether a changelog is to keep its records longer; -1: for ever."""
    assert before_ms is not None
    assert after_ms is not None
    return before_ms >= 0 and (after_ms < 0 or after_ms > before_ms)


def _renamed_or_upcast(old: StoreOutline, new: StoreOutline) -> Iterator[str]:
    if old.name != new.name:
        stays = "" if new.changelog is None else f", its changelog stays {new.changelog}"
        yield f"renamed from {old.name}{stays}"
    if old.version != new.version:
        yield f"values of version {old.version} become version {new.version} when they are read. {NO_WAY_BACK}"
    unread = [version for version in old.upcasts if version not in new.upcasts]
    if unread:
        yield f"values of version {', '.join(unread)} can no longer be read"
    for version, was in sorted(old.upcasts.items()):
        now = new.upcasts.get(version, was)
        if now != was:
            yield (
                f"the serde that reads values of version {version} is {now}, and was {was}: if such values are left, and "
                "their bytes are not the same with both, they are misread"
            )


_FOLLOWS = "stop all instances and run streamsrt state repartition MODULE:TOPOLOGY"


def _cure_of_partitions(had: int, needs: int) -> str:
    cure = f"repartition that to {had}, or give the new store another name"
    return f"{cure}. If the input has got more partitions: {_FOLLOWS}" if needs > had else cure


def _cure_of_repartition(had: int, needs: int) -> str:
    cure = "give the repartition another name"
    return f"{cure}. If the sources have got more partitions: {_FOLLOWS}" if needs > had else cure


def _ttl_changed(old: int | None, new: int | None) -> Iterator[str]:
    if old == new or NOT_WRITTEN in (old, new):
        return
    if new is None:
        yield f"the ttl of {old} ms ends: the entries that are there stay"
    elif old is None:
        yield f"it gets a ttl of {new} ms, from the last update of each entry that is there, too"
    else:
        yield f"ttl {old} -> {new} ms, from the last update of each entry that is there, too"


def _limit_changed(old: int | None, new: int | None) -> Iterator[str]:
    if old == new or NOT_WRITTEN in (old, new):
        return
    if new is None:
        yield f"the limit of {old} entries per partition ends: entries that were dropped do not come back"
    elif old is None or new < old:
        was = "had no limit" if old is None else f"had {old}"
        yield f"it keeps {new} entries per partition, and {was}: what is too much is deleted, from its changelog too"
    else:
        yield f"it keeps {new} entries per partition, and had {old}: entries that were dropped do not come back"


def is_restored_in_place(old: StoreOutline, new: StoreOutline) -> bool:
    """Whether a store that is carried over is restored from its changelog, also where its task stays."""
    return old.persistent != new.persistent or (new.persistent and _has_other_segments(old, new))


def _has_other_segments(old: StoreOutline, new: StoreOutline) -> bool:
    intervals = (old.segment_interval_ms, new.segment_interval_ms)
    return None not in intervals and intervals[0] != intervals[1]


def _carried_over(old: StoreOutline, new: StoreOutline, said: Iterable[str]) -> tuple[Fate, str]:
    reasons = [*said, *_renamed_or_upcast(old, new)]
    if old.persistent != new.persistent:
        return "carried over", "; ".join(
            [*reasons, "restored from its changelog, since it moves between memory and disk"]
        )
    if old.retention_ms != new.retention_ms:
        becomes = "expired records come back when the store is restored and its changelog still has them"
        if (new.retention_ms or 0) < (old.retention_ms or 0):
            becomes = "what is older expires"
        reasons.append(f"retention {old.retention_ms} -> {new.retention_ms} ms; {becomes}")
    reasons.extend(_ttl_changed(old.ttl_ms, new.ttl_ms))
    reasons.extend(_limit_changed(old.max_entries, new.max_entries))
    kept_ms = (old.changelog_retention_ms, new.changelog_retention_ms)
    if new.changelog is not None and None not in kept_ms and kept_ms[0] != kept_ms[1]:
        if _is_longer(*kept_ms):
            reasons.append(
                f"retention.ms of its changelog {kept_ms[0]} -> {kept_ms[1]}: the bundled broker raises it when the new "
                "version joins, on Apache Kafka alter the topic first"
            )
        else:
            reasons.append(f"its changelog continues to keep records for {kept_ms[0]} ms")
    if new.persistent and _has_other_segments(old, new):
        if new.changelog is None:
            return "rebuilt", "its segments differ, and it has no changelog: it starts empty"
        reasons.append("the segments of its files differ, so it is restored from its changelog")
    return "carried over", "; ".join(reasons)
