"""The topology of a streams group as its members describe it, as a value.

1. A topology is equal to another whatever the order of its subtopologies, topics, settings and co-partition groups.
2. ``check_topology`` refuses what no state of the topics could make right; what can still become right (a topic that
   is missing) is a status, found in ``configuration``.
3. Every partition of a source or changelog topic belongs to one task: no topic is a source, or a changelog, of two
   subtopologies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from streamsrt.assignment.topic_pattern import InvalidRegexError, compiled
from streamsrt.wire import types

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class InvalidTopologyError(Exception):
    """The application's topology violates a rule of KIP-1071. The text names the topic or index."""


class InternalTopic(NamedTuple):
    """A changelog or repartition topic as the application requests it; 0 partitions: the coordinator decides."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Subtopology:
    """One connected part of the topology; all tuples are sorted, co-partition groups hold topic names."""

    id: str
    source_topics: tuple[str, ...]
    source_patterns: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    copartition_groups: tuple[tuple[str, ...], ...]

    @property
    def input_topics(self) -> tuple[str, ...]:
        """User topics, then repartition topics that tasks of this subtopology read."""
        return self.source_topics + tuple(topic.name for topic in self.repartition_sources)

    @property
    def own_changelogs(self) -> tuple[str, ...]:
        """Changelogs, except source topics that serve as one: those keep the partition count given by their owner."""
        return tuple(topic.name for topic in self.changelogs if topic.name not in self.source_topics)

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)

    @property
    def resources(self) -> tuple[frozenset[str], frozenset[str]]:
        """Topics, and patterns of topics, whose partition p belongs to task p alone: inputs and changelogs."""
        return frozenset(self.input_topics + self.source_patterns), frozenset(topic.name for topic in self.changelogs)


@dataclass(frozen=True, slots=True)
class Topology:
    """The topology with its epoch; subtopologies sorted by id. ``program``: what its members say of the operators between
    the topics (``TOPOLOGY_DIGEST`` of :mod:`streamsrt.wire.client_tags`); empty if they say nothing, as Java's."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]
    program: str = ""

    def has_same_metadata(self, other: Topology) -> bool:
        return self.subtopologies == other.subtopologies

    def is_same_version(self, other: Topology) -> bool:
        """Whether both have the same topics, stores and operators, as far as both tell the latter."""
        is_told = bool(self.program and other.program)
        return self.has_same_metadata(other) and not (is_told and self.program != other.program)

    def topics(self) -> set[str]:
        """Names of all topics that tasks read or log to."""
        return {
            name
            for subtopology in self.subtopologies
            for name in (*subtopology.input_topics, *(topic.name for topic in subtopology.changelogs))
        }

    def changed_since(self, older: Topology) -> frozenset[str]:
        """Ids of subtopologies of ``older`` whose tasks are not the same here: removed, or with other topics under the
        same id."""
        mine = {subtopology.id: subtopology.resources for subtopology in self.subtopologies}
        return frozenset(old.id for old in older.subtopologies if mine.get(old.id) != old.resources)


WireTopology = types.StreamsGroupHeartbeatRequest.Topology | types.StreamsGroupTopologyValue
WireSubtopology = types.StreamsGroupHeartbeatRequest.Subtopology | types.StreamsGroupTopologyValue.Subtopology
WireTopicInfo = types.StreamsGroupHeartbeatRequest.TopicInfo | types.StreamsGroupTopologyValue.TopicInfo


def topology_of(wire: WireTopology) -> Topology:
    """Converts a topology from a heartbeat or a record. Raises InvalidTopologyError for an index out of range."""
    parts = [_subtopology_of(part) for part in wire.subtopologies]
    return Topology(wire.epoch, tuple(sorted(parts, key=lambda part: part.id)))


def is_legal_topic(name: str) -> bool:
    """Whether a topic may have that name in Kafka."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def check_topology(topology: Topology) -> None:
    """Raises InvalidTopologyError with the first rule that the topology violates, with Kafka's message if there is one."""
    if topology.epoch < 0:
        raise InvalidTopologyError(f"Topology epoch {topology.epoch} is negative; it must be 0 or greater.")
    _check_ids(topology)
    for part in topology.subtopologies:
        _check_parts(part)
    _check_names(topology)
    _check_roles(topology)
    _check_owners(topology)
    _check_repartition_topics(topology)


def _subtopology_of(wire: WireSubtopology) -> Subtopology:
    changelogs: Iterable[WireTopicInfo] = wire.state_changelog_topics
    repartitions: list[WireTopicInfo] = list(wire.repartition_source_topics)
    return Subtopology(
        id=wire.subtopology_id,
        source_topics=tuple(sorted(set(wire.source_topics))),
        source_patterns=tuple(sorted(set(wire.source_topic_regex))),
        changelogs=tuple(sorted(map(_internal_topic, changelogs))),
        repartition_sinks=tuple(sorted(set(wire.repartition_sink_topics))),
        repartition_sources=tuple(sorted(map(_internal_topic, repartitions))),
        copartition_groups=tuple(sorted(_copartition_groups(wire, [topic.name for topic in repartitions]))),
    )


