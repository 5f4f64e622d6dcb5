"""Which tasks of two versions of a topology conflict, and which of them change hands together.

1. A subtopology is the same in two versions if its id, what it reads and its changelogs are the same. Its tasks are the
   same tasks, whatever its operators are. But a subtopology that writes a repartition topic which a newer version does
   not have is a different one there: nobody would read what its tasks write. So is one that writes in the newer version
   what the older one does not have, if the topic's reader meets another version: what the old tasks read would not reach it.
2. Subtopologies of two versions meet if they are not the same and have the id, or a topic that both read or log to, in
   common. Tasks of theirs with the same partition are never active at once.
3. A bundle is a set of subtopologies that meet, directly or through others. For each of its partitions, the tasks of one
   version run. A subtopology that only an older version has is a bundle, too: it continues as long as members run that
   version.
4. A bundle that reads a repartition topic which another version does not have changes hands as a whole, together with
   the writers of the topic: otherwise records would wait in it, or stay in it, while partitions of both versions run. A
   new topic counts only if its reader meets another version.
5. A pattern meets each name that it matches, and each other pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from streamsrt.assignment.topic_pattern import compiled
from streamsrt.assignment.topology import Subtopology, Topology


class Part(NamedTuple):
    """A subtopology of one version."""

    epoch: int
    id: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """Subtopologies of which one version runs at a time. ``ids``: those of each version, by topology epoch."""

    ids: Mapping[int, frozenset[str]]
    is_whole: bool


class Versions:
    """The topologies that members of a group run: ``lead``, and ``older`` ones."""

    def __init__(self, lead: Topology, older: Sequence[Topology]) -> None:
        self.lead = lead
        self._topologies = (lead, *older)
        self._parts = {Part(topology.epoch, p.id): p for topology in self._topologies for p in topology.subtopologies}
        self._gone = _gone(self._topologies)
        self._coming = _coming(self._topologies, self._gone)
        self._meeting = _meeting(self._parts, self._gone, self._coming)
        self.bundles = tuple(self._bundles()) if older else ()

    def knows(self, epoch: int) -> bool:
        return any(topology.epoch == epoch for topology in self._topologies)

    def is_of_lead(self, epoch: int, subtopology_id: str) -> bool:
        """Whether the tasks of a subtopology of this version are tasks of the lead.

        The version may be one that is not known: who runs it has what was the same when a newer one came.
        """
        mine = self._parts.get(Part(self.lead.epoch, subtopology_id))
        if mine is None or not self.knows(epoch):
            return mine is not None
        theirs = self._parts.get(Part(epoch, subtopology_id))
        if theirs is None or theirs.resources != mine.resources:
            return False
        way = epoch, self.lead.epoch
        return epoch == self.lead.epoch or not (
            self._gone[way].intersection(theirs.repartition_sinks)
            or self._coming[way].intersection(mine.repartition_sinks)
        )

    def meeting(self, epoch: int, subtopology_id: str) -> frozenset[Part]:
        """Returns subtopologies of other versions that conflict with this one."""
        return self._meeting.get(Part(epoch, subtopology_id), frozenset())

    def _bundles(self) -> Iterator[Bundle]:
        union = _Union(self._parts)
        for part, others in self._meeting.items():
            union.join(part, *others)
        for part, found in self._parts.items():
            union.join(
                part, *(Part(t.epoch, part.id) for t in self._topologies if Part(t.epoch, part.id) in self._parts)
            )
            assert found.id == part.id
        between = list(self._between(union))
        for parts in between:
            union.join(*parts)
        whole = {union.root(parts[0]) for parts in between}
        for root, members in sorted(union.groups().items()):
            ids = {t.epoch: frozenset(part.id for part in members if part.epoch == t.epoch) for t in self._topologies}
            if root in whole or any(self._differs(epoch, ids) for epoch in ids):
                yield Bundle({epoch: names for epoch, names in ids.items() if names}, root in whole)

    def _differs(self, epoch: int, ids: Mapping[int, frozenset[str]]) -> bool:
        """Whether this version has subtopologies in the bundle that differ from the lead's."""
        mine = ids[self.lead.epoch]
        return bool(ids[epoch]) and (ids[epoch] != mine or not all(self.is_of_lead(epoch, name) for name in mine))

    def _between(self, union: _Union) -> Iterator[list[Part]]:
        """Yields reader and writers of each repartition topic that only some versions have, if its reader conflicts with
        others."""
        repartitions = [
            {topic.name for part in topology.subtopologies for topic in part.repartition_sources}
            for topology in self._topologies
        ]
        everywhere = set.intersection(*repartitions)
        sizes = {root: {part.epoch for part in members} for root, members in union.groups().items()}
        for topology in self._topologies:
            for reader in topology.subtopologies:
                part = Part(topology.epoch, reader.id)
                for name in {topic.name for topic in reader.repartition_sources} - everywhere:
                    if len(sizes[union.root(part)]) > 1 or self._has_gone(name, topology.epoch):
                        writers = (p.id for p in topology.subtopologies if name in p.repartition_sinks)
                        yield [part, *(Part(topology.epoch, writer) for writer in writers)]

    def _has_gone(self, name: str, epoch: int) -> bool:
        return epoch != self.lead.epoch and name in self._gone[epoch, self.lead.epoch]


