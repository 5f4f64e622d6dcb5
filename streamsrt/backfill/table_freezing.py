"""Writes the rows of global tables and stores into the directory of a plan, as they are now.

1. Their topics are read as by an application that starts: from the first record that there is to the end, by the program's
   own processors. Only committed records are read.
2. A file has the name of its digest, so plans of one directory don't write the same file unless it is the same.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from streamsrt.backfill.attempts import GLOBAL_TABLES
from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.full_disk import full_disk_said
from streamsrt.backfill.global_tables import rows_of_tables, state_over
from streamsrt.backfill.log_reading import read_log
from streamsrt.backfill.manifest import sync
from streamsrt.backfill.plan import BackfillPlan, GlobalTablePlan
from streamsrt.backfill.planned_application import application_of
from streamsrt.backfill.replay import OfflineSettings
from streamsrt.backfill.run_task import settings_of
from streamsrt.backfill.task_state import TaskStores
from streamsrt.client.interface import Network
from streamsrt.client.values import LATEST, TopicPartition
from streamsrt.errors import MissingTopicError
from streamsrt.runtime.assembly import changelogs_of
from streamsrt.state.store import BytesStore
from streamsrt.tasks.global_state import GlobalState
from streamsrt.wire.records import RecordColumns, encode_batch
from streamsrt.wording import counted
from topology.graph.topology import Topology

_WRITE_EVERY = 50_000
_CACHE_BYTES = 4 << 20
_BATCH_ROWS = 1_000
_LISTED = 8
"""So many partitions are in a note; the plan has the offsets of all."""


def check_global_topics(topology: Topology, application_id: str) -> None:
    """Raises PlanError if the application itself writes the topic of a global table: what that holds is a result then."""
    written = {sink.topic for part in topology.subtopologies for sink in part.sinks if not sink.repartition}
    written |= changelogs_of(topology, application_id)
    for part in topology.global_subtopologies:
        for topic in part.source_topics:
            if topic in written:
                raise PlanError(
                    f"global table {part.stores[0].name!r} can't be backfilled: the application itself writes its topic "
                    f"{topic}, so what a record finds in it depends on when it is processed. Let another application write "
                    "it, or let this one read its topics from the beginning without a backfill"
                )


def with_global_tables(network: Network, plan: BackfillPlan, directory: Path) -> BackfillPlan:
    """Returns the plan with the rows of its global tables, which are in its directory then, and a note about each. Raises
    MissingTopicError, RecordError, BrokerError, ResultsNotWrittenError."""
    topology, config = application_of(plan)
    if not topology.global_subtopologies:
        return plan
    ends = _ends(network, topology)
    records = ((tp, columns) for tp, end in ends.items() for columns in read_log(network, tp, 0, end))
    with full_disk_said(directory, stores=True, then="streamsrt backfill plan again"):
        tables = frozen_tables(topology, settings_of(plan, config), records, ends, directory)
    notes = [_note(plan, table) for table in tables]
    found = {"global_tables": tables, "warnings": (*plan.warnings, *notes)}
    return plan.model_copy(update=found).sealed()


def frozen_tables(
    topology: Topology,
    settings: OfflineSettings,
    records: Iterable[tuple[TopicPartition, RecordColumns]],
    ends: Mapping[TopicPartition, int],
    directory: Path,
) -> tuple[GlobalTablePlan, ...]:
    """Fills the global tables of a topology, and writes their rows into a plan's directory. ``records``: those of their
    topics, each partition up to its end in ``ends``. Raises RecordError, OSError."""
    folder = directory / GLOBAL_TABLES
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(TaskStores(folder / f"making-{uuid.uuid4().hex[:8]}")) as state:
        rows = rows_of_tables(topology, state)
        with contextlib.closing(state_over(rows, topology, settings)) as shared:
            _apply(shared, records)
            return tuple(_written(name, shared.topic_of(name), ends, rows[name], directory) for name in sorted(rows))


def _ends(network: Network, topology: Topology) -> dict[TopicPartition, int]:
    topics = {topic for part in topology.global_subtopologies for topic in part.source_topics}
    counts = network.admin.partitions_for(topics)
    missing = sorted(topics - counts.keys())
    if missing:
        raise MissingTopicError(
            f"the application needs its global topics: {', '.join(missing)}. Create them (streamsrt topics create "
            f"{' '.join(missing)} --partitions N), and plan again"
        )
    partitions = [(topic, index) for topic, count in sorted(counts.items()) for index in range(count)]
    found = network.admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    return {tp: found[tp].offset for tp in partitions}


def _apply(shared: GlobalState, records: Iterable[tuple[TopicPartition, RecordColumns]]) -> None:
    unwritten = 0
    for tp, columns in records:
        if len(columns):
            shared.apply(*tp, columns)
            unwritten += len(columns)
        if unwritten >= _WRITE_EVERY:
            shared.write()
            shared.evict(_CACHE_BYTES)
            unwritten = 0
    shared.write()


def _written(
    store: str, topic: str, ends: Mapping[TopicPartition, int], rows: BytesStore, directory: Path
) -> GlobalTablePlan:
    """Writes the rows of a table into a file."""
    fresh = directory / GLOBAL_TABLES / f"{store}-{uuid.uuid4().hex[:8]}"
    digest, records, size = blake2b(digest_size=16), 0, 0
    with open(fresh, "wb") as file:
        for part in _parts(rows):
            batch = encode_batch([key for key, _ in part], [row for _, row in part], [0] * len(part))
            file.write(batch)
            digest.update(batch)
            records += len(part)
            size += len(batch)
    sync(fresh)
    path = directory / GLOBAL_TABLES / f"{store}-{digest.hexdigest()}.rows"
    os.replace(fresh, path)
    sync(path.parent)
    return GlobalTablePlan(
        store=store,
        topic=topic,
        ends=tuple(end for (name, _), end in sorted(ends.items()) if name == topic),
        path=str(path.relative_to(directory)),
        records=records,
        size_bytes=size,
        digest=digest.hexdigest(),
    )


def _parts(rows: BytesStore) -> Iterator[list[tuple[bytes, bytes]]]:
    found = iter(rows.range())
    while part := list(islice(found, _BATCH_ROWS)):
        yield part


def _note(plan: BackfillPlan, table: GlobalTablePlan) -> str:
    listed = [f"{table.topic}-{index}: {end}" for index, end in enumerate(table.ends[:_LISTED])]
    ends = ", ".join([*listed, *(["..."] if len(table.ends) > _LISTED else [])])
    said = (
        f"global table {table.store}: all records see the {counted(table.records, 'row')} of now (up to offsets {ends}), "
        "as in an application that is started now"
    )
    return said if plan.after is None else f"{said}; what the earlier backfill has read saw those of its own plan"
