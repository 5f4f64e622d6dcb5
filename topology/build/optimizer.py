"""The optimiser: passes that change the graph without changing what it computes, each switched on by its name.

``topology.optimization`` is ``none``, ``all``, or some of these, with commas:

1. ``reuse.ktable.source.topics``: the store of ``table(topic)`` has no changelog; the topic is one already.
2. ``merge.repartition.topics``: if several operators after one change of the key need the records repartitioned, the
   records are repartitioned only once, as for the first of these operators. Steps between the change and the repartition
   topic that change neither keys nor values (filters, peeks, merges, branches) then run after it. A stream is repartitioned
   by itself if it is merged with others that this topic would not have.
3. ``single.store.self.join``: a stream that is joined with itself stores its records once.

Names of steps stay the same; those of a merged repartition are derived from its topic. Another setting gives another
topology, with other topics: changing it in a running application loses state (Kafka Streams: reset the application
first).

Source: InternalStreamsBuilder of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace

from topology.build.materialize import refuse_version
from topology.build.plan import OperatorStep, RepartitionStep, SplitStep, Step, StreamJoinStep, TableSourceStep
from topology.build.unfinished import UnfinishedTopology
from topology.graph.operations.joins import StreamSelfJoin, StreamStreamJoin
from topology.graph.operations.traits import ResultsPerRecord, needs_repartition, traits_of
from topology.graph.settings import OPTIMIZATION_KEY
from topology.graph.store_kinds import Limit, store_traits
from topology.spec.errors import TopologyError

REUSE_SOURCE_TOPICS = "reuse.ktable.source.topics"
MERGE_REPARTITION_TOPICS = "merge.repartition.topics"
SINGLE_STORE_SELF_JOIN = "single.store.self.join"
OPTIMIZATIONS = (REUSE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN)


def optimizations(config: Mapping[str, object]) -> frozenset[str]:
    """What the application's configuration switches on. Raises TopologyError for a name that there is not."""
    names = [name.strip() for name in str(config.get(OPTIMIZATION_KEY, "none")).split(",")]
    if names == ["none"] or names == [""]:
        return frozenset()
    if names == ["all"]:
        return frozenset(OPTIMIZATIONS)
    unknown = [name for name in names if name not in OPTIMIZATIONS]
    if unknown:
        raise TopologyError(
            f"{OPTIMIZATION_KEY}={','.join(names)}: {unknown[0]!r} can't be switched on. Give none, all, or some of "
            f"{', '.join(OPTIMIZATIONS)} with commas"
        )
    return frozenset(names)


# -------------------------------------------------------------------------------------------------------------- passes


