"""The steps that the operators of a stream, except joins, add to the plan.

Source: org.apache.kafka.streams.kstream.internals.KStreamImpl.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from topology.build.materialize import added_store, as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import OperatorStep, PlannedStore, SinkStep, SplitStep, TableState, TableStep
from topology.build.planned import (
    NO_FUNCTION,
    PlannedGroup,
    PlannedStream,
    PlannedTable,
    checked_step_name,
    repartition_step,
)
from topology.dsl.printing import Output, Printer, ShownTable
from topology.graph.operations import Filter, ForEach, Function, MapValues, PassThrough, Process, SelectKey, TableSource
from topology.spec.codecs import AnySerde
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import NOTHING, OF_PARTITIONER, OF_RECORD, OF_TOPIC, FailedValue, check_function, of_values
from topology.spec.names import check_name, in_stable_order
from topology.spec.stores import Store


def merge(stream: PlannedStream, other: object, name: str | None) -> PlannedStream:
    """The records of both; serdes are kept where both have the same. Raises TopologyError for another builder's."""
    if not isinstance(other, PlannedStream) or other.plan is not stream.plan:
        raise TopologyError("merge() needs both sides from one StreamsBuilder", call_site())
    step = stream.add("merge", "KSTREAM-MERGE-", name, NO_FUNCTION, PassThrough(), parents=(stream.step, other.step))
    return PlannedStream(
        stream.plan,
        step,
        stream.key if stream.key == other.key else stream.key.changed("merge", step.site, keep=False),
        stream.value if stream.value == other.value else stream.value.changed("merge", step.site, keep=False),
        stream.sources | other.sources,
        stream.repartition_required or other.repartition_required,
    )


class _Mapped(NamedTuple):
    value: object


def try_map_values(
    stream: PlannedStream, fn: Function, with_key: bool, name: str | None
) -> tuple[PlannedStream, PlannedStream]:
    """The stream with mapped values, and that of the values for which the function raised."""
    check_function(fn, "try_map_values", of_values(with_key))

    def attempt(key: object, value: object) -> _Mapped | FailedValue[object]:
        try:
            return _Mapped(fn(key, value) if with_key else fn(value))
        except Exception as error:  # noqa: BLE001  # whatever it raises is the other stream's
            return FailedValue(value, error)

    def kept(of: type, suffix: str) -> PlannedStream:
        operation = Filter(predicate=lambda _, each: type(each) is of)
        return tried.then("filter", "KSTREAM-FILTER-", named(suffix), operation.predicate, operation)

    def named(suffix: str) -> str | None:
        return None if name is None else name + suffix

    tried = map_values(stream, attempt, name, with_key=True)
    good, failed = kept(_Mapped, "-ok"), kept(FailedValue, "-failed")
    return map_values(good, lambda each: each[0], named("-value")), failed


def map_values(stream: PlannedStream, fn: Function, name: str | None, *, with_key: bool = False) -> PlannedStream:
    """The stream with other values."""
    operation = MapValues(fn=fn, with_key=with_key)
    return stream.then("map_values", "KSTREAM-MAPVALUES-", name, fn, operation, new_value=True)


def split(stream: PlannedStream, name: str | None, predicates: Iterable[Function] = ()) -> SplitStep:
    """The step that branches are added to; ``predicates`` are checked before, where they are known."""
    for predicate in predicates:
        check_function(predicate, "branch", OF_RECORD)
    step = SplitStep(
        name=stream.plan.named(checked_step_name(name), "KSTREAM-BRANCH-"), site=call_site(), parents=(stream.step,)
    )
    stream.plan.add(step)
    return step


def branch(stream: PlannedStream, step: SplitStep, predicate: object, name: str | None, index: int) -> PlannedStream:
    """One more branch of a split; ``index`` numbers those without a name. ``predicate`` NO_FUNCTION: for what is left."""
    if predicate is not NO_FUNCTION:
        check_function(predicate, "branch", OF_RECORD)
    child = check_name(step.name + (str(index) if name is None else name), "branch")
    stream.plan.number(child)
    step.predicates.append(predicate if callable(predicate) else None)
    step.branches.append(child)
    taken = OperatorStep(name=child, site=call_site(), parents=(step,), operation=PassThrough())
    stream.plan.add(taken)
    return stream.behind(taken, stream.key, stream.value)


def print_records(
    stream: PlannedStream, label: str | None, mapper: Function | None, to: Output, every: int, name: str | None
) -> None:
    """Ends a stream in a printer."""
    if mapper is not None:
        check_function(mapper, "print", OF_RECORD)
    own = stream.plan.named(checked_step_name(name), "KSTREAM-PRINTER-")
    printer = Printer(own if label is None else label, mapper, to, every)
    stream.plan.add(OperatorStep(name=own, site=call_site(), parents=(stream.step,), operation=ForEach(fn=printer)))


def print_table(
    stream: PlannedStream, size: int, title: str | None, by_key: bool, to: Output, name: str | None
) -> None:
    """Ends a stream in a table that is redrawn."""
    own = stream.plan.number("KSTREAM-PRINTER-") if name is None else name
    shown = ShownTable(own if title is None else title, size, by_key, to)
    process(stream, shown.printer, (), own, fixed_key=False)


