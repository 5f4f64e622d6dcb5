"""Joins of tables: what a KTable can be joined with, and the steps that makes.

1. Both sides keep a store, since a change of one side looks up the other's row. A left or outer join also takes old values
   from the sides whose rows may stand alone, to tell a deletion from a row that never was.
2. The result keeps a store where the program gives one (``store=``); else its rows are joined anew when they are asked for.

Source: KTableImpl.doJoin of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from topology.build.materialize import as_store, generated_store_name, given_serdes, key_value_store
from topology.build.plan import Carried, Plan, Step, TableJoinStep, TableState
from topology.dsl.foreign_key_joins import ForeignKeyJoin, add_foreign_key_join
from topology.graph.operations.joins import JoinKind, TableJoinMerge, TableTableJoin
from topology.spec.codecs import Serde, check_keys
from topology.spec.errors import TopologyError, UnsupportedError, call_site
from topology.spec.functions import OF_JOINER, OF_PARTITIONER, OF_VALUE, Partitioner, check_function
from topology.spec.names import check_name
from topology.spec.stores import Store

if TYPE_CHECKING:
    from topology.dsl.tables import KTable

K = TypeVar("K")
V = TypeVar("V")
KO = TypeVar("KO")
VO = TypeVar("VO")
R = TypeVar("R")

_Options = tuple[str | None, str | Store | None, Serde[Any] | None, Serde[Any] | None]


class TableJoins(Generic[K, V]):
    """The joins of a :class:`topology.KTable`."""

    __slots__ = ()

    _key: Carried
    _plan: Plan
    _sources: frozenset[str]
    _step: Step
    _table: TableState
    _value: Carried

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], R],
        *,
        foreign_key: None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], R],
        *,
        foreign_key: Callable[[V], KO | None],
        other_partitioner: Partitioner[KO, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., R],
        *,
        foreign_key: Callable[[V], Any] | None = None,
        other_partitioner: Partitioner[Any, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]:
        """The table of ``joiner(value, other value)`` for the keys that both tables have.

        ``name`` names the steps; ``store`` keeps the result, with the serdes ``key`` and ``value``. The topics of both sides
        need equal partition counts. A result has the later timestamp of the two rows.

        With ``foreign_key(value)`` each row is joined with the row of ``other`` under that key: the tables need not have the
        same keys, nor partitions. Both go through internal topics. A row without a foreign key is dropped.
        ``other_partitioner(topic, foreign key, None, partitions)``: where the rows of ``other`` are, if its topic was not
        written by the default partitioner. An answer always finds back to the partition that its row is in.
        """
        return self._join_table(
            "join", "inner", other, joiner, (name, store, key, value), foreign_key, other_partitioner
        )

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], R],
        *,
        foreign_key: None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], R],
        *,
        foreign_key: Callable[[V], KO | None],
        other_partitioner: Partitioner[KO, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]: ...
    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[..., R],
        *,
        foreign_key: Callable[[V], Any] | None = None,
        other_partitioner: Partitioner[Any, None] | None = None,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]:
        """As :meth:`join`, for every key of this table; the other value is None where the other table has none.

        With a foreign key that is so too for rows whose ``foreign_key(value)`` is None.
        """
        return self._join_table(
            "left_join", "left", other, joiner, (name, store, key, value), foreign_key, other_partitioner
        )

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], R],
        *,
        name: str | None = None,
        store: str | Store | None = None,
        key: Serde[K] | None = None,
        value: Serde[R] | None = None,
    ) -> KTable[K, R]:
        """As :meth:`join`, for every key that one of the tables has; the value that is missing is None."""
        return self._join_table("outer_join", "outer", other, joiner, (name, store, key, value))

    def _join_table(
        self,
        operator: str,
        kind: JoinKind,
        other: KTable[Any, Any],
        joiner: Callable[..., Any],
        options: _Options,
        foreign_key: Callable[[V], Any] | None = None,
        other_partitioner: Partitioner[Any, None] | None = None,
    ) -> KTable[K, Any]:
        from topology.dsl.tables import KTable

        right = check_table(self._plan, operator, other)
        check_function(joiner, operator, OF_JOINER)
        name, store, key_given, value_given = options
        plan, wanted, site = self._plan, as_store(store), call_site()
        given = None if name is None else check_name(name, "step")
        if foreign_key is not None:
            return self._join_foreign(operator, right, (joiner, foreign_key, other_partitioner), kind, options)
        if other_partitioner is not None:
            raise TopologyError(f"{operator}(other_partitioner=) is for joins with foreign_key=", site)
        store_name = wanted.name
        if store is not None and store_name is None:
            store_name = generated_store_name(plan, "KTABLE-MERGE-")
        key_given, value_given = given_serdes(wanted, key_given, value_given, operator)
        own_key = self._key.or_given(key_given)
        own_value = Carried().changed(operator, site, keep=False).or_given(value_given)
        merge = plan.named(given, "KTABLE-MERGE-")
        sources = self._sources | right._sources
        check_keys(operator, self._key.serde, right._key.serde)
        plan.copartitioned.append((sources, site))
        if kind != "inner":
            self._table.send_old_values(force=True)
        if kind == "outer":
            right._table.send_old_values(force=True)
        this, that = (
            plan.suffixed(given, f"-join-{side}", f"KTABLE-JOIN{side.upper()}-") for side in ("this", "other")
        )
        planned = None if store_name is None else key_value_store(wanted, store_name, own_key, own_value)
        table = TableState(
            kind="join",
            name=merge,
            store=planned,
            materialized=planned is not None,
            make=lambda own: TableJoinMerge(store=own),
            sides=(self._table, right._table),
        )
        step = TableJoinStep(
            name=merge,
            site=site,
            parents=(self._step, right._step),
            table=table,
            this_name=this,
            other_name=that,
            this_operation=TableTableJoin(table=right._table.name, joiner=joiner, kind=kind, side="left"),
            other_operation=TableTableJoin(table=self._table.name, joiner=joiner, kind=kind, side="right"),
            this_stores=self._table.materialize(),
            other_stores=right._table.materialize(),
        )
        plan.add(step)
        return KTable(plan, step, table, own_key, own_value, sources)

    def _join_foreign(
        self,
        operator: str,
        right: KTable[Any, Any],
        functions: tuple[Callable[..., Any], Callable[[V], Any], Partitioner[Any, None] | None],
        kind: JoinKind,
        options: _Options,
    ) -> KTable[K, Any]:
        joiner, foreign_key, other_partitioner = functions
        check_function(foreign_key, operator, OF_VALUE)
        if other_partitioner is not None:
            check_function(other_partitioner, operator, OF_PARTITIONER)
        name, store, key_given, value_given = options
        wanted, site = as_store(store), call_site()
        key_given, value_given = given_serdes(wanted, key_given, value_given, operator)
        join = ForeignKeyJoin(
            foreign_key=foreign_key,
            joiner=joiner,
            left=kind == "left",
            name=name,
            store=wanted,
            key=self._key.or_given(key_given),
            value=Carried().changed(operator, site, keep=False).or_given(value_given),
            site=site,
            other_partitioner=other_partitioner,
        )
        this: Any = self
        return add_foreign_key_join(this, right, join)


def check_table(plan: Plan, operator: str, other: object) -> KTable[Any, Any]:
    """``other`` as the table to join with. Raises UnsupportedError where it is none, TopologyError for another builder's."""
    from topology.dsl.tables import KTable

    if not isinstance(other, KTable):
        raise UnsupportedError(f"{operator}() joins a KTable with a KTable, not with {other!r}", call_site())
    if other._plan is not plan:
        raise TopologyError(f"{operator}() needs both sides from one StreamsBuilder", call_site())
    return other
