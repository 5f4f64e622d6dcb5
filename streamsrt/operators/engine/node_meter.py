"""Counters of single nodes (``metrics.recording.level`` DEBUG and up).

They cost generated code a local integer per node and record. Below DEBUG there are no meters, and no cost.
"""

from __future__ import annotations

from streamsrt.operators.engine.plan import ResolvedSubtopology
from streamsrt.operators.engine.program_clock import ProgramClock
from streamsrt.sensors import Spread
from topology.graph.nodes import ProcessorNode
from topology.graph.operations.traits import own_store


class RecordAges(Spread):
    """How old records were when they came, in milliseconds, by the clock that programs see: their timestamps are of such
    clocks. Recent is what came lately by the steady clock."""

    __slots__ = ("_clock",)

    def __init__(self, clock: ProgramClock) -> None:
        super().__init__()
        self._clock = clock

    def came(self, now_ms: int, count: int, total_ms: int, low_ms: float, high_ms: float) -> None:
        """So many records came, whose timestamps have that sum and lie between these two."""
        seen_ms = self._clock.at(now_ms)
        self.add(now_ms, count, count * seen_ms - total_ms, seen_ms - high_ms, seen_ms - low_ms)


class NodeMeter:
    """Of one node of one task. ``latency``: of records that came to it, in milliseconds; filled in where it is ``timed``."""

    __slots__ = ("at_store", "forwarded", "latency", "processed", "timed")

    def __init__(self, clock: ProgramClock, *, at_end: bool, at_store: bool) -> None:
        self.timed = at_end or at_store
        self.at_store = at_store
        self.processed = 0
        self.forwarded = 0
        self.latency = RecordAges(clock)

    def came(self, count: int, total_ms: int, low_ms: float, high_ms: float, now_ms: int) -> None:
        """So many records came, whose timestamps have that sum and lie between these two."""
        self.processed += count
        if count and self.timed:
            self.latency.came(now_ms, count, total_ms, low_ms, high_ms)

    def came_all(self, timestamps: list[int], now_ms: int) -> None:
        """Records with these timestamps came; there is at least one."""
        self.came(len(timestamps), sum(timestamps), min(timestamps), max(timestamps), now_ms)


def node_meters(plan: ResolvedSubtopology, *, at_stores: bool) -> dict[str, NodeMeter]:
    """For each node of a subtopology but its sources and sinks, which are counted anyway.

    Those are ``timed`` behind which there is nothing, and, where wanted ``at_stores``, those that keep a store.
    """
    return {
        node.name: NodeMeter(
            plan.clock, at_end=not node.children, at_store=at_stores and own_store(node.operation) is not None
        )
        for node in plan.subtopology.nodes
        if isinstance(node, ProcessorNode)
    }
