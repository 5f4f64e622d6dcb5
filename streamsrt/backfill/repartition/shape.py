"""Which subtopologies and stores are affected, and what in the topology or its topics prevents the move.

1. The group coordinator's own function computes how many partitions topics need, as if no internal topics existed yet.
2. A subtopology is affected if one of its changelogs has fewer partitions than it needs, or if a mark says that its move
   has begun. All its stores move together.
3. Its inputs must have equal counts: otherwise records of one key would be processed in several places.
4. A subscription of a foreign-key join contains the partition of its left row. If the left table moves, subscriptions are
   rewritten, even those that stay in their partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from streamsrt.assignment.configuration import Configuration, configure
from streamsrt.assignment.topics import TopicImage, TopicsImage
from streamsrt.assignment.topology import Subtopology as AssignedPart
from streamsrt.assignment.topology import topology_of
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.planned_application import subtopology_id
from streamsrt.backfill.repartition.partitioners import Placements, Placing
from streamsrt.backfill.repartition.placement import (
    Closing,
    KeyOf,
    closings_of,
    has_closed_marks,
    has_own_keys,
    key_of_rows,
    refusal_of,
    whole_key_of_rows,
)
from streamsrt.client.values import OffsetAndMetadata, TopicInfo, TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.membership.topology_metadata import topology_metadata
from streamsrt.tasks.input.offset_metadata import parse_moving
from streamsrt.wording import counted
from topology.graph.join_sides import topics_of_other_side
from topology.graph.nodes import StoreSpec, Subtopology, internal_topic_name, internal_topic_names
from topology.graph.topology import Topology

_UNLESS = (
    "or run it under another application id, with state from streamsrt backfill, which gets the records from before as a "
    "lake without partitions (--lake, --lake-until), or with empty state"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedStore:
    """A store whose rows are looked at. ``existing``: partitions of its changelog now. ``counts``: by which its rows may
    lie, the oldest first; ``after``: by which they lie in the end. ``has_own_keys``: the program chooses the keys, which
    need not be those of its records. ``placing``: where the program's partitioners place records; None: the default one
    does. ``has_marks``: it has no rows of records, but says for each partition up to when windows were closed.
    ``primary_counts``, ``primary_after``, ``primary_placing``: the same for the left rows of its subscriptions; none if it
    has none, or if those stay where they are."""

    store: str
    changelog: str
    existing: int
    counts: tuple[int, ...]
    after: int
    key_of: KeyOf
    whole_key_of: KeyOf
    placing: Placing | None = None
    has_own_keys: bool = False
    has_marks: bool = False
    closings: tuple[Closing, ...] = ()
    primary_counts: tuple[int, ...] = ()
    primary_after: int = 0
    primary_placing: Placing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPart:
    """A subtopology that is concerned. ``inputs``: its topics, of which ``sources`` are not internal."""

    id: str
    subtopology: Subtopology
    inputs: tuple[str, ...]
    sources: tuple[str, ...]
    counts: tuple[int, ...]
    after: int

    def inputs_after(self) -> list[TopicPartition]:
        """All partitions of its inputs."""
        return [(topic, partition) for topic in self.inputs for partition in range(self.after)]


@dataclass(slots=True, kw_only=True)
class Shape:
    """The work to do. ``grown_repartitions``: repartition topics and their required counts. ``drained``: repartition topics
    that must be read to their ends. ``placings``: of the source topics that the program writes with a partitioner.
    ``blockers``: reasons why the work can't be done."""

    application_id: str
    parts: list[MovedPart] = field(default_factory=list)
    stores: list[MovedStore] = field(default_factory=list)
    grown_repartitions: dict[str, int] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    source_counts: dict[str, int] = field(default_factory=dict)
    placings: dict[str, Placing] = field(default_factory=dict)
    blockers: list[str] = field(default_factory=list)

    @property
    def is_begun(self) -> bool:
        """Whether an earlier run has begun to move rows."""
        return any(len(part.counts) > 1 for part in self.parts)


