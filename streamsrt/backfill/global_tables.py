"""The global tables and stores that the tasks of a backfill see.

1. An application that is started reads the topics of its global tables to the end, and then processes its inputs. So every
   task sees them as they are when the plan is made, from its first record to its last.
2. The plan's directory has their rows (:mod:`streamsrt.backfill.table_freezing`): the topics may be compacted later.
3. A task loads the tables that it can see: those that it joins with, and all if it runs processors of the program, which may
   ask for any.
4. A plan that takes over the state of another application processes no records, so its tasks see empty tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from streamsrt.backfill.errors import PlanError
from streamsrt.backfill.manifest import FileResult, is_whole
from streamsrt.backfill.plan import GlobalTablePlan
from streamsrt.backfill.replay import OfflineSettings
from streamsrt.backfill.sources import read_batches
from streamsrt.backfill.task_state import TaskStores
from streamsrt.state.kinds import lay_out
from streamsrt.state.store import BytesStore
from streamsrt.tasks.global_state import GlobalState
from topology.graph.nodes import ProcessorNode, Subtopology
from topology.graph.operations.traits import Code, traits_of
from topology.graph.topology import Topology


def global_tables(
    directory: Path,
    tables: Iterable[GlobalTablePlan],
    topology: Topology,
    subtopology: Subtopology,
    settings: OfflineSettings,
    state: TaskStores,
) -> GlobalState | None:
    """The global tables of a topology, with the rows that ``tables`` of its plan have of what the subtopology of a task can
    see; None if there are none. ``state``: opens their stores, and stays whose they are. Raises PlanError if the rows are
    not there."""
    if not topology.global_subtopologies:
        return None
    rows = rows_of_tables(topology, state)
    joined, sees_all = _seen_by(subtopology)
    for table in tables:
        if sees_all or table.store in joined:
            _fill(rows[table.store], directory, table)
    return state_over(rows, topology, settings)


def _seen_by(subtopology: Subtopology) -> tuple[set[str], bool]:
    """The stores that the operations of a subtopology name, and whether its steps may see any other one."""
    nodes = [node for node in subtopology.nodes if isinstance(node, ProcessorNode)]
    joined: set[str] = {store for node in nodes if (store := getattr(node.operation, "store", None)) is not None}
    code = any(node.wrapped_by is not None or traits_of(node.operation).code is Code.PROCESSOR for node in nodes)
    return joined, code


def rows_of_tables(topology: Topology, state: TaskStores) -> dict[str, BytesStore]:
    """A new store of bytes for each global table, by name."""
    return {spec.name: state.open(spec.name) for part in topology.global_subtopologies for spec in part.stores}


def state_over(rows: Mapping[str, BytesStore], topology: Topology, settings: OfflineSettings) -> GlobalState:
    """The global tables over these rows."""
    specs = [spec for part in topology.global_subtopologies for spec in part.stores]
    return GlobalState(
        topology.global_subtopologies,
        application_id=settings.application_id,
        stores={spec.name: lay_out(spec, rows[spec.name]) for spec in specs},
        config=settings.task_config,
        now_ms=settings.now_ms,
    )


def _fill(store: BytesStore, directory: Path, table: GlobalTablePlan) -> None:
    file = FileResult(path=table.path, records=table.records, size_bytes=table.size_bytes, digest=table.digest)
    if not is_whole(directory, file):
        raise PlanError(
            f"{directory / table.path}, which has the rows of global table {table.store!r}, is missing or damaged: plan "
            "again in another --dir"
        )
    for columns in read_batches(directory / table.path):
        rows = zip(columns.keys, columns.values, strict=True)
        store.write([(key, row) for key, row in rows if key is not None])
