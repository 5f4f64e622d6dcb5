"""Applies a topology to the existing topics: tasks, internal topics, and what is wrong.

1. The first that applies decides: missing source topics and patterns that match none, topics with wrong partition counts or
   two owners, missing internal topics.
2. A repartition topic without a count gets the largest count among the inputs of the subtopologies that write it, along
   the chain, and is then raised to its co-partition group. A changelog has as many partitions as its subtopology tasks.
3. A subtopology has a task for each partition of its largest input.
4. A problem of one subtopology stops all members that run this topology. Members with an older topology, which a
   topology update left behind, continue with its ``runnable`` subtopologies, whose topics all exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from streamsrt.assignment.patterns import resolve
from streamsrt.assignment.status_code import StatusCode
from streamsrt.assignment.topics import NO_TOPIC_ID, TopicsImage, TopicSpec
from streamsrt.assignment.topology import Subtopology, Topology


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """The reason why no task can be assigned: a status code of the heartbeat response with its text."""

    status_code: StatusCode
    detail: str

    @property
    def is_fatal(self) -> bool:
        """Whether the problem ends members that learn of it, at once or after a while; the coordinator can't fix it."""
        return self.status_code != StatusCode.MISSING_INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Configuration:
    """A topology resolved against an image of the topics: ``resolved`` is ``topology`` with topics in place of patterns.

    ``task_counts`` and ``partition_counts`` (of all topics that tasks read or log to) are empty when source topics are
    missing or wrongly partitioned. ``to_create`` are the internal topics that are missing. ``runnable``: task counts of
    the subtopologies that a problem does not concern, empty without a problem.
    """

    topology: Topology
    resolved: Topology
    metadata_hash: int
    problem: TopicProblem | None = None
    task_counts: Mapping[str, int] = field(default_factory=dict)
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    to_create: tuple[TopicSpec, ...] = ()
    runnable: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Mismatch(Exception):
    """Partition counts that do not match; the text is the detail of the status."""