def shape_of(
    topology: Topology,
    config: StreamsConfig,
    topics: Mapping[str, TopicInfo],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    record_keys: Collection[str] = (),
) -> Shape:
    """Returns the work to do for a topology and its topics. Raises PlanError if the partition counts can't be computed.

    ``record_keys``: stores of processors whose keys are those of the records, as the user says.
    """
    application_id = config.application_id
    internal = internal_topic_names(application_id, topology.subtopologies)
    known = topology_of(topology_metadata(topology, application_id, subtopology_id=config.subtopology_id))
    image = TopicsImage.of(
        *(TopicImage(each.topic_id, each.name, each.partitions) for each in topics.values() if not each.is_internal)
    )
    needed = configure(known, TopicsImage({name: each for name, each in image.items() if name not in internal}))
    if needed.problem is not None and needed.problem.is_fatal:
        raise PlanError(
            f"application {application_id!r} could not run with its topics: {needed.problem.detail.rstrip('.')}. Create "
            "missing topics (streamsrt topics create), and give joined topics equal partition counts: source topics with "
            "streamsrt topics add-partitions, and those that the program fixes with repartition(partitions=) there"
        )
    found = Shape(application_id=application_id)
    builder = _Builder(
        topology,
        config,
        needed,
        {name: each.partitions for name, each in topics.items()},
        committed,
        found,
        record_keys,
    )
    builder.build()
    return found


