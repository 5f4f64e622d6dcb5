"""Late records of operators as a stream: the step after the operator's steps that gets those records.

1. A record is forwarded there unchanged, with its key, value, timestamp and headers, once, and only if no window,
   session or store took it.
2. Each step of an operator has at most one such step; several may share it.
"""

from __future__ import annotations

from topology.build.plan import LateSource, OperatorStep, Plan
from topology.build.planned import PlannedStream, PlannedTable, checked_step_name
from topology.graph.operations import PassThrough
from topology.spec.codecs import AnySerde
from topology.spec.errors import TopologyError, call_site


def late_of_join(stream: PlannedStream, side: str, name: str | None, key: AnySerde, value: AnySerde) -> PlannedStream:
    """What a join of two streams dropped of one side. Raises TopologyError where the stream is no result of one."""
    found = stream.late.get(side)
    if found is None:
        raise TopologyError(
            f"late({side!r}) is for the result of a join of two streams (sides 'left' and 'right'): nothing is "
            "dropped as late here. For a windowed table, call late() on the table",
            call_site(),
        )
    return _late_stream(stream.plan, found, name, key, value)


def late_of_table(table: PlannedTable, name: str | None, key: AnySerde, value: AnySerde) -> PlannedStream:
    """What the operator that makes a table dropped. Raises TopologyError where it drops nothing as late."""
    if table.table.late is None:
        raise TopologyError(
            "late() is for the table that an aggregation in windows that close makes, or suppress() with "
            "idle_timeout=: nothing is dropped as late here",
            call_site(),
        )
    return _late_stream(table.plan, table.table.late, name, key, value)


def _late_stream(plan: Plan, source: LateSource, name: str | None, key: AnySerde, value: AnySerde) -> PlannedStream:
    taken = next((step.late for step in source.steps if step.late is not None), None)
    if taken is not None:
        raise TopologyError(f"the late records flow into {taken!r} already: use that stream again", call_site())
    step = OperatorStep(
        name=plan.named(checked_step_name(name), "KSTREAM-LATE-"),
        site=call_site(),
        parents=source.steps,
        operation=PassThrough(),
    )
    plan.add(step)
    for each in source.steps:
        each.late = step.name
    return PlannedStream(plan, step, source.key.or_given(key), source.value.or_given(value), source.sources)
