"""The global tables and stores that the tasks of a backfill see.

1. A plan that takes over the state of another application processes no records, so its tasks need none of the rows.
"""

from __future__ import annotations

from streamsrt.backfill.replay import OfflineSettings
from streamsrt.backfill.task_state import TaskStores
from streamsrt.state.kinds import lay_out
from streamsrt.tasks.global_state import GlobalState
from topology.graph.topology import Topology


def global_tables(topology: Topology, settings: OfflineSettings, state: TaskStores) -> GlobalState | None:
    """The global tables of a topology; None if it has none. ``state``: opens their stores, and stays whose they are."""
    if not topology.global_subtopologies:
        return None
    stores = {
        spec.name: lay_out(spec, state.open(spec.name))
        for part in topology.global_subtopologies
        for spec in part.stores
    }
    return GlobalState(
        topology.global_subtopologies,
        application_id=settings.application_id,
        stores=stores,
        config=settings.task_config,
        now_ms=settings.now_ms,
    )