class _Builder:
    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        needed: Configuration,
        there: Mapping[str, int],
        committed: Mapping[TopicPartition, OffsetAndMetadata],
        shape: Shape,
        record_keys: Collection[str],
    ) -> None:
        self._topology = topology
        self._id = config.application_id
        self._needed = needed
        self._there = there
        self._committed = committed
        self._shape = shape
        self._record_keys = record_keys
        self._placements = Placements(topology, config.application_id)
        assigned = {part.id: part for part in needed.resolved.subtopologies}
        self._parts = [(each, assigned[subtopology_id(each, config)]) for each in topology.subtopologies]

    def build(self) -> None:
        shape = self._shape
        for subtopology, assigned in self._parts:
            shape.source_counts.update({name: self._there[name] for name in assigned.source_topics})
            self._add_part(subtopology, assigned)
        if not shape.parts:
            return
        for _, assigned in self._parts:
            for topic in assigned.repartition_sources:
                has, needs = self._there.get(topic.name), self._needed.partition_counts[topic.name]
                if has is not None and has < needs:
                    shape.grown_repartitions[topic.name] = needs
                elif has is not None and has > needs:
                    shape.blockers.append(_went_down("repartition topic", topic.name, has, needs))
        shape.drained |= shape.grown_repartitions.keys() | {
            name for part in shape.parts for name in part.inputs if name not in part.sources
        }
        for subtopology, assigned in self._parts:
            self._add_stores(subtopology, assigned)
        placings = {name: self._placements.of_topic(name) for name in shape.source_counts}
        shape.placings.update((name, placing) for name, placing in placings.items() if placing is not None)

    def _add_part(self, subtopology: Subtopology, assigned: AssignedPart) -> None:
        after = self._needed.task_counts[assigned.id]
        present = {name: self._there[name] for name in assigned.own_changelogs if name in self._there}
        begun = next((counts for counts in map(self._marked, self._inputs(assigned)) if counts), ())
        for name, has in present.items():
            if has > after:
                self._shape.blockers.append(_went_down("changelog", name, has, after))
        if not present and self._has_new_partitions(assigned):
            self._shape.blockers += self._unmovable(subtopology)
        if not present or (not begun and min(present.values()) >= after):
            return
        if not begun and len(set(present.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in sorted(present.items()))
            self._shape.blockers.append(
                f"changelogs of one subtopology have unlike partition counts: {listed}. Something else has changed them, so "
                "the count by which their rows were placed is unknown: delete those changelogs and start with empty stores, "
                f"{_UNLESS}"
            )
            return
        counts = begun or (min(present.values()),)
        part = MovedPart(
            id=assigned.id,
            subtopology=subtopology,
            inputs=assigned.input_topics,
            sources=assigned.source_topics,
            counts=counts if counts[-1] == after else (*counts, after) if begun else counts,
            after=after,
        )
        self._shape.parts.append(part)
        self._shape.blockers += self._against(part)

    def _has_new_partitions(self, assigned: AssignedPart) -> bool:
        """Whether a source topic has partitions behind the last one that was ever processed."""
        for topic in assigned.source_topics:
            known = [index for name, index in self._committed if name == topic]
            if known and max(known) + 1 < self._there[topic]:
                return True
        return False

    def _inputs(self, assigned: AssignedPart) -> list[TopicPartition]:
        return [(topic, index) for topic in assigned.input_topics for index in range(self._there.get(topic, 0))]

    def _marked(self, tp: TopicPartition) -> tuple[int, ...]:
        at = self._committed.get(tp)
        return () if at is None else parse_moving(at.metadata)

    def _against(self, part: MovedPart) -> Iterator[str]:
        counts = {name: self._needed.partition_counts[name] for name in part.inputs}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in sorted(counts.items()))
            yield (
                f"topics that one subtopology reads have unlike partition counts: {listed}. Records of one key would be "
                f"processed in several places: raise all to {part.after} (streamsrt topics add-partitions NAME --partitions "
                f"{part.after})"
            )
        yield from self._unmovable(part.subtopology)

    def _unmovable(self, subtopology: Subtopology) -> Iterator[str]:
        for spec in subtopology.stores:
            reason = refusal_of(spec, subtopology)
            if reason:
                yield f"store {spec.name!r} can't be repartitioned: {reason}. Read its topics again, {_UNLESS}"

    # ----------------------------------------------------------------------------------------------------------- stores

    def _add_stores(self, subtopology: Subtopology, assigned: AssignedPart) -> None:
        part = next((each for each in self._shape.parts if each.id == assigned.id), None)
        for spec in subtopology.stores:
            changelog = internal_topic_name(self._id, spec.changelog_name)
            if not spec.logging or spec.source_topic is not None or changelog not in self._there:
                continue
            left = self._left_part(spec, subtopology)
            if part is None and left is None:
                continue
            existing = self._there[changelog]
            if left is not None:
                # What is on its way would bring the old partition along.
                self._shape.drained |= {topic.name for topic in assigned.repartition_sources}
            self._shape.stores.append(
                MovedStore(
                    store=spec.name,
                    changelog=changelog,
                    existing=existing,
                    counts=(existing,) if part is None else part.counts,
                    after=existing if part is None else part.after,
                    key_of=key_of_rows(spec, subtopology),
                    whole_key_of=whole_key_of_rows(spec, subtopology),
                    placing=self._placements.of_store(spec, subtopology),
                    has_own_keys=spec.name not in self._record_keys and has_own_keys(spec, subtopology),
                    has_marks=has_closed_marks(spec, subtopology),
                    closings=closings_of(spec, subtopology),
                    primary_counts=() if left is None else left.counts,
                    primary_after=0 if left is None else left.after,
                    primary_placing=None if left is None else self._of_left_rows(spec, subtopology, left),
                )
            )

    def _of_left_rows(self, spec: StoreSpec, subtopology: Subtopology, left: MovedPart) -> Placing | None:
        return self._placements.of_left_rows(topics_of_other_side(subtopology, spec.name), left.subtopology)

    def _left_part(self, spec: StoreSpec, subtopology: Subtopology) -> MovedPart | None:
        """The moved subtopology with the left table of the foreign-key join whose subscriptions the store has."""
        topics = topics_of_other_side(subtopology, spec.name)
        return next(
            (
                part
                for part in self._shape.parts
                if any(topic.name in topics for topic in part.subtopology.repartition_source_topics)
            ),
            None,
        )


def _went_down(kind: str, name: str, has: int, needs: int) -> str:
    return (
        f"{kind} {name} has {counted(has, 'partition')} and needs {needs} now: Kafka can't remove "
        "partitions. Give the source topics "
        f"{has} partitions or more, or give the store or repartition step another name"
    )
