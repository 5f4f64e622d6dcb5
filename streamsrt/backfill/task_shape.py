"""The topology of a plan in numbers: partitions, tasks, and the levels on which these stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.plan import InternalTopicPlan, RepartitionRange, SourceRange, StorePlan, TaskPlan
from streamsrt.backfill.planned_application import subtopology_id
from streamsrt.backfill.repair.scope import RepairScope
from streamsrt.client.interface import Network
from streamsrt.client.values import TopicPartition
from streamsrt.config import StreamsConfig
from streamsrt.errors import MissingTopicError
from streamsrt.tasks.task_config import TaskConfig
from topology.graph.nodes import Subtopology, internal_topic_name
from topology.graph.topology import Topology


def topic_counts(network: Network, topology: Topology, config: StreamsConfig) -> dict[str, int]:
    """Partition counts of the topics that there are: sources, outputs with that of dead letters, and internal ones of an
    earlier life."""
    wanted = {topic for each in topology.subtopologies for topic in each.source_topics}
    sinks = [sink for each in topology.subtopologies for sink in each.sinks]
    outputs = {sink.topic for sink in sinks if sink.topic is not None and not sink.repartition}
    if config.errors_dead_letter_queue_topic_name is not None:
        outputs.add(config.errors_dead_letter_queue_topic_name)
    if any(sink.topic is None for sink in sinks):
        # Records go to topics that only the records themselves know.
        everything = network.admin.topics()
        found = {name: topic.partitions for name, topic in everything.items() if not topic.is_internal}
    else:
        found = dict(network.admin.partitions_for(wanted | outputs))
    missing = sorted((wanted | outputs) - found.keys())
    if missing:
        raise MissingTopicError(
            f"topics that the application reads or writes don't exist: {', '.join(missing)}. Create them (streamsrt "
            "topics "
            f"create {' '.join(missing)} --partitions N), also those whose records are only in an archive: their "
            "offsets are "
            "committed"
        )
    return found


class TaskShape:
    """The topology in numbers: partitions, tasks, levels. ``replays`` False: tasks read no records, so none needs results of
    others, and they may feed each other in a circle, as the two sides of a foreign-key join do."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        counts: dict[str, int],
        scope: RepairScope | None = None,
        *,
        replays: bool = True,
    ) -> None:
        self.topology = topology
        self.config = config
        self.counts = counts
        self.replays = replays
        self.replayed = [each for each in topology.subtopologies if scope is None or each.number in scope.subtopologies]
        self.source_topics = {topic for each in self.replayed for topic in each.source_topics}
        self._derive_repartition_counts()
        self.levels = self._levels()

    def _name(self, topic: str) -> str:
        return internal_topic_name(self.config.application_id, topic)

    def _inputs(self, subtopology: Subtopology) -> list[str]:
        return [*subtopology.source_topics, *(self._name(each.name) for each in subtopology.repartition_source_topics)]

    def _derive_repartition_counts(self) -> None:
        topics = {
            self._name(topic.name): topic.partitions
            for each in self.topology.subtopologies
            for topic in each.repartition_source_topics
        }
        self.counts.update({name: partitions for name, partitions in topics.items() if partitions})
        pending = sorted(name for name in topics if name not in self.counts)
        while pending:
            inputs = {
                name: {topic for each in self._writers(name) for topic in self._inputs(each)} - {name}
                for name in pending
            }
            found = [name for name in pending if inputs[name] <= self.counts.keys()]
            if not found and not self.replays:
                # As the group coordinator does it.
                found = [name for name in pending if inputs[name] & self.counts.keys()][:1]
            if not found:
                raise PlanError(
                    f"repartition topics {', '.join(pending)} need each other: give them a number of partitions"
                )
            for name in found:
                self.counts[name] = max(self.counts[topic] for topic in inputs[name] if topic in self.counts)
            pending = [name for name in pending if name not in self.counts]
        flexible = {name for name, partitions in topics.items() if not partitions}
        for each in self.topology.subtopologies:
            repartition = {topic.name for topic in each.repartition_source_topics}
            for group in each.copartition_groups:
                self._copartition([self._name(name) if name in repartition else name for name in group], flexible)

    def _copartition(self, group: Iterable[str], flexible: set[str]) -> None:
        names = list(group)
        fixed = {name: self.counts[name] for name in names if name not in flexible}
        if len(set(fixed.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in sorted(fixed.items()))
            raise PlanError(f"topics that are joined need the same number of partitions: {listed}")
        wanted = max((fixed or {name: self.counts[name] for name in names}).values())
        self.counts.update({name: wanted for name in names if name in flexible})

    def _writers(self, repartition: str) -> list[Subtopology]:
        return [
            each
            for each in self.topology.subtopologies
            if any(self._name(topic) == repartition for topic in each.repartition_sink_topics)
        ]

    def _levels(self) -> dict[int, int]:
        """The level of each subtopology, by number."""
        if not self.replays:
            return {each.number: 0 for each in self.topology.subtopologies}
        levels: dict[int, int] = {}
        while len(levels) < len(self.topology.subtopologies):
            before = len(levels)
            for each in self.topology.subtopologies:
                writers = {
                    writer.number
                    for topic in each.repartition_source_topics
                    for writer in self._writers(self._name(topic.name))
                }
                if each.number not in levels and writers <= levels.keys():
                    levels[each.number] = 1 + max((levels[number] for number in writers), default=-1)
            if len(levels) == before:
                raise PlanError(
                    "the subtopologies feed each other in a circle of repartition topics: no order replays them"
                )
        return levels

    def is_extracted(self, topic: str) -> bool:
        """Whether the application takes the times of a topic's records from elsewhere, so that theirs may be any."""
        default = TaskConfig.of(self.config).default_timestamp_extractor
        sources = [each for part in self.topology.subtopologies for each in part.sources if topic in each.topics]
        return all(each.timestamp_extractor or default for each in sources)

    def task_count(self, subtopology: Subtopology) -> int:
        return max(self.counts[topic] for topic in self._inputs(subtopology))

    def task_id(self, subtopology: Subtopology, partition: int) -> str:
        return f"{subtopology_id(subtopology, self.config)}_{partition}"

    def changelog(self, scope: RepairScope) -> str:
        """The changelog of the store that is rebuilt."""
        return self._name(scope.spec.changelog_name)

    def internal_topics(self) -> list[InternalTopicPlan]:
        found = []
        for each in self.topology.subtopologies:
            for topic in each.internal_topics:
                name = self._name(topic.name)
                partitions = self.task_count(each) if topic.kind == "changelog" else self.counts[name]
                found.append(
                    InternalTopicPlan(name=name, kind=topic.kind, partitions=partitions, configs=dict(topic.configs))
                )
        self.counts.update({topic.name: topic.partitions for topic in found})
        return sorted(found, key=lambda topic: topic.name)

    def tasks(self, ranges: Mapping[TopicPartition, SourceRange]) -> list[TaskPlan]:
        found = [
            self._task(each, partition, ranges) for each in self.replayed for partition in range(self.task_count(each))
        ]
        return sorted(found, key=lambda task: task.level)

    def _task(self, subtopology: Subtopology, partition: int, ranges: Mapping[TopicPartition, SourceRange]) -> TaskPlan:
        repartition = [self._name(topic.name) for topic in subtopology.repartition_source_topics]
        return TaskPlan(
            id=self.task_id(subtopology, partition),
            subtopology=subtopology_id(subtopology, self.config),
            partition=partition,
            level=self.levels[subtopology.number],
            sources=tuple(
                ranges[topic, partition] for topic in subtopology.source_topics if (topic, partition) in ranges
            ),
            repartition=tuple(
                RepartitionRange(topic=topic, partition=partition, upstream=self._upstream(topic))
                for topic in repartition
                if partition < self.counts[topic]
            ),
            stores=tuple(
                StorePlan(
                    name=spec.name,
                    changelog=(spec.source_topic or self._name(spec.changelog_name))
                    if spec.logging or spec.source_topic
                    else None,
                    own_changelog=spec.has_own_changelog,
                    persistent=spec.persistent,
                    renamed_from=spec.renamed_from,
                )
                for spec in subtopology.stores
            ),
        )

    def _upstream(self, topic: str) -> tuple[str, ...]:
        if not self.replays:
            return ()
        return tuple(
            self.task_id(writer, partition)
            for writer in self._writers(topic)
            for partition in range(self.task_count(writer))
        )
