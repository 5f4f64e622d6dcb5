"""What all aggregations of grouped streams share: repartitioning, stores, windows.

1. Where the key may have changed, the aggregation reads from a repartition topic. A named group has one topic for all of its
   aggregations; an unnamed group has one for each, named by the aggregation's store.
2. An aggregation always has a store. It takes its generated store name before its step's name.

Source: org.apache.kafka.streams.kstream.internals.GroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from topology.build.materialize import (
    Materialized,
    as_store,
    closed_store,
    closed_store_name,
    generated_store_name,
    given_serdes,
    key_value_store,
    session_store,
    window_store,
)
from topology.build.plan import LateSource, PlannedSerde, PlannedStore, TableState, TableStep
from topology.build.planned import PlannedGroup, PlannedTable
from topology.graph.operations import Aggregate, Function, Operation, SessionAggregate, SlidingAggregate
from topology.spec.codecs import long, session_windowed, time_windowed
from topology.spec.errors import TopologyError, UnsupportedError, call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_MERGER, OF_REDUCER, check_function
from topology.spec.names import check_name
from topology.spec.stores import Store
from topology.spec.windows import (
    AnyWindows,
    Duration,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    UnlimitedWindows,
    to_idle_timeout_ms,
)

Aggregation = Literal["count", "reduce", "aggregate"]


@dataclass(frozen=True, slots=True)
class Windowing:
    """How an aggregation is cut into windows; ``windows`` None: not at all."""

    windows: AnyWindows | None = None
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    idle_timeout_ms: int | None = None

    def emitting(self, strategy: EmitStrategy, idle_timeout: Duration | None) -> Windowing:
        """The same windows with that strategy. Raises UnsupportedError where they never close, WindowError."""
        try:
            strategy = EmitStrategy(strategy)
        except ValueError:
            choices = " or ".join(map(str, EmitStrategy))
            raise TopologyError(f"emit_strategy() takes {choices}, not {strategy!r}", call_site()) from None
        if idle_timeout is not None and strategy is not EmitStrategy.ON_WINDOW_CLOSE:
            raise UnsupportedError(
                "idle_timeout= closes windows, so it goes with EmitStrategy.ON_WINDOW_CLOSE only", call_site()
            )
        if strategy is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self.windows, UnlimitedWindows):
            raise UnsupportedError("unlimited windows are never closed: emit them on window update", call_site())
        return replace(self, emit=strategy, idle_timeout_ms=to_idle_timeout_ms(idle_timeout))

    def key(self, key: PlannedSerde) -> PlannedSerde:
        """The serde of the result's keys."""
        windows = self.windows
        if windows is None:
            return key
        if isinstance(windows, SessionWindows):
            return key.wrapped(session_windowed)
        size_ms = windows.size_ms
        return key.wrapped(lambda serde: time_windowed(serde, size_ms))

    def store(self, wanted: Store, name: str, key: PlannedSerde, value: PlannedSerde) -> PlannedStore:
        """The store of the result."""
        windows = self.windows
        if windows is None:
            return key_value_store(wanted, name, key, value)
        if isinstance(windows, SessionWindows):
            return session_store(wanted, name, key, value, windows)
        return window_store(wanted, name, key, value, windows)

    @property
    def closes_after_ms(self) -> int | None:
        """How long after its end a window is closed; None where it never is."""
        windows = self.windows
        if windows is None or isinstance(windows, UnlimitedWindows):
            return None
        return windows.grace_ms + (windows.gap_ms if isinstance(windows, SessionWindows) else 0)

    @property
    def session_gap_ms(self) -> int:
        """The gap between sessions; 0 where there are none."""
        return self.windows.gap_ms if isinstance(self.windows, SessionWindows) else 0

    def operation(
        self,
        store: str,
        aggregation: Aggregation,
        functions: tuple[Function | None, Function | None],
        merger: Function | None = None,
    ) -> Operation:
        """The aggregation; ``functions``: initializer and aggregator."""
        initializer, aggregator = functions
        windows, on_close = self.windows, self.emit is EmitStrategy.ON_WINDOW_CLOSE
        idle_timeout_ms, closed = self.idle_timeout_ms, None
        if idle_timeout_ms is not None:
            closed = closed_store_name(store)
        if isinstance(windows, SessionWindows):
            return SessionAggregate(
                store=store,
                aggregation=aggregation,
                windows=windows,
                initializer=initializer,
                aggregator=aggregator,
                merger=merger,
                emit_on_close=on_close,
                idle_timeout_ms=idle_timeout_ms,
                closed=closed,
            )
        if isinstance(windows, SlidingWindows):
            return SlidingAggregate(
                store=store,
                aggregation=aggregation,
                windows=windows,
                initializer=initializer,
                aggregator=aggregator,
                emit_on_close=on_close,
                idle_timeout_ms=idle_timeout_ms,
                closed=closed,
            )
        return Aggregate(
            store=store,
            aggregation=aggregation,
            initializer=initializer,
            aggregator=aggregator,
            windows=windows,
            emit_on_close=on_close,
            idle_timeout_ms=idle_timeout_ms,
            closed=closed,
        )


