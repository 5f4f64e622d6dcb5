"""Global tables in tests without a broker: as a live task sees them, and as a backfill has them in files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamsrt.backfill.global_tables import global_tables, rows_of_tables, state_over
from streamsrt.backfill.replay import OfflineSettings
from streamsrt.backfill.table_freezing import frozen_tables
from streamsrt.backfill.task_state import TaskStores
from streamsrt.client.values import TopicPartition
from streamsrt.tasks.global_state import GlobalState
from streamsrt.tasks.task_config import TaskConfig
from streamsrt.wire.records import RecordColumns
from tests.streamsrt.operators.programs import APPLICATION, Piped, columns_of
from topology import Topology


def _settings(config: TaskConfig) -> OfflineSettings:
    return OfflineSettings(application_id=APPLICATION, task_config=config, partitions_of_topic=lambda topic: 1)


def _records(topology: Topology, piped: Sequence[Piped]) -> Iterator[tuple[TopicPartition, RecordColumns]]:
    for part in topology.global_subtopologies:
        for topic in part.source_topics:
            rows = [row for row in piped if row.topic == topic]
            if rows:
                yield (topic, 0), columns_of(rows, 0)


def filled(topology: Topology, piped: Sequence[Piped], config: TaskConfig) -> GlobalState | None:
    """The global tables of an application that has read all of their records."""
    if not topology.global_subtopologies:
        return None
    found = state_over(rows_of_tables(topology, TaskStores()), topology, _settings(config))
    for tp, columns in _records(topology, piped):
        found.apply(*tp, columns)
    return found


@contextlib.contextmanager
def frozen(topology: Topology, piped: Sequence[Piped], config: TaskConfig) -> Iterator[GlobalState | None]:
    """The same out of the directory of a plan."""
    if not topology.global_subtopologies:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        records = list(_records(topology, piped))
        ends = {tp: columns.next_offset for tp, columns in records}
        tables = frozen_tables(topology, _settings(config), records, ends, Path(folder))
        (part,) = topology.subtopologies
        yield global_tables(Path(folder), tables, topology, part, _settings(config), TaskStores())
