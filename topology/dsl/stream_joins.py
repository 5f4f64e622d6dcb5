"""Joins of streams: with another stream, within windows, and with a table.

1. A stream whose key may have changed goes through a repartition topic first; then both sides' topics need equal partition
   counts.
2. Steps, stores and repartition topics are named as in Kafka Streams, and take their numbers in its order.

Source: KStreamImpl and KStreamImplJoin of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from topology.build.join_stores import JoinStores, side_suffix, stream_join_stores
from topology.build.materialize import store_spec
from topology.build.plan import (
    Carried,
    LateSource,
    OperatorStep,
    Plan,
    PlannedStore,
    RepartitionStep,
    Step,
    StreamJoinStep,
)
from topology.dsl.asof_joins import AsofJoins
from topology.dsl.global_tables import GlobalKTable
from topology.graph.operations import PassThrough, StreamTableJoin
from topology.graph.operations.joins import (
    JoinKind,
    StreamGlobalTableJoin,
    StreamJoinWindow,
    StreamStreamJoin,
    StreamTableGraceJoin,
)
from topology.spec.codecs import Serde, bytes_, check_keys
from topology.spec.errors import TopologyError, UnsupportedError, WindowError, call_site
from topology.spec.functions import OF_RECORD, check_function, of_joined
from topology.spec.join_windows import JoinWindows
from topology.spec.names import check_name
from topology.spec.stores import Store
from topology.spec.windows import Duration, to_ms

if TYPE_CHECKING:
    from topology.dsl.streams import KStream
    from topology.dsl.tables import KTable

GK = TypeVar("GK")
K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
VO = TypeVar("VO")
VT = TypeVar("VT")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What the arguments of a join say."""

    operator: str
    kind: JoinKind
    joiner: Callable[..., Any]
    with_key: bool
    name: str | None
    key: Serde[Any] | None
    value: Serde[Any] | None
    other_value: Serde[Any] | None = None
    store: JoinStores = None
    on: Callable[..., Any] | None = None
    grace: Duration | None = None


