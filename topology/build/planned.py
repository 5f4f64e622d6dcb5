"""Streams, tables and groups in the plan: what operators take and return.

1. An operator adds steps to the plan and returns a new value; the value that it was called on does not change.
2. An operator that may change the key marks its result: the next operator that needs all records of a key in one
   partition (grouping, join, table) inserts a repartition topic.
3. A serde is kept as long as the key or value is kept. After an operator that may change the type, the serde is the one
   that the program names, else the application's default, else the previous one, which refuses values of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from topology.build.plan import LateSource, OperatorStep, Plan, PlannedSerde, RepartitionStep, Step, TableState
from topology.graph.operations import Function, Operation
from topology.graph.operations.traits import takes_key
from topology.spec.errors import call_site
from topology.spec.functions import check_function, of_values
from topology.spec.names import REPARTITION_SUFFIX, check_name, is_generated_prefix

NO_FUNCTION: Final = object()
"""In place of the function of an operator that takes none, or has checked it itself. None is a program's mistake."""


@dataclass(slots=True, eq=False)
class PlannedStream:
    """A stream: the step that it comes from, what is known of its serdes, and the sources above it."""

    plan: Plan
    step: Step
    key: PlannedSerde
    value: PlannedSerde
    sources: frozenset[str]
    repartition_required: bool = False
    """Whether the key may have changed since the records were in partitions by it."""
    late: Mapping[str, LateSource] = field(default_factory=dict)
    """Of the result of a join of streams: what drops late records, by side."""
    joined_through: RepartitionStep | None = None
    """The repartition that unnamed joins of this stream share."""

    def add(
        self,
        operator: str,
        prefix: str,
        name: str | None,
        fn: object,
        operation: Operation,
        parents: tuple[Step, ...] | None = None,
    ) -> OperatorStep:
        """Adds the step of an operator; ``fn``: its function, which is checked, or :data:`NO_FUNCTION`."""
        if fn is not NO_FUNCTION:
            check_function(fn, operator, of_values(takes_key(operation)))
        step = OperatorStep(
            name=self.plan.named(checked_step_name(name), prefix),
            site=call_site(),
            parents=parents or (self.step,),
            operation=operation,
        )
        self.plan.add(step)
        return step

    def then(
        self,
        operator: str,
        prefix: str,
        name: str | None,
        fn: object,
        operation: Operation,
        *,
        new_key: bool = False,
        new_value: bool = False,
    ) -> PlannedStream:
        """The stream behind an operator, which may change the types of keys or values."""
        step = self.add(operator, prefix, name, fn, operation)
        return self.behind(
            step,
            self.key.changed(operator, step.site) if new_key else self.key,
            self.value.changed(operator, step.site) if new_value else self.value,
            rekeyed=new_key,
        )

    def behind(self, step: Step, key: PlannedSerde, value: PlannedSerde, *, rekeyed: bool = False) -> PlannedStream:
        """The stream behind a step that reads this one."""
        return PlannedStream(self.plan, step, key, value, self.sources, rekeyed or self.repartition_required)

    def repartitioned_for_join(self, prefix: str, key: PlannedSerde, value: PlannedSerde) -> RepartitionStep:
        """The repartition of this stream for joins: unnamed joins share one."""
        step = repartition_step(self.plan, self.step, prefix, key, value)
        if self.joined_through is not None and prefix == self.step.name:
            return self.joined_through
        self.joined_through = step
        self.plan.add(step)
        return step


@dataclass(frozen=True, slots=True, eq=False)
class PlannedTable:
    """A table: the step that it comes from, what may be asked of it, its serdes, and the sources above it."""

    plan: Plan
    step: Step
    table: TableState
    key: PlannedSerde
    value: PlannedSerde
    sources: frozenset[str]

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store by which the table can be asked, or None."""
        table = self.table
        if table.queryable_name is not None:
            return table.queryable_name
        return table.store.name if table.materialized and table.store is not None else None


@dataclass(frozen=True, slots=True)
class PlannedGlobalTable:
    """A global table: its store, by which rows are looked up."""

    plan: Plan
    store: str


@dataclass(slots=True, eq=False)
class PlannedGroup:
    """A stream and the key that it is grouped by. ``name``: of its repartition topic."""

    plan: Plan
    step: Step
    key: PlannedSerde
    value: PlannedSerde
    sources: frozenset[str]
    repartition_required: bool
    name: str | None
    repartition: RepartitionStep | None = None

    def repartitioned(self, store_name: str) -> tuple[Step, frozenset[str]]:
        """The step behind which records of one key are in one place, and the names of the sources then."""
        if not self.repartition_required:
            return self.step, self.sources
        step = repartition_step(self.plan, self.step, self.name or store_name, self.key, self.value)
        if self.repartition is None or self.name is None:
            self.repartition = step
        self.plan.add(self.repartition)
        return self.repartition, frozenset((self.repartition.name,))


def savepoint(receiver: object) -> Callable[[], None]:
    """That of the plan to which a method of ``receiver``, a class of the DSL, adds."""
    members: Sequence[tuple[PlannedGroup, object]] = getattr(receiver, "_members", ())
    planned = members[0][0] if members else getattr(receiver, "_planned", None)
    plan = getattr(receiver, "_plan", getattr(planned, "plan", None))
    return plan.savepoint() if isinstance(plan, Plan) else _nothing


def _nothing() -> None:
    """Nothing is to be taken back."""


def checked_step_name(name: str | None) -> str | None:
    """The program's name for a step. Raises IllegalNameError."""
    return None if name is None else check_name(name, "step")


def repartition_step(
    plan: Plan,
    parent: Step,
    prefix: str,
    key: PlannedSerde,
    value: PlannedSerde,
    *,
    partitioner: Function | None = None,
    partitions: int | None = None,
) -> RepartitionStep:
    """A repartition behind ``parent`` whose topic is named by ``prefix``; not yet added to the plan."""
    topic = prefix if prefix.endswith(REPARTITION_SUFFIX) else prefix + REPARTITION_SUFFIX
    sink, null_keys, source = (plan.number(f"KSTREAM-{kind}-") for kind in ("SINK", "FILTER", "SOURCE"))
    if not is_generated_prefix(prefix):
        sink, null_keys, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return RepartitionStep(
        name=source,
        site=call_site(),
        parents=(parent,),
        topic=topic,
        sink_name=sink,
        filter_name=null_keys,
        key=key,
        value=value,
        partitioner=partitioner,
        partitions=partitions,
        is_mergeable=True,
    )
