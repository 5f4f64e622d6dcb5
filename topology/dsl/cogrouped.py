"""Several grouped streams aggregated into one table.

1. Each group has an aggregator of its own; they share the initializer, the store and the windows.
2. All groups must be partitioned alike. A group whose key may have changed is read through a repartition topic, and it is
   that topic which must fit the others. The first such group without a name has the store's name for its topic, as in Kafka
   Streams; a number behind the name tells the others from it.

Source: org.apache.kafka.streams.kstream.CogroupedKStream and CogroupedStreamAggregateBuilder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from topology.build.materialize import as_store, generated_store_name, given_serdes
from topology.build.plan import Carried, LateSource, PlannedStore, Step, TableState, TableStep
from topology.dsl.grouped import KGroupedStream
from topology.dsl.grouping import Group, Options, Windowing
from topology.dsl.tables import KTable
from topology.graph.operations import Function, TableMerge
from topology.spec.codecs import Serde
from topology.spec.errors import TopologyError, UnsupportedError, call_site
from topology.spec.functions import NOTHING, OF_AGGREGATOR, OF_MERGER, check_function
from topology.spec.names import check_name
from topology.spec.stores import Store
from topology.spec.windows import AnyWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windowed

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_PREFIX = "COGROUPKSTREAM-AGGREGATE-"
Member = tuple[Group, Callable[..., Any]]
"""A group and its aggregator."""


class CogroupedKStream(Generic[K, A]):
    """Grouped streams of one key type that are aggregated together into values of type ``A``."""

    __slots__ = ("_members",)

    def __init__(self, members: tuple[Member, ...]) -> None:
        self._members = members

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """One more group, with ``aggregator(key, value, aggregate)`` for its values."""
        if not isinstance(grouped, KGroupedStream):
            raise UnsupportedError(f"cogroup() takes a grouped stream, not {grouped!r}", call_site())
        check_function(aggregator, "cogroup", OF_AGGREGATOR)
        group = grouped._group
        if any(group is known for known, _ in self._members):
            raise TopologyError("this group is cogrouped already: give each group one aggregator", call_site())
        if self._members and group.plan is not self._members[0][0].plan:
            raise TopologyError("cogroup() takes streams of one StreamsBuilder", call_site())
        return CogroupedKStream((*self._members, (group, aggregator)))

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | UnlimitedWindows
    ) -> TimeWindowedCogroupedKStream[K, A]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, A]: ...
    def windowed_by(
        self, windows: AnyWindows
    ) -> TimeWindowedCogroupedKStream[K, A] | SessionWindowedCogroupedKStream[K, A]:
        """The groups cut into windows of event time, or into sessions."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._members, Windowing(windows))
        if not isinstance(windows, TimeWindows | SlidingWindows | UnlimitedWindows):
            raise UnsupportedError(
                f"windowed_by() takes TimeWindows, SlidingWindows, UnlimitedWindows or SessionWindows, not {windows!r}",
                call_site(),
            )
        return TimeWindowedCogroupedKStream(self._members, Windowing(windows))

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[K, A]:
        """The aggregate of each key over all groups, from ``initializer()`` on. ``value``: serde of the aggregate."""
        check_function(initializer, "aggregate", NOTHING)
        return _aggregate(self._members, initializer, (name, store, key, value), Windowing())


class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams cut into windows."""

    __slots__ = ("_members", "_windowing")

    def __init__(self, members: tuple[Member, ...], windowing: Windowing) -> None:
        self._members = members
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """The aggregate of each key and window over all groups, from ``initializer()`` on."""
        check_function(initializer, "aggregate", NOTHING)
        return _aggregate(self._members, initializer, (name, store, key, value), self._windowing)


class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams cut into sessions."""

    __slots__ = ("_members", "_windowing")

    def __init__(self, members: tuple[Member, ...], windowing: Windowing) -> None:
        self._members = members
        self._windowing = windowing

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """The aggregate of each key and session over all groups; ``merger(key, aggregate, aggregate)`` joins sessions."""
        check_function(initializer, "aggregate", NOTHING)
        check_function(merger, "aggregate", OF_MERGER)
        return _aggregate(self._members, initializer, (name, store, key, value), self._windowing, merger)


def _aggregate(
    members: tuple[Member, ...],
    initializer: Function,
    options: Options,
    windowing: Windowing,
    merger: Function | None = None,
) -> KTable[Any, Any]:
    name, store, key_given, value_given = options
    first = members[0][0]
    plan, wanted, site = first.plan, as_store(store), call_site()
    given = None if name is None else check_name(name, "step")
    store_name = wanted.name or generated_store_name(plan, _PREFIX)
    key_given, value_given = given_serdes(wanted, key_given, value_given, "aggregate")
    own_key = first.key.or_given(key_given)
    own_value = Carried().changed("aggregate", site).or_given(value_given)
    planned = windowing.store(wanted, store_name, own_key, own_value)
    parents, sources = _parents(members, store_name)
    plan.copartitioned.append((sources, site))
    steps: list[TableStep] = []
    for index, ((_, aggregator), parent) in enumerate(zip(members, parents, strict=True)):
        node = plan.named(given and f"{given}-cogroup-agg-{index}", _PREFIX)
        operation = windowing.operation(store_name, "aggregate", (initializer, aggregator), merger)
        steps.append(TableStep(name=node, site=site, parents=(parent,), table=_side(node, planned, operation)))
        plan.add(steps[-1])
    node = plan.named(given and f"{given}-cogroup-merge", "COGROUPKSTREAM-MERGE-")
    merge = TableMerge(store=store_name, windows=windowing.windows)
    table = TableState(
        kind="join",
        name=node,
        store=None,
        materialized=False,
        make=lambda _: merge,
        sides=tuple(step.table for step in steps),
        closes_after_ms=windowing.closes_after_ms,
        session_gap_ms=windowing.windows.gap_ms if isinstance(windowing.windows, SessionWindows) else 0,
        queryable_name=store_name,
    )
    step = TableStep(name=node, site=site, parents=tuple(steps), table=table)
    if windowing.closes_after_ms is not None:
        values = {group.value for group, _ in members}
        late_value = values.pop() if len(values) == 1 else Carried()
        table.late = LateSource(tuple(steps), first.key, late_value, sources)
    plan.add(step)
    return KTable(plan, step, table, windowing.key(own_key), own_value, sources)


def _side(node: str, store: PlannedStore, operation: Any) -> TableState:
    return TableState(kind="aggregate", name=node, store=store, materialized=True, make=lambda _: operation)


def _parents(members: tuple[Member, ...], store_name: str) -> tuple[list[Step], frozenset[str]]:
    """For each group the step behind which its records are where those of all are, and the names of all sources."""
    parents: list[Step] = []
    sources: frozenset[str] = frozenset()
    unnamed = 0
    for group, _ in members:
        prefix = store_name
        if group.repartition_required and group.name is None:
            unnamed += 1
            prefix = store_name if unnamed == 1 else f"{store_name}-{unnamed}"
        parent, own = group.repartitioned(prefix)
        parents.append(parent)
        sources |= own
    return parents, sources