class StreamJoins(AsofJoins[K, V], Generic[K, V]):
    """The joins of a :class:`topology.KStream`."""

    __slots__ = ()

    _key: Carried
    _plan: Plan
    _repartition_required: bool
    _sources: frozenset[str]
    _step: Step
    _value: Carried

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[V, VT], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[K, V, VT], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[V, VT], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[K, V, VT], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def join(
        self,
        other: KStream[K, VO] | KTable[K, VT] | GlobalKTable[Any, VT],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[Any] | None = None,
        store: JoinStores = None,
        grace: Duration | None = None,
    ) -> KStream[K, Any]:
        """Joins with the records of another stream, or looks each record's key up in a table.

        ``joiner(value, other value)``, with the key first where ``with_key``. ``name`` names the steps and the repartition
        topics; ``key``, ``value``, ``other_value`` are the serdes of what is kept or repartitioned. The topics of both sides
        need equal partition counts.

        A **stream** needs ``windows``: all pairs of records of one key whose timestamps lie that near are joined, each with
        the later timestamp. ``store``: a name for the stores to begin with; a :class:`Store` that also says whether they are
        in memory and logged; or two stores of kind ``window`` that retain duplicates.

        With a **global table**, ``on(key, value)`` says under which key of the table the record's row is; the rest is as
        with a table, but that nothing is repartitioned and the stream keeps its key.

        With a **table**, a record without a match, without a key or without a value is dropped. A result has the timestamp
        of the stream's record. ``grace``: the table must keep versions; a record then waits that long, in stream time,
        and is joined with the row that the table had at its time.
        """
        options = _Options(
            operator="join",
            kind="inner",
            joiner=joiner,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
            on=on,
            grace=grace,
        )
        return self._join(other, windows, options)

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[V, VT | None], V2],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VT],
        joiner: Callable[[K, V, VT | None], V2],
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[V, VT | None], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, VT],
        joiner: Callable[[K, V, VT | None], V2],
        *,
        on: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def left_join(
        self,
        other: KStream[K, VO] | KTable[K, VT] | GlobalKTable[Any, VT],
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[Any] | None = None,
        store: JoinStores = None,
        grace: Duration | None = None,
    ) -> KStream[K, Any]:
        """As :meth:`join`, but a record of this stream without a match is joined with None.

        With a stream that is known, and the result flows, when the record's window and the grace period are over in stream
        time. A record without a key is joined with None at once.
        """
        options = _Options(
            operator="left_join",
            kind="left",
            joiner=joiner,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
            on=on,
            grace=grace,
        )
        return self._join(other, windows, options)

    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V | None, VO | None], V2],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, V2]: ...
    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., Any],
        windows: JoinWindows,
        *,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: JoinStores = None,
    ) -> KStream[K, Any]:
        """As :meth:`left_join` with a stream, for both sides: a record of either stream without a match is a result."""
        options = _Options(
            operator="outer_join",
            kind="outer",
            joiner=joiner,
            with_key=with_key,
            name=name,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
        )
        return self._join(other, windows, options)

    # --------------------------------------------------------------------------------------------------------- steps

    if TYPE_CHECKING:

        def _repartition_for_join(self, prefix: str, key: Carried, value: Carried) -> RepartitionStep: ...

    def _join(self, other: object, windows: JoinWindows | None, options: _Options) -> KStream[K, Any]:
        from topology.dsl.streams import KStream
        from topology.dsl.tables import KTable

        operator = options.operator
        if not isinstance(other, KStream | KTable | GlobalKTable):
            raise UnsupportedError(
                f"{operator}() joins a stream with a KStream, a KTable or a GlobalKTable, not with {other!r}",
                call_site(),
            )
        if other._plan is not self._plan:
            raise TopologyError(f"{operator}() needs both sides from one StreamsBuilder", call_site())
        check_function(options.joiner, operator, of_joined(options.with_key))
        if options.name is not None:
            check_name(options.name, "step")
        if isinstance(other, GlobalKTable):
            return self._join_global(other, windows, options)
        if options.on is not None:
            raise TopologyError(f"{operator}() takes on= with a global table only: it joins by key", call_site())
        if isinstance(other, KStream):
            if not isinstance(windows, JoinWindows):
                raise TopologyError(f"{operator}() of two streams needs windows=JoinWindows(...)", call_site())
            return self._join_stream(other, windows, options)
        self._check_table(other, windows, options)
        return self._join_table(other, options)

    def _check_table(self, table: KTable[K, Any], windows: JoinWindows | None, options: _Options) -> None:
        operator = options.operator
        if options.kind == "outer":
            raise UnsupportedError("outer_join() joins a stream with a stream; a table is looked up only", call_site())
        if options.grace is not None and not table._table.is_versioned():
            raise UnsupportedError(
                f"{operator}() with grace= needs a table that keeps versions: give it store=Store(..., kind='versioned', "
                "retention=...)",
                call_site(),
            )
        if windows is not None or options.other_value is not None or options.store is not None:
            raise TopologyError(
                f"{operator}() with a table takes no windows, other_value or store: it looks the newest row up",
                call_site(),
            )

    def _join_table(self, table: KTable[K, Any], options: _Options) -> KStream[K, Any]:
        from topology.dsl.streams import KStream

        operator, name, left = options.operator, options.name, options.kind == "left"
        own_key, own_value = self._key.or_given(options.key), self._value.or_given(options.value)
        check_keys(operator, own_key.serde, table._key.serde)
        parent, sources = self._step, self._sources
        if self._repartition_required:
            through = self._repartition_for_join(name or self._step.name, own_key, own_value)
            through.keeps_null_keys |= left
            parent, sources = through, frozenset((through.name,))
        sources |= table._sources
        self._plan.copartitioned.append((sources, call_site()))
        node = self._plan.named(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
        step = OperatorStep(
            name=node,
            site=call_site(),
            parents=(parent,),
            operation=StreamTableJoin(
                table=table._table.name, joiner=options.joiner, left=left, with_key=options.with_key
            ),
            stores=table._table.materialize(),
        )
        if options.grace is not None:
            self._wait(step, table, options, own_key, own_value)
        self._plan.add(step)
        return KStream(self._plan, step, own_key, own_value.changed(operator, step.site, keep=False), sources, False)

    def _wait(self, step: OperatorStep, table: KTable[K, Any], options: _Options, key: Carried, value: Carried) -> None:
        """Makes a join one that lets its records wait."""
        assert options.grace is not None
        grace_ms = to_ms(options.grace, "the grace period")
        if grace_ms < 0:
            raise WindowError(f"a grace period must not be negative, it is {grace_ms} ms", call_site())
        buffer = f"{step.name}-Buffer"
        step.operation = StreamTableGraceJoin(
            table=table._table.name,
            joiner=options.joiner,
            buffer=buffer,
            grace_ms=grace_ms,
            left=options.kind == "left",
            with_key=options.with_key,
        )
        spec = store_spec(Store(buffer, caching=False, timestamped=False, in_memory=False), buffer, bytes_, bytes_)
        step.own_stores = (PlannedStore(spec, Carried(bytes_), Carried(bytes_)),)
        step.stores = (*step.stores, buffer)
        step.serdes = {"key": key, "value": value}

    def _join_global(
        self, table: GlobalKTable[Any, Any], windows: JoinWindows | None, options: _Options
    ) -> KStream[K, Any]:
        from topology.dsl.streams import KStream

        operator = options.operator
        if options.kind == "outer" or windows is not None or options.store is not None:
            raise UnsupportedError(
                f"{operator}() with a global table only looks rows up: see join and left_join", call_site()
            )
        if options.on is None:
            raise TopologyError(
                f"{operator}() with a global table needs on=: (key, value) -> key of the table", call_site()
            )
        check_function(options.on, operator, OF_RECORD)
        step = OperatorStep(
            name=self._plan.named(options.name, "KSTREAM-LEFTJOIN-"),
            site=call_site(),
            parents=(self._step,),
            operation=StreamGlobalTableJoin(
                store=table.queryable_store_name,
                on=options.on,
                joiner=options.joiner,
                left=options.kind == "left",
                with_key=options.with_key,
            ),
        )
        self._plan.add(step)
        value = self._value.changed(operator, step.site, keep=False)
        return KStream(self._plan, step, self._key, value, self._sources, self._repartition_required)

    def _join_stream(self, other: KStream[K, Any], windows: JoinWindows, options: _Options) -> KStream[K, Any]:
        from topology.dsl.streams import KStream

        plan, name, kind, site = self._plan, options.name, options.kind, call_site()
        key = self._key.or_given(options.key)
        values = (self._value.or_given(options.value), other._value.or_given(options.other_value))
        check_keys(options.operator, key.serde, other._key.serde)
        left, left_sources = self._side(name, "left", kind, key, values[0])
        right, right_sources = other._side(name, "right", kind, key, values[1])
        plan.copartitioned.append((left_sources | right_sources, site))
        windowed = [plan.suffixed(name, f"-{side}-windowed", "KSTREAM-WINDOWED-") for side in ("this", "other")]
        generated = (
            plan.number("KSTREAM-OUTERTHIS-" if kind == "outer" else "KSTREAM-JOINTHIS-"),
            plan.number("KSTREAM-JOINOTHER-" if kind == "inner" else "KSTREAM-OUTEROTHER-"),
        )
        merge = plan.suffixed(name, "-merge", "KSTREAM-MERGE-")
        stores = stream_join_stores(kind, options.store, windows, generated, key, values)
        steps = [
            self._window_step(step_name, parent, store)
            for step_name, parent, store in zip(windowed, (left, right), (stores.left, stores.right), strict=True)
        ]
        shared = () if stores.shared is None else (stores.shared.name,)

        def side(this: Literal["left", "right"]) -> StreamStreamJoin:
            is_left = this == "left"
            return StreamStreamJoin(
                store=stores.right.name if is_left else stores.left.name,
                joiner=options.joiner,
                side=this,
                time=merge,
                before_ms=windows.before_ms if is_left else windows.after_ms,
                after_ms=windows.after_ms if is_left else windows.before_ms,
                grace_ms=windows.grace_ms,
                emits_unmatched=kind == "outer" or (kind == "left" and is_left),
                shared=None if stores.shared is None else stores.shared.name,
                with_key=options.with_key,
            )

        step = StreamJoinStep(
            name=merge,
            site=site,
            parents=(steps[0], steps[1]),
            this_name=generated[0] if name is None else name + side_suffix(kind, "this"),
            other_name=generated[1] if name is None else name + side_suffix(kind, "other"),
            this_operation=side("left"),
            other_operation=side("right"),
            merge_operation=PassThrough(),
            this_stores=(stores.right.name, *shared),
            other_stores=(stores.left.name, *shared),
            own_stores=() if stores.shared is None else (stores.shared,),
        )
        plan.add(step)
        sources = left_sources | right_sources
        joined: KStream[K, Any] = KStream(
            plan, step, key, values[0].changed(options.operator, site, keep=False), sources, False
        )
        joined._late = {
            side: LateSource((window,), key, carried, sources)
            for side, window, carried in zip(("left", "right"), steps, values, strict=True)
        }
        return joined

    def _side(
        self, name: str | None, side: str, kind: JoinKind, key: Carried, value: Carried
    ) -> tuple[Step, frozenset[str]]:
        """The step that this stream is joined behind, and the sources above it."""
        if not self._repartition_required:
            return self._step, self._sources
        prefix = self._step.name if name is None else f"{name}-{side}"
        through = self._repartition_for_join(prefix, key, value)
        through.keeps_null_keys |= kind != "inner"
        return through, frozenset((through.name,))

    def _window_step(self, name: str, parent: Step, store: PlannedStore) -> OperatorStep:
        step = OperatorStep(
            name=name,
            site=call_site(),
            parents=(parent,),
            operation=StreamJoinWindow(store=store.name),
            stores=(store.name,),
            own_stores=(store,),
        )
        self._plan.add(step)
        return step