def reuse_source_topics(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Tables' stores have their source topic for a changelog."""
    if REUSE_SOURCE_TOPICS not in optimizations(unfinished.config):
        return unfinished
    return replace(
        unfinished, steps=tuple(_reusing(s) if isinstance(s, TableSourceStep) else s for s in unfinished.steps)
    )


def _reusing(step: TableSourceStep) -> TableSourceStep:
    store = step.table.store
    if store is None or store_traits(store.spec).limit is Limit.LAST_UPDATE:
        # Its source topic does not know what has expired.
        return step
    refuse_version(store.spec)
    spec = replace(store.spec, source_topic=step.topics[0], logging=False, changelog_configs=())
    reusing = copy(step)
    reusing.table = replace(step.table, store=replace(store, spec=spec))
    return reusing


def merge_repartitions(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """Operators behind one change of the key share a repartition topic."""
    if MERGE_REPARTITION_TOPICS not in optimizations(unfinished.config):
        return unfinished
    graph = _Graph(unfinished)
    for changer, repartitions in _behind_changes(graph).items():
        if repartitions:
            graph.merge(changer, repartitions)
    return graph.unfinished()


def _behind_changes(graph: _Graph) -> dict[str, list[str]]:
    """For each step that changes keys the repartitions that it makes necessary; a merge stands for those before it.

    A repartition behind a merge stays where it is unless all that is merged would be repartitioned.
    """
    behind: dict[str, list[str]] = {name: [] for name in graph.names if graph.changes_keys(name)}
    for name in graph.names:
        step = graph.steps[name]
        if isinstance(step, RepartitionStep) and step.is_mergeable:
            changer = graph.nearest(name, lambda other: not graph.keeps_records(other))
            if changer in behind and changer == graph.nearest(name, graph.changes_keys):
                behind[changer].append(name)
    merges = [name for name in graph.names if graph.is_merge(name)]
    over: dict[str, list[str]] = {
        merge: [
            changer
            for changer, repartitions in behind.items()
            if all(graph.way(name, merge) for name in repartitions) and graph.way(merge, changer)
        ]
        for merge in merges
    }
    for merge, changers in over.items():
        behind[merge] = list(dict.fromkeys(name for changer in changers for name in behind[changer]))
    for changer in {changer for changers in over.values() for changer in changers}:
        del behind[changer]
    taken: set[str] = set()
    for place in reversed(list(behind)):
        behind[place] = [
            name for name in behind[place] if name not in taken and graph.stands_before_all_of(name, place)
        ]
        taken.update(behind[place])
    return behind


def single_store_self_joins(unfinished: UnfinishedTopology) -> UnfinishedTopology:
    """An inner join of a stream with itself keeps the stream's records in one store."""
    if SINGLE_STORE_SELF_JOIN not in optimizations(unfinished.config):
        return unfinished
    by_name = {step.name: step for step in unfinished.steps}
    gone: set[str] = set()
    for step in unfinished.steps:
        rewritten = _self_join(step, unfinished.merged) if isinstance(step, StreamJoinStep) else None
        if rewritten is not None:
            by_name[step.name] = rewritten
            gone.add(step.parents[1].name)
    steps = [copy(by_name[step.name]) for step in unfinished.steps if step.name not in gone]
    copies = {step.name: step for step in steps}
    for step in steps:
        step.parents = tuple(copies.get(parent.name, parent) for parent in step.parents)
    return replace(unfinished, steps=tuple(steps))


def _self_join(step: StreamJoinStep, merged: Mapping[str, str]) -> OperatorStep | None:
    """The step that takes the place of a join whose sides are one stream; None where they are not."""
    this, other = step.parents
    above = {merged.get(parent.name, parent.name) for window in (this, other) for parent in window.parents}
    join = step.this_operation
    if len(above) > 1 or step.own_stores or not isinstance(join, StreamStreamJoin) or join.emits_unmatched:
        return None
    if this.late is not None or other.late is not None:
        return None
    assert isinstance(this, OperatorStep)
    (kept,) = this.own_stores
    operation = StreamSelfJoin(
        store=kept.name,
        joiner=join.joiner,
        time=join.time,
        before_ms=join.before_ms,
        after_ms=join.after_ms,
        retention_ms=kept.spec.retention_ms or 0,
        with_key=join.with_key,
    )
    return OperatorStep(
        name=step.name,
        site=step.site,
        parents=(this,),
        order=step.order,
        operation=operation,
        stores=(kept.name,),
    )


class _Graph:
    """Steps by name with their parents, while they are put elsewhere. The steps of the plan stay as they are."""

    def __init__(self, unfinished: UnfinishedTopology) -> None:
        self._draft = unfinished
        self._merged = dict(unfinished.merged)
        self.steps = {step.name: copy(step) for step in unfinished.steps}
        first_added = {step.name: index for index, step in enumerate(unfinished.plan.steps)}
        self.names = sorted(self.steps, key=lambda name: first_added[name])
        self.parents = {
            step.name: [self._merged.get(parent.name, parent.name) for parent in step.parents]
            for step in unfinished.steps
        }
        for step in self.steps.values():
            step.order *= 2

    def changes_keys(self, name: str) -> bool:
        step = self.steps[name]
        if not isinstance(step, OperatorStep):
            return False
        operation = step.operation
        return needs_repartition(operation)

    def keeps_records(self, name: str) -> bool:
        step = self.steps[name]
        if isinstance(step, RepartitionStep | SplitStep):
            return True
        return isinstance(step, OperatorStep) and traits_of(step.operation).results in {
            ResultsPerRecord.PASSED,
            ResultsPerRecord.SAME,
        }

    def is_merge(self, name: str) -> bool:
        step = self.steps[name]
        passes = isinstance(step, OperatorStep) and traits_of(step.operation).results is ResultsPerRecord.PASSED
        return passes and len(step.parents) > 1

    def nearest(self, name: str, matches: Callable[[str], bool]) -> str | None:
        """The nearest step at or above ``name`` that matches; of several parents the last one's, as in Kafka Streams."""
        return name if matches(name) else self._nearest_above(name, matches, {})

    def _nearest_above(self, name: str, matches: Callable[[str], bool], known: dict[str, str | None]) -> str | None:
        # Each step once: the number of ways through merges of a stream with a part of itself doubles with each of them.
        if name not in known:
            found: str | None = None
            for parent in self.parents[name]:
                if matches(parent):
                    found = parent
                    break
                found = self._nearest_above(parent, matches, known)
            known[name] = found
        return known[name]

    def way(self, name: str, above: str) -> str | None:
        """The child of ``above`` over which ``name`` is reached; ``name`` itself where it is the child."""
        return self.nearest(name, lambda other: above in self.parents[other])

    def between(self, name: str, place: str) -> set[str]:
        """The steps on all ways up from ``name`` as far as ``place``, without these two."""
        found: set[str] = set()
        waiting = list(self.parents[name])
        while waiting:
            step = waiting.pop()
            if step != place and step not in found:
                found.add(step)
                waiting += self.parents[step]
        return found

    def stands_before_all_of(self, name: str, place: str) -> bool:
        """Whether all that reaches ``name`` comes through ``place``, and is not changed on the way."""
        return all(self.parents[step] and self.keeps_records(step) for step in self.between(name, place))

    def merge(self, changer: str, repartitions: list[str]) -> None:
        """Puts one repartition behind ``changer`` in the place of several."""
        replaced = [step for name in repartitions if isinstance(step := self.steps[name], RepartitionStep)]
        first, topic = replaced[0], replaced[0].topic
        moved = set().union(*(self.between(name, changer) for name in repartitions))
        others = self.parents.keys() - moved - set(repartitions)
        has_other_readers = any(not moved.isdisjoint(self.parents[name]) for name in others)
        shared = RepartitionStep(
            name=f"{topic}-source",
            site=first.site,
            parents=(self.steps[changer],),
            order=self.steps[changer].order + 1,
            topic=topic,
            sink_name=f"{topic}-sink",
            filter_name=f"{topic}-filter",
            key=next((step.key for step in replaced if step.key.serde is not None), first.key),
            value=next((step.value for step in replaced if step.value.serde is not None), first.value),
            # What else reads a step that comes behind the repartition now is not to miss records without a key.
            keeps_null_keys=has_other_readers,
        )
        for step in replaced:
            above = [shared.name if parent == changer else parent for parent in self.parents[step.name]]
            # Before the shared one is put anywhere: it may have the name of the first of these.
            del self.steps[step.name], self.parents[step.name]
            for name in list(self.parents):
                self._replace(name, step.name, above)
            self._merged[step.name] = shared.name
        for name in moved:
            self._replace(name, changer, [shared.name])
        self.steps[shared.name] = shared
        self.parents[shared.name] = [changer]

    def _replace(self, name: str, parent: str, by: list[str]) -> None:
        known = self.parents[name]
        if parent in known:
            at = known.index(parent)
            self.parents[name] = list(dict.fromkeys([*known[:at], *by, *known[at + 1 :]]))

    def unfinished(self) -> UnfinishedTopology:
        for name, step in self.steps.items():
            step.parents = tuple(self.steps[parent] for parent in self.parents[name])
        steps = sorted(self.steps.values(), key=_by_order)
        return replace(self._draft, steps=tuple(steps), merged=self._merged)


def _by_order(step: Step) -> int:
    return step.order