def configure(topology: Topology, image: TopicsImage, is_visible: Callable[[str], bool] | None = None) -> Configuration:
    """Resolves ``topology``, which has passed ``check_topology``, against the existing topics.

    ``is_visible``: which of them patterns may mean; None: all.
    """
    resolution = resolve(topology, image, is_visible)
    resolved = resolution.topology
    digest = metadata_hash(resolved, image)
    missing = sorted({n for part in resolved.subtopologies for n in part.source_topics if n not in image})
    problem = None
    if missing or resolution.unmatched:
        problem = TopicProblem(StatusCode.MISSING_SOURCE_TOPICS, _missing_detail(missing, resolution.unmatched))
    elif resolution.contested is not None:
        problem = TopicProblem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, _contested_detail(*resolution.contested))
    if problem is not None:
        return Configuration(topology, resolved, digest, problem, runnable=_runnable(resolved, image))
    try:
        counts = _partition_counts(resolved, image)
        to_create = _missing_internal_topics(resolved, image, counts)
    except _Mismatch as mismatch:
        problem = TopicProblem(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(mismatch))
        return Configuration(topology, resolved, digest, problem, runnable=_runnable(resolved, image))
    if to_create:
        detail = f"Internal topics are missing: {', '.join(spec.name for spec in to_create)}"
        problem = TopicProblem(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    tasks = {part.id: _largest(part.input_topics, counts) for part in resolved.subtopologies}
    runnable = _runnable(resolved, image) if to_create else {}
    return Configuration(topology, resolved, digest, problem, tasks, counts, to_create, runnable)


def _missing_detail(missing: list[str], unmatched: tuple[str, ...]) -> str:
    details = [f"Source topics {', '.join(missing)} are missing."] if missing else []
    if unmatched:
        details.append(f"No source topics match the patterns {', '.join(unmatched)}.")
    return " ".join(details)


def _contested_detail(name: str, one: str, other: str) -> str:
    return f"Source topic {name} belongs to subtopologies {one} and {other}, by its name or by a pattern."


def _runnable(topology: Topology, image: TopicsImage) -> dict[str, int]:
    return {part.id: _largest_of(part, image) for part in topology.subtopologies if _has_its_topics(part, image)}


def _has_its_topics(part: Subtopology, image: TopicsImage) -> bool:
    if not part.input_topics or any(name not in image for name in (*part.input_topics, *part.own_changelogs)):
        return False
    count = _largest_of(part, image)
    return all(image[name].partitions == count for name in part.own_changelogs) and all(
        len({image[name].partitions for name in group}) <= 1 for group in part.copartition_groups
    )


def _largest_of(part: Subtopology, image: TopicsImage) -> int:
    return max(image[name].partitions for name in part.input_topics)


def metadata_hash(topology: Topology, image: TopicsImage) -> int:
    """Returns a signed 64-bit digest of ids and partition counts of the existing input topics; 0 if there are none."""
    present = sorted({name for part in topology.subtopologies for name in part.input_topics if name in image})
    if not present:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in present:
        topic = image[name]
        digest.update(f"{name}\0{topic.partitions}\0".encode() + (topic.id or NO_TOPIC_ID))
    return int.from_bytes(digest.digest(), "big", signed=True)


def _partition_counts(topology: Topology, image: TopicsImage) -> dict[str, int]:
    repartitions = {topic.name: topic for part in topology.subtopologies for topic in part.repartition_sources}
    counts = {name: image[name].partitions for part in topology.subtopologies for name in part.source_topics}
    counts |= {name: topic.partitions for name, topic in repartitions.items() if topic.partitions}
    _derive(topology, counts, [name for name in sorted(repartitions) if name not in counts])
    flexible = {name for name, topic in repartitions.items() if not topic.partitions}
    for part in topology.subtopologies:
        for group in filter(None, part.copartition_groups):
            _copartition(group, counts, image, flexible)
    for part in topology.subtopologies:
        for name in part.own_changelogs:
            counts[name] = _largest(part.input_topics, counts)
    return counts


def _derive(topology: Topology, counts: dict[str, int], pending: list[str]) -> None:
    """Assigns counts to repartition topics: when all inputs of all writers are known; in a loop, when some are."""
    writers = {name: [part for part in topology.subtopologies if name in part.repartition_sinks] for name in pending}
    while pending:
        inputs = {name: {n for part in writers[name] for n in part.input_topics} - {name} for name in pending}
        found = [name for name in pending if inputs[name] <= counts.keys()]
        if not found:
            found = [name for name in pending if inputs[name] & counts.keys()][:1]
        for name in found:
            counts[name] = max(counts[n] for n in inputs[name] if n in counts)
        pending = [name for name in pending if name not in counts]


def _copartition(group: tuple[str, ...], counts: dict[str, int], image: TopicsImage, flexible: set[str]) -> None:
    fixed = {name: counts[name] for name in group if name not in flexible}
    if len(set(fixed.values())) > 1:
        listed = ", ".join(f"{name}={fixed[name]}" for name in sorted(fixed))
        raise _Mismatch(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    # A repartition topic that exists keeps its count: the others of its group follow it.
    known = {name: image[name].partitions if name in image else counts[name] for name in group}
    wanted = next(iter(fixed.values())) if fixed else max(known.values())
    for name in group:
        if name in flexible:
            counts[name] = wanted


def _missing_internal_topics(
    topology: Topology, image: TopicsImage, counts: Mapping[str, int]
) -> tuple[TopicSpec, ...]:
    missing = []
    for part in topology.subtopologies:
        for topic in (*part.repartition_sources, *part.changelogs):
            expected = counts[topic.name]
            if topic.name not in image:
                factor = topic.replication_factor or -1
                missing.append(TopicSpec(topic.name, expected, factor, dict(topic.configs)))
            elif image[topic.name].partitions != expected:
                raise _Mismatch(
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {expected}, found {image[topic.name].partitions}"
                )
    return tuple(sorted(missing, key=lambda spec: spec.name))


def _largest(names: Iterable[str], counts: Mapping[str, int]) -> int:
    return max(counts[name] for name in names)