def count(group: PlannedGroup, options: Materialized, windowing: Windowing) -> PlannedTable:
    """The number of records."""
    _, store, _, _ = options
    if store is not None and as_store(store).name is None and not isinstance(windowing.windows, SlidingWindows):
        # Kafka Streams takes a number more here, too.
        generated_store_name(group.plan, "KSTREAM-AGGREGATE-")
    return _aggregate(group, "count", (None, None), PlannedSerde(long), options, windowing)


def reduce(group: PlannedGroup, reducer: Function, options: Materialized, windowing: Windowing) -> PlannedTable:
    """An aggregation whose first value is the first aggregate."""
    check_function(reducer, "reduce", OF_REDUCER)
    return _aggregate(group, "reduce", (None, reducer), group.value, options, windowing)


def aggregate(
    group: PlannedGroup, functions: tuple[Function, Function], options: Materialized, windowing: Windowing
) -> PlannedTable:
    """An aggregation; ``functions``: initializer and aggregator."""
    _check(functions)
    result = group.value.changed("aggregate", call_site(), keep=False)
    return _aggregate(group, "aggregate", functions, result, options, windowing)


def aggregate_sessions(
    group: PlannedGroup,
    functions: tuple[Function, Function],
    merger: Function,
    options: Materialized,
    windowing: Windowing,
) -> PlannedTable:
    """An aggregation whose sessions ``merger`` makes one of two."""
    _check(functions)
    check_function(merger, "aggregate", OF_MERGER)
    result = group.value.changed("aggregate", call_site(), keep=False)
    return _aggregate(group, "aggregate", functions, result, options, windowing, merger)


def _check(functions: tuple[Function, Function]) -> None:
    for function, arguments in zip(functions, (NOTHING, OF_AGGREGATOR), strict=True):
        check_function(function, "aggregate", arguments)


def _aggregate(
    group: PlannedGroup,
    aggregation: Aggregation,
    functions: tuple[Function | None, Function | None],
    result: PlannedSerde,
    options: Materialized,
    windowing: Windowing,
    merger: Function | None = None,
) -> PlannedTable:
    """Adds an aggregation; ``functions``: initializer and aggregator."""
    name, store, key_given, value_given = options
    plan, wanted = group.plan, as_store(store)
    prefix = "KSTREAM-REDUCE-" if aggregation == "reduce" else "KSTREAM-AGGREGATE-"
    store_name = wanted.name or generated_store_name(plan, prefix)
    key_given, value_given = given_serdes(wanted, key_given, value_given, aggregation)
    own_key, own_value = group.key.or_given(key_given), result.or_given(value_given)
    node = plan.named(None if name is None else check_name(name, "step"), prefix)
    planned = windowing.store(wanted, store_name, own_key, own_value)
    operation = windowing.operation(store_name, aggregation, functions, merger)
    table = TableState(
        kind="aggregate",
        name=node,
        store=planned,
        materialized=True,
        make=lambda _: operation,
        closes_after_ms=windowing.closes_after_ms,
        session_gap_ms=windowing.session_gap_ms,
    )
    parent, sources = group.repartitioned(store_name)
    closed = () if windowing.idle_timeout_ms is None else (closed_store(planned),)
    step = TableStep(
        name=node,
        site=call_site(),
        parents=(parent,),
        table=table,
        stores=tuple(store.name for store in closed),
        own_stores=closed,
    )
    if windowing.closes_after_ms is not None:
        table.late = LateSource((step,), group.key, group.value, sources)
    plan.add(step)
    return PlannedTable(plan, step, table, windowing.key(own_key), own_value, sources)
