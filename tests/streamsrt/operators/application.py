"""All tasks of an application over one log in memory: commit it, end it, start it again from its changelogs.

For programs of several subtopologies; each has one task, each topic one partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamsrt.state.kinds import lay_out
from streamsrt.state.memory import MemoryStore
from streamsrt.tasks.task import Task
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import APPLICATION, Piped, Written, columns_of, final_rows
from topology import Topology, serdes

Committed = dict[tuple[str, int], tuple[int, str]]


class Application:
    """Its tasks, and the log that outlives them. ``config``: of :class:`TaskConfig`."""

    def __init__(self, topology: Topology, **config: Any) -> None:
        self.log = Written()
        self._topology = topology.with_default_serdes(serdes.string, serdes.string)
        self._config = config
        self._committed: list[Committed] = [{} for _ in topology.subtopologies]
        self.tasks: list[Task] = []
        self._positions: list[dict[str, int]] = []
        self.start()

    def start(self) -> None:
        """Makes the tasks anew: stores out of changelogs, positions out of committed offsets."""
        self.tasks = [self._task(index) for index in range(len(self._topology.subtopologies))]
        self._positions = [
            {topic: committed.get((topic, 0), (0, ""))[0] for topic, _ in task.source_partitions}
            for task, committed in zip(self.tasks, self._committed, strict=True)
        ]

    def _task(self, index: int) -> Task:
        subtopology = self._topology.subtopologies[index]
        task = Task(
            subtopology,
            0,
            application_id=APPLICATION,
            stores={spec.name: lay_out(spec, MemoryStore(spec.name)) for spec in subtopology.stores},
            collector=self.log,
            config=TaskConfig(default_key_serde=serdes.string, default_value_serde=serdes.string, **self._config),
            partitions_of_topic=lambda topic: 1,
        )
        for spec in subtopology.stores:
            target = task.restore_target(spec.name)
            if target is not None:
                task.restore(spec.name, self._columns(target[0], 0, None))
        for (topic, partition), (_, metadata) in self._committed[index].items():
            task.restore_partition_time(topic, partition, metadata)
        return task

    def _columns(self, topic: str, start: int, stop: int | None) -> RecordColumns:
        rows = self.log.topics.get(topic, [])[start:stop]
        keys, values, timestamps, headers = ([row[i] for row in rows] for i in range(4))
        return RecordColumns(keys, values, timestamps, start, start + len(rows), None, headers)

    def pipe(self, rows: Sequence[Piped]) -> None:
        """Processes rows in their order, and all that follows from each of them."""
        for row in rows:
            columns = columns_of([row], 0)
            self.log.add(row.topic, columns.keys, columns.values, columns.timestamps, [row.headers])
            self._work()

    def _work(self) -> None:
        moved = True
        while moved:
            moved = False
            for task, positions in zip(self.tasks, self._positions, strict=True):
                for topic, position in positions.items():
                    columns = self._columns(topic, position, None)
                    if columns.keys:
                        task.add_batch(topic, 0, columns)
                        positions[topic] = position + len(columns.keys)
                        moved = True
                while task.process(1000, 0):
                    moved = True

    def commit(self) -> None:
        """Commits the tasks until nothing comes out of their caches any more."""
        for _ in range(len(self.tasks) + 1):
            for task, committed in zip(self.tasks, self._committed, strict=True):
                committed.update(task.prepare_commit().offsets)
                task.post_commit(None)
            self._work()

    def rows(self) -> Mapping[str, list[Any]]:
        """What the stores of all tasks hold."""
        return {name: rows for task in self.tasks for name, rows in final_rows(task).items()}
