"""One program run in every way that must make no difference, with a wall clock that the input moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from streamsrt.tasks.task import Task
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import Piped, Written, columns_of, commit, final_rows, new_store, new_task
from topology import Topology

Input: TypeAlias = Piped | int
"""A record, or milliseconds by which the wall clock moves on."""


class Run:
    """A task with what it wrote, its clock, and how much it has read."""

    def __init__(self, topology: Topology, **config: Any) -> None:
        self.written = Written()
        self.now_ms = 0
        self._topology = topology
        self._config = config
        self._committed: dict[tuple[str, int], tuple[int, str]] = {}
        self.task: Task = new_task(topology, self.written, **config)
        self._offsets = dict.fromkeys((topic for topic, _ in self.task.source_partitions), 0)

    def feed(self, rows: Sequence[Input], sizes: Sequence[int] = (7,)) -> None:
        """Reads ``rows`` in batches of ``sizes``, repeated, that end where the topic changes or the clock moves."""
        position = turn = 0
        while position < len(rows):
            first = rows[position]
            if isinstance(first, int):
                self.now_ms += first
                self.task.punctuate(self.now_ms)
                position += 1
                continue
            batch = []
            for row in rows[position : position + sizes[turn % len(sizes)]]:
                if isinstance(row, int) or row.topic != first.topic:
                    break
                batch.append(row)
            turn += 1
            position += len(batch)
            self.task.add_batch(first.topic, 0, columns_of(batch, self._offsets[first.topic]))
            self._offsets[first.topic] += len(batch)
            while self.task.process(1000, self.now_ms):
                pass

    def commit(self) -> None:
        self._committed.update(self.task.prepare_commit().offsets)
        self.task.post_commit(None)

    def restart(self) -> None:
        """Begins anew with empty stores, what the changelogs hold, and the committed offsets' metadata."""
        (subtopology,) = self._topology.subtopologies
        stores = {spec.name: new_store(spec) for spec in subtopology.stores}
        self.task = new_task(self._topology, self.written, stores, **self._config)
        for spec in subtopology.stores:
            target = self.task.restore_target(spec.name)
            assert target is not None
            records = self.written.topics.get(target[0], [])
            keys, values, timestamps, headers = ([record[i] for record in records] for i in range(4))
            self.task.restore(spec.name, RecordColumns(keys, values, timestamps, 0, len(records), None, headers))
        for (topic, partition), (_, metadata) in self._committed.items():
            self.task.restore_partition_time(topic, partition, metadata)
        self.task.punctuate(self.now_ms)

    def outcome(self) -> dict[str, Any]:
        return {"written": self.written.topics, "stores": final_rows(self.task), "counters": self.task.counters()}


def outcome(topology: Topology, rows: Sequence[Input], sizes: Sequence[int] = (7,), **config: Any) -> dict[str, Any]:
    """What is written, kept and counted in the end."""
    run = Run(topology, **config)
    run.feed(rows, sizes)
    commit(run.task)
    return run.outcome()


def assert_all_ways_agree(topology: Topology, rows: Sequence[Input], sizes: Sequence[int]) -> None:
    """Batches as they come, record by record, and on processor nodes: each without caching, and with it."""
    for config in ({"cache_max_bytes": 0}, {}):
        by_record = outcome(topology, rows, [1], **config)
        nodes = outcome(topology, rows, [1], generate=False, **config)
        assert _by_key(nodes) == _by_key(by_record)
        batches = outcome(topology, rows, sizes, **config)
        if config:
            assert batches == by_record
            assert nodes == by_record
        else:
            assert _sorted(batches) == _sorted(by_record)
            assert batches["stores"] == by_record["stores"]


def _by_key(result: dict[str, Any]) -> dict[str, Any]:
    """A flush keeps the order of one key's records, not that of keys."""
    ordered = {topic: sorted(rows, key=lambda row: row[0] or b"") for topic, rows in result["written"].items()}
    return {**result, "written": ordered}


def _sorted(result: dict[str, Any]) -> dict[str, Any]:
    return {topic: sorted(rows, key=repr) for topic, rows in result["written"].items()}


def assert_an_interruption_changes_nothing(topology: Topology, rows: Sequence[Input], cut: int, **config: Any) -> None:
    """Committed at ``cut``, restored from changelogs and continued, or not interrupted."""
    broken, whole = Run(topology, **config), Run(topology, **config)
    for run in (broken, whole):
        run.feed(rows[:cut])
        run.commit()
    broken.restart()
    for run in (broken, whole):
        run.feed(rows[cut:])
        run.commit()
    assert broken.written.topics == whole.written.topics
    assert final_rows(broken.task) == final_rows(whole.task)