def sink(
    stream: PlannedStream,
    topic: str | Function,
    key: AnySerde,
    value: AnySerde,
    partitioner: Function | None,
    name: str | None,
) -> None:
    """Ends a stream in a topic, or in the one that a function names for each record."""
    fixed = check_name(topic, "topic") if isinstance(topic, str) else None
    if fixed is None:
        check_function(topic, "to", OF_TOPIC)
    if partitioner is not None:
        check_function(partitioner, "to", OF_PARTITIONER)
    step = SinkStep(
        name=stream.plan.named(checked_step_name(name), "KSTREAM-SINK-"),
        site=call_site(),
        parents=(stream.step,),
        topic=fixed,
        topic_extractor=None if isinstance(topic, str) else topic,
        key=stream.key.or_given(key),
        value=stream.value.or_given(value),
        partitioner=partitioner,
    )
    stream.plan.add(step)


def repartition(
    stream: PlannedStream,
    name: str | None,
    key: AnySerde,
    value: AnySerde,
    partitions: int | None,
    partitioner: Function | None,
) -> PlannedStream:
    """The stream behind an internal topic that the program asks for."""
    if partitions is not None and partitions < 1:
        raise TopologyError(f"a repartition topic needs at least 1 partition, not {partitions}", call_site())
    if partitioner is not None:
        check_function(partitioner, "repartition", OF_PARTITIONER)
    plan = stream.plan
    prefix = plan.number("KSTREAM-REPARTITION-") if name is None else check_name(name, "repartition topic")
    own_key, own_value = stream.key.or_given(key), stream.value.or_given(value)
    step = repartition_step(
        plan, stream.step, prefix, own_key, own_value, partitioner=partitioner, partitions=partitions
    )
    step.is_mergeable = False
    plan.add(step)
    return PlannedStream(plan, step, own_key, own_value, frozenset((step.name,)))


def group_by_key(stream: PlannedStream, key: AnySerde, value: AnySerde, name: str | None) -> PlannedGroup:
    """The stream grouped by its key."""
    return PlannedGroup(
        stream.plan,
        stream.step,
        stream.key.or_given(key),
        stream.value.or_given(value),
        stream.sources,
        stream.repartition_required,
        checked_step_name(name),
    )


def group_by(stream: PlannedStream, fn: Function, key: AnySerde, value: AnySerde, name: str | None) -> PlannedGroup:
    """The stream grouped by another key."""
    step = stream.add("group_by", "KSTREAM-KEY-SELECT-", name, fn, SelectKey(fn=fn))
    own_key = stream.key.changed("group_by", step.site).or_given(key)
    own_value = stream.value.or_given(value)
    return PlannedGroup(stream.plan, step, own_key, own_value, stream.sources, True, checked_step_name(name))


def to_table(
    stream: PlannedStream, name: str | None, store: str | Store | None, key: AnySerde, value: AnySerde
) -> PlannedTable:
    """The stream as a table."""
    plan, wanted = stream.plan, as_store(store)
    node = plan.named(checked_step_name(name), "KSTREAM-TOTABLE-")
    store_name = wanted.name or generated_store_name(plan, "KSTREAM-TOTABLE-")
    key, value = given_serdes(wanted, key, value, "to_table")
    own_key, own_value = stream.key.or_given(key), stream.value.or_given(value)
    parent, sources = stream.step, stream.sources
    if stream.repartition_required:
        parent = repartition_step(plan, parent, node, own_key, own_value)
        plan.add(parent)
        sources = frozenset((parent.name,))
    table = TableState(
        kind="source",
        name=node,
        store=key_value_store(wanted, store_name, own_key, own_value),
        materialized=wanted.name is not None,
        make=lambda name: TableSource(store=name),
    )
    step = TableStep(name=node, site=call_site(), parents=(parent,), table=table)
    plan.add(step)
    return PlannedTable(plan, step, table, own_key, own_value, sources)


def process(
    stream: PlannedStream, supplier: Function, stores: Iterable[str | Store], name: str | None, *, fixed_key: bool
) -> PlannedStream:
    """The stream behind a processor of the program's; ``fixed_key``: one that keeps keys."""
    operator = "process_values" if fixed_key else "process"
    step = _processor(stream, operator, supplier, stores, name, fixed_key=fixed_key)
    return stream.behind(
        step,
        stream.key if fixed_key else stream.key.changed(operator, step.site, keep=False),
        stream.value.changed(operator, step.site, keep=False),
        rekeyed=not fixed_key,
    )


def _processor(
    stream: PlannedStream,
    operator: str,
    supplier: Function,
    stores: Iterable[str | Store],
    name: str | None,
    *,
    fixed_key: bool,
) -> OperatorStep:
    check_function(supplier, operator, NOTHING)
    used, own = named_stores(stores)
    prefix = "KSTREAM-PROCESSVALUES-" if fixed_key else "KSTREAM-PROCESSOR-"
    step = OperatorStep(
        name=stream.plan.number(prefix) if name is None else check_name(name, "step"),
        site=call_site(),
        parents=(stream.step,),
        operation=Process(supplier=supplier, fixed_key=fixed_key),
        stores=tuple(dict.fromkeys(used)),
        own_stores=own,
    )
    stream.plan.add(step)
    return step


def named_stores(stores: Iterable[str | Store]) -> tuple[tuple[str, ...], tuple[PlannedStore, ...]]:
    """The names of the stores that a processor uses, and those among them that it brings."""
    own: list[PlannedStore] = []
    used: list[str] = []
    for store in in_stable_order(stores):
        if isinstance(store, Store):
            own.append(added_store(store))
            used.append(own[-1].name)
        else:
            used.append(check_name(store, "store"))
    return tuple(used), tuple(own)
