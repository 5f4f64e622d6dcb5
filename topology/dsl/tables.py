"""KTable: a table of the newest value of each key, and the changes that make it.

1. A table keeps a store only where the program names one, or where an operator has to read the table: then the nearest table
   above it that can have one keeps it.
2. Old values flow beside the new ones where an operator needs them; a filter takes them where they cost nothing.

Source: org.apache.kafka.streams.kstream.KTable, KTableImpl, KTableFilter and KTableSource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from topology.build.materialize import (
    added_store,
    as_store,
    buffer_store,
    closed_store,
    generated_store_name,
    given_serdes,
    key_value_store,
)
from topology.build.plan import Carried, LateSource, OperatorStep, Plan, PlannedStore, Step, TableState, TableStep
from topology.dsl.late_records import late_stream
from topology.dsl.streams import KStream
from topology.dsl.table_joins import TableJoins
from topology.graph.operations import (
    GroupTable,
    Operation,
    Suppress,
    TableFilter,
    TableMapValues,
    TableToStream,
    TableTransformValues,
)
from topology.spec.codecs import Serde
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import NOTHING, OF_RECORD, Predicate, check_function, of_values
from topology.spec.names import check_name
from topology.spec.processor import ValueTransformer
from topology.spec.stores import Store
from topology.spec.suppressed import Suppressed

if TYPE_CHECKING:
    from topology.dsl.grouped_tables import KGroupedTable

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
K2 = TypeVar("K2")


class KTable(TableJoins[K, V]):
    """A table with keys of type ``K`` and values of type ``V``."""

    __slots__ = ("_key", "_plan", "_sources", "_step", "_table", "_value")

    def __init__(
        self, plan: Plan, step: Step, table: TableState, key: Carried, value: Carried, sources: frozenset[str]
    ) -> None:
        self._plan = plan
        self._step = step
        self._table = table
        self._key = key
        self._value = value
        self._sources = sources

    @property
    def queryable_store_name(self) -> str | None:
        """The name of the store by which the table can be asked, or None."""
        if self._table.queryable_name is not None:
            return self._table.queryable_name
        return self._table.store.name if self._table.materialized and self._table.store is not None else None

    def filter(
        self,
        predicate: Predicate[K, V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` is true; the others are deletions downstream."""
        check_function(predicate, "filter", OF_RECORD)
        return self._derived(
            "filter",
            "KTABLE-FILTER-",
            lambda own: TableFilter(predicate=predicate, store=own),
            (name, store, key, value),
            self._value,
            takes_old_values=True,
        )

    def filter_not(
        self,
        predicate: Predicate[K, V],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KTable[K, V]:
        """The rows for which ``predicate(key, value)`` is false; the others are deletions downstream."""
        check_function(predicate, "filter_not", OF_RECORD)
        return self._derived(
            "filter_not",
            "KTABLE-FILTER-",
            lambda own: TableFilter(predicate=predicate, negate=True, store=own),
            (name, store, key, value),
            self._value,
            takes_old_values=True,
        )

    @overload
    def map_values(
        self,
        fn: Callable[[V], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        fn: Callable[[K, V], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        fn: Callable[..., Any],
        *,
        with_key: bool = False,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[Any] | None = None,
    ) -> KTable[K, Any]:
        """The table with each value ``fn(value)``, or ``fn(key, value)`` where ``with_key``. Deletions stay deletions."""
        check_function(fn, "map_values", of_values(with_key))
        return self._derived(
            "map_values",
            "KTABLE-MAPVALUES-",
            lambda own: TableMapValues(fn=fn, with_key=with_key, store=own),
            (name, store, key, value),
            self._value.changed("map_values", call_site()),
            takes_old_values=False,
        )

    @overload
    def to_stream(self, mapper: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, mapper: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    def to_stream(
        self, mapper: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[K, V] | KStream[Any, V]:
        """The changes of the table as a stream of its new values; a deletion is a None.

        ``mapper(key, value)``: the key of the stream's record, as with ``to_stream().select_key(mapper)``.
        """
        given = None if name is None else check_name(name, "step")
        step = OperatorStep(
            name=self._plan.named(given, "KTABLE-TOSTREAM-"),
            site=call_site(),
            parents=(self._step,),
            operation=TableToStream(),
        )
        self._plan.add(step)
        stream: KStream[K, V] = KStream(self._plan, step, self._key, self._value, self._sources, False)
        return stream if mapper is None else stream.select_key(mapper)

    def group_by(
        self,
        fn: Callable[[K, V], tuple[K2, V2]],
        *,
        name: str | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Groups the rows by the key of ``fn(key, value) -> (key, value)``; ``name`` names the repartition topic too.

        A row whose new key or value is None belongs to no group. ``key``, ``value``: serdes of what ``fn`` returns.
        """
        from topology.dsl.grouped_tables import KGroupedTable

        check_function(fn, "group_by", OF_RECORD)
        given = None if name is None else check_name(name, "step")
        site = call_site()
        step = OperatorStep(
            name=self._plan.named(given, "KTABLE-SELECT-"),
            site=site,
            parents=(self._step,),
            operation=GroupTable(fn=fn),
        )
        self._plan.add(step)
        self._table.send_old_values(force=True)
        own_key, own_value = self._key.changed("group_by", site), self._value.changed("group_by", site)
        return KGroupedTable(self._plan, step, own_key.or_given(key), own_value.or_given(value), name)

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """The table with fewer changes: those that ``suppressed`` holds back are left out.

        Raises TopologyError where results are to be final and the table has no windows that close.
        """
        if not isinstance(suppressed, Suppressed):
            raise TopologyError(f"suppress() takes Suppressed.until_...(), not {suppressed!r}", call_site())
        plan, buffer, site = self._plan, suppressed.buffer, call_site()
        if self._table.is_versioned():
            raise TopologyError(
                "suppress() is for tables without versions: name another kind of store for this one", site
            )
        node = plan.number("KTABLE-SUPPRESS-") if name is None else check_name(name, "step")
        store = generated_store_name(plan, "KTABLE-SUPPRESS-") if name is None else f"{node}-store"
        wait_ms = suppressed.wait_ms if suppressed.wait_ms is not None else self._table.closing_ms()
        if wait_ms is None:
            raise TopologyError(
                "suppress() until windows close is for tables of windows that close: this one has none", site
            )
        operation = Suppress(
            store=store,
            wait_ms=wait_ms,
            by_window=suppressed.wait_ms is None,
            max_records=buffer.max_records,
            max_bytes=buffer.max_bytes,
            shuts_down=buffer.when_full == "shut_down",
            idle_timeout_ms=suppressed.idle_timeout_ms,
        )
        planned: tuple[PlannedStore, ...] = (buffer_store(buffer, store, self._key, self._value),)
        closes = operation.by_window and operation.idle_timeout_ms is not None
        if closes:
            planned = (*planned, closed_store(planned[0]))
            operation = replace(operation, closed=planned[1].name, session_gap_ms=self._table.session_gap())
        self._table.send_old_values(force=True)
        table = TableState(
            kind="derived", name=node, store=None, materialized=False, make=lambda _: operation, parent=self._table
        )
        step = TableStep(
            name=node,
            site=site,
            parents=(self._step,),
            table=table,
            stores=tuple(each.name for each in planned),
            own_stores=planned,
        )
        if closes:
            table.late = LateSource((step,), self._key, self._value, self._sources)
        plan.add(step)
        return KTable(plan, step, table, self._key, self._value, self._sources)

    @overload
    def late(self, *, name: str | None = None, key: None = None, value: None = None) -> KStream[Any, Any]: ...
    @overload
    def late(self, *, name: str | None = None, key: None = None, value: Serde[V2]) -> KStream[Any, V2]: ...
    @overload
    def late(self, *, name: str | None = None, key: Serde[K2], value: Serde[V2]) -> KStream[K2, V2]: ...
    def late(
        self, *, name: str | None = None, key: Serde[Any] | None = None, value: Serde[Any] | None = None
    ) -> KStream[Any, Any]:
        """The records that the windowed aggregation which made this table dropped as too late, as they came to it.

        A record belongs here where none of its windows took it. Behind ``suppress`` with ``idle_timeout``: the changes of
        windows that were closed already. ``key``, ``value``: serdes of those records, where they are not known. Raises
        TopologyError for a table whose operator drops nothing as late, and where the records have been taken already.
        """
        if self._table.late is None:
            raise TopologyError(
                "late() is for the table that an aggregation in windows that close makes, or suppress() with "
                "idle_timeout=: nothing is dropped as late here",
                call_site(),
            )
        return late_stream(self._plan, self._table.late, name, key, value)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *,
        stores: Iterable[str | Store] = (),
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[V2] | None = None,
    ) -> KTable[K, V2]:
        """The table with each value ``transform(key, value)`` of a transformer; ``supplier()`` makes one per task.

        Deletions are transformed too. ``stores``: stores that the transformer may use, by name or as a Store.
        """
        check_function(supplier, "transform_values", NOTHING)
        own: list[PlannedStore] = []
        names: list[str] = []
        for each in stores:
            if isinstance(each, Store):
                own.append(added_store(each))
                names.append(own[-1].name)
            else:
                names.append(check_name(each, "store"))
        table = self._derived(
            "transform_values",
            "KTABLE-TRANSFORMVALUES-",
            lambda own: TableTransformValues(supplier=supplier, store=own),
            (name, store, key, value),
            self._value.changed("transform_values", call_site()),
            takes_old_values=False,
        )
        step = table._step
        assert isinstance(step, TableStep)
        step.stores, step.own_stores = tuple(names), tuple(own)
        return table

    def _derived(
        self,
        operator: str,
        prefix: str,
        make: Callable[[str | None], Operation],
        options: tuple[str | None, str | Store | None, Serde[Any] | None, Serde[Any] | None],
        value: Carried,
        *,
        takes_old_values: bool,
    ) -> KTable[K, Any]:
        name, store, key_given, value_given = options
        plan, wanted = self._plan, as_store(store)
        if store is not None and wanted.name is None:
            generated_store_name(plan, prefix)
        key_given, value_given = given_serdes(wanted, key_given, value_given, operator)
        own_key, own_value = self._key.or_given(key_given), value.or_given(value_given)
        node = plan.named(None if name is None else check_name(name, "step"), prefix)
        planned = None
        if wanted.name is not None:
            planned = key_value_store(wanted, wanted.name, own_key, own_value)
        table = TableState(
            kind="derived",
            name=node,
            store=planned,
            materialized=planned is not None,
            make=make,
            parent=self._table,
            sends_old_values=takes_old_values and self._table.send_old_values(force=False),
        )
        step = TableStep(name=node, site=call_site(), parents=(self._step,), table=table)
        plan.add(step)
        return KTable(plan, step, table, own_key, own_value, self._sources)