@lru_cache(maxsize=64)
def versions_of(lead: Topology, older: tuple[Topology, ...]) -> Versions:
    """Computes :class:`Versions`, once per input."""
    return Versions(lead, older)


class _Union:
    """Disjoint sets of parts."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._above = {part: part for part in parts}

    def root(self, part: Part) -> Part:
        while self._above[part] != part:
            self._above[part] = part = self._above[self._above[part]]
        return part

    def join(self, first: Part, *others: Part) -> None:
        for other in others:
            one, two = sorted((self.root(first), self.root(other)))
            self._above[two] = one

    def groups(self) -> dict[Part, list[Part]]:
        found: dict[Part, list[Part]] = {}
        for part in self._above:
            found.setdefault(self.root(part), []).append(part)
        return found


def _gone(topologies: Iterable[Topology]) -> dict[tuple[int, int], frozenset[str]]:
    """Returns repartition topics that one version has and another does not, by their epochs."""
    reads = {
        each.epoch: frozenset(topic.name for part in each.subtopologies for topic in part.repartition_sources)
        for each in topologies
    }
    return {(one, other): reads[one] - reads[other] for one in reads for other in reads}


def _coming(
    topologies: Iterable[Topology], gone: Mapping[tuple[int, int], frozenset[str]]
) -> dict[tuple[int, int], frozenset[str]]:
    """Returns repartition topics that the second version has and the first does not, by their epochs, if a subtopology that
    reads one has the id, an input or a changelog of one of the first."""
    versions = list(topologies)
    names = {each.epoch: each.topics().union(part.id for part in each.subtopologies) for each in versions}
    return {
        (first.epoch, second.epoch): frozenset(
            topic.name
            for part in second.subtopologies
            for topic in part.repartition_sources
            if topic.name in gone[second.epoch, first.epoch]
            and not names[first.epoch].isdisjoint((part.id, *part.input_topics, *(log.name for log in part.changelogs)))
        )
        for first in versions
        for second in versions
    }


def _meeting(
    parts: Mapping[Part, Subtopology],
    gone: Mapping[tuple[int, int], frozenset[str]],
    coming: Mapping[tuple[int, int], frozenset[str]],
) -> dict[Part, frozenset[Part]]:
    by_name: dict[str, set[Part]] = {}
    patterns: dict[str, set[Part]] = {}
    for part, found in parts.items():
        for name in (*found.input_topics, *(topic.name for topic in found.changelogs)):
            by_name.setdefault(name, set()).add(part)
        for pattern in found.source_patterns:
            patterns.setdefault(pattern, set()).add(part)
    by_id: dict[str, set[Part]] = {}
    for part in parts:
        by_id.setdefault(part.id, set()).add(part)
    crowds = [*by_name.values(), *by_id.values()]
    for pattern, those in patterns.items():
        matches = compiled(pattern)
        crowds += [those | others for name, others in by_name.items() if matches(name)]
    if patterns:
        crowds.append(set.union(*patterns.values()))
    met: dict[Part, set[Part]] = {}
    for crowd in crowds:
        for part in crowd if len(crowd) > 1 else ():
            met.setdefault(part, set()).update(
                other
                for other in crowd
                if other.epoch != part.epoch and not _is_same(part, parts[part], other, parts[other], gone, coming)
            )
    return {part: frozenset(others) for part, others in met.items() if others}


def _is_same(
    part: Part,
    one: Subtopology,
    met: Part,
    other: Subtopology,
    gone: Mapping[tuple[int, int], frozenset[str]],
    coming: Mapping[tuple[int, int], frozenset[str]],
) -> bool:
    if one.id != other.id or one.resources != other.resources:
        return False
    older, newer = (one, other) if part.epoch < met.epoch else (other, one)
    way = min(part.epoch, met.epoch), max(part.epoch, met.epoch)
    return gone[way].isdisjoint(older.repartition_sinks) and coming[way].isdisjoint(newer.repartition_sinks)
