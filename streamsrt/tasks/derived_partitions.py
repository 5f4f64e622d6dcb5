"""The tasks of a topology and the partition counts of its topics in a test, without a group and a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from topology.graph.nodes import Subtopology, internal_topic_name
from topology.graph.topology import Topology


class DerivedPartitions:
    """``partitions``: the count of every topic, or of those that have more than one. Those of internal topics follow from
    the topologies."""

    def __init__(self, application_id: str, partitions: int | Mapping[str, int]) -> None:
        self._application_id = application_id
        self._partitions = partitions
        self._repartitions: dict[str, int] = {}

    def of(self, topic: str) -> int:
        if topic in self._repartitions:
            return self._repartitions[topic]
        return self._partitions if isinstance(self._partitions, int) else self._partitions.get(topic, 1)

    def tasks(self, topology: Topology) -> list[tuple[Subtopology, int]]:
        """Returns each subtopology with its partitions: as many as its largest topic has."""
        self._derive(topology)
        found = []
        for part in topology.subtopologies:
            topics = [
                *part.source_topics,
                *map(self._internal, (topic.name for topic in part.repartition_source_topics)),
            ]
            count = max((self.of(topic) for topic in topics), default=self.of(""))
            found += [(part, partition) for partition in range(count)]
        return found

    def _derive(self, topology: Topology) -> None:
        for _ in topology.subtopologies:
            for part in topology.subtopologies:
                inputs = [*part.source_topics, *map(self._internal, (t.name for t in part.repartition_source_topics))]
                count = max(map(self.of, inputs), default=1)
                for name in map(self._internal, part.repartition_sink_topics):
                    self._repartitions[name] = max(self._repartitions.get(name, 1), count)
            given = {t.name: t.partitions for part in topology.subtopologies for t in part.repartition_source_topics}
            self._repartitions |= {self._internal(name): count for name, count in given.items() if count is not None}
            for part in topology.subtopologies:
                internal = {topic.name for topic in part.repartition_source_topics}
                for group in part.copartition_groups:
                    names = [self._internal(name) if name in internal else name for name in group]
                    most = max(map(self.of, names))
                    self._repartitions |= {n: most for n in names if n in self._repartitions and given.get(n) is None}

    def _internal(self, name: str) -> str:
        return internal_topic_name(self._application_id, name)