def _copartition_groups(wire: WireSubtopology, repartitions: list[str]) -> Iterator[tuple[str, ...]]:
    for group in wire.copartition_groups:
        names = {
            *_pick(wire.subtopology_id, "SourceTopics", wire.source_topics, group.source_topics),
            *_pick(wire.subtopology_id, "SourceTopicRegex", wire.source_topic_regex, group.source_topic_regex),
            *_pick(wire.subtopology_id, "RepartitionSourceTopics", repartitions, group.repartition_source_topics),
        }
        yield tuple(sorted(names))


def _pick(subtopology_id: str, field: str, names: list[str], indexes: list[int]) -> Iterator[str]:
    for index in indexes:
        if not 0 <= index < len(names):
            raise InvalidTopologyError(
                f"Index {index} in {field} of a co-partition group of subtopology {subtopology_id} is out of range: "
                f"the subtopology has {len(names)} {field}."
            )
        yield names[index]


def _internal_topic(wire: WireTopicInfo) -> InternalTopic:
    configs = tuple(sorted((config.key, config.value) for config in wire.topic_configs))
    return InternalTopic(wire.name, wire.partitions, wire.replication_factor, configs)


def _check_ids(topology: Topology) -> None:
    counts = Counter(part.id for part in topology.subtopologies)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InvalidTopologyError(f"Subtopology id {twice[0]} is used {counts[twice[0]]} times.")


def _check_parts(part: Subtopology) -> None:
    for pattern in part.source_patterns:
        try:
            compiled(pattern)
        except InvalidRegexError as error:
            raise InvalidTopologyError(
                f"SourceTopicRegex {pattern!r} of subtopology {part.id} is not a valid RE2 regular expression: {error}"
            ) from None
    if not part.input_topics and not part.source_patterns:
        raise InvalidTopologyError(f"No source topics found for subtopology {part.id}")
    for changelog in part.changelogs:
        if changelog.partitions != 0:
            raise InvalidTopologyError(
                f"Changelog topic {changelog.name} must have an undefined partition count, "
                f"but it is set to {changelog.partitions}."
            )
    for topic in part.repartition_sources:
        if topic.partitions < 0:
            raise InvalidTopologyError(f"Repartition topic {topic.name} has a partition count of {topic.partitions}.")


def _check_names(topology: Topology) -> None:
    names = topology.topics().union(*(part.repartition_sinks for part in topology.subtopologies))
    illegal = sorted(name for name in names if not is_legal_topic(name))
    if illegal:
        raise InvalidTopologyError(f"Topic names {', '.join(illegal)} are not valid topic names.")


def _check_roles(topology: Topology) -> None:
    """Checks that each topic has one kind: user source, repartition or changelog.

    But Kafka Streams lists a source topic that it restores a table from among the changelogs of the subtopology that reads
    it (``topology.optimization``).
    """
    sources = {name for part in topology.subtopologies for name in part.source_topics}
    reused = {t.name for part in topology.subtopologies for t in part.changelogs if t.name in part.source_topics}
    sinks = {name for part in topology.subtopologies for name in part.repartition_sinks}
    repartitions = {topic.name for part in topology.subtopologies for topic in part.repartition_sources}
    changelogs = {topic.name for part in topology.subtopologies for topic in part.changelogs}
    for kind, names, other_kind, others in (
        ("Repartition source topic", repartitions, "a source topic", sources),
        ("Repartition source topic", repartitions, "a changelog topic", changelogs),
        ("Changelog topic", changelogs - reused, "a source topic", sources),
        ("Changelog topic", changelogs, "a repartition sink topic", sinks),
    ):
        both = sorted(names & others)
        if both:
            raise InvalidTopologyError(f"{kind} {both[0]} is also {other_kind} of the topology.")


def _check_owners(topology: Topology) -> None:
    owners: dict[str, str] = {}
    for part in topology.subtopologies:
        for name in {*part.input_topics, *(topic.name for topic in part.changelogs)}:
            if name in owners:
                raise InvalidTopologyError(
                    f"Topic {name} belongs to subtopologies {owners[name]} and {part.id}: two tasks would share "
                    "each of its partitions."
                )
            owners[name] = part.id


def _check_repartition_topics(topology: Topology) -> None:
    """Checks that each repartition topic has a writer, and a count that follows from topics outside of loops.

    A loop as such is right: a subtopology may write a topic that it reads itself, as the foreign-key join of two tables
    does that are joined by key, too. It has no count where nothing enters it.
    """
    writers: dict[str, list[Subtopology]] = {}
    for part in topology.subtopologies:
        for name in part.repartition_sinks:
            writers.setdefault(name, []).append(part)
    pending: set[str] = set()
    for part in topology.subtopologies:
        for topic in part.repartition_sources:
            if topic.name not in writers:
                raise InvalidTopologyError(
                    "Failed to compute number of partitions for all repartition topics, because a repartition source "
                    f"topic is never used as a sink topic. ({topic.name})"
                )
            if topic.partitions == 0:
                pending.add(topic.name)
    while pending:
        reached = {name for name in pending if any(_has_known_input(part, pending) for part in writers[name])}
        if not reached:
            raise InvalidTopologyError(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                f"that cannot be resolved. ({', '.join(sorted(pending))})"
            )
        pending -= reached


def _has_known_input(part: Subtopology, pending: set[str]) -> bool:
    return bool(part.source_patterns) or any(name not in pending for name in part.input_topics)
