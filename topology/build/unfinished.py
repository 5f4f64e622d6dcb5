"""A topology under construction: what a pass takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topology.build.plan import Plan, Step
from topology.graph.nodes import Node, OpenSerde, StoreSpec, Subtopology


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedTopology:
    """A topology under construction."""

    plan: Plan
    config: Mapping[str, object]
    steps: tuple[Step, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    """Sources that became one: name -> name of the one that stays."""
    nodes: tuple[Node, ...] = ()
    stores: Mapping[str, StoreSpec] = field(default_factory=dict)
    repartitions: Mapping[str, int | None] = field(default_factory=dict)
    """Repartition topics and the partition counts that the program gives."""
    copartition_groups: tuple[tuple[str, ...], ...] = ()
    subtopologies: tuple[Subtopology, ...] = ()
    global_subtopologies: tuple[Subtopology, ...] = ()
    open_serdes: tuple[OpenSerde, ...] = ()
