"""Joins of streams: with another stream, within windows, and with a table.

1. A stream whose key may have changed goes through a repartition topic first; then both sides' topics need equal partition
   counts.
2. Steps, stores and repartition topics are named as in Kafka Streams, and take their numbers in its order.

Source: KStreamImpl and KStreamImplJoin of Kafka Streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.build.join_stores import JoinStores, side_suffix, stream_join_stores
from topology.build.materialize import store_spec
from topology.build.plan import LateSource, OperatorStep, Plan, PlannedSerde, PlannedStore, Step, StreamJoinStep
from topology.build.planned import PlannedGlobalTable, PlannedStream, PlannedTable
from topology.graph.operations import (
    Function,
    PassThrough,
    StreamGlobalTableJoin,
    StreamJoinWindow,
    StreamStreamJoin,
    StreamTableGraceJoin,
    StreamTableJoin,
)
from topology.graph.operations.joins import JoinKind
from topology.spec.codecs import AnySerde, bytes_, check_keys
from topology.spec.errors import TopologyError, UnsupportedError, WindowError, call_site
from topology.spec.functions import OF_RECORD, check_function, of_joined
from topology.spec.join_windows import JoinWindows
from topology.spec.names import check_name
from topology.spec.stores import Store
from topology.spec.windows import Duration, to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin:
    """What the arguments of a join say. ``operator``: the name of the method."""

    operator: str
    kind: JoinKind
    joiner: Function
    with_key: bool
    name: str | None
    key: AnySerde
    value: AnySerde
    other_value: AnySerde = None
    store: JoinStores = None
    on: Function | None = None
    grace: Duration | None = None


def join(stream: PlannedStream, other: object, windows: JoinWindows | None, options: StreamJoin) -> PlannedStream:
    """The join with another stream, a table or a global table. Raises UnsupportedError for anything else."""
    operator = options.operator
    if not isinstance(other, PlannedStream | PlannedTable | PlannedGlobalTable):
        raise UnsupportedError(
            f"{operator}() joins a stream with a KStream, a KTable or a GlobalKTable, not with {other!r}",
            call_site(),
        )
    if other.plan is not stream.plan:
        raise TopologyError(f"{operator}() needs both sides from one StreamsBuilder", call_site())
    check_function(options.joiner, operator, of_joined(options.with_key))
    if options.name is not None:
        check_name(options.name, "step")
    if isinstance(other, PlannedGlobalTable):
        return _join_global(stream, other, windows, options)
    if options.on is not None:
        raise TopologyError(f"{operator}() takes on= with a global table only: it joins by key", call_site())
    if isinstance(other, PlannedStream):
        if not isinstance(windows, JoinWindows):
            raise TopologyError(f"{operator}() of two streams needs windows=JoinWindows(...)", call_site())
        if options.grace is not None:
            raise TopologyError(
                f"{operator}() of two streams takes no grace=: it is given with the windows, JoinWindows(..., grace=...)",
                call_site(),
            )
        return _join_stream(stream, other, windows, options)
    _check_table(other, windows, options)
    return _join_table(stream, other, options)


def _check_table(table: PlannedTable, windows: JoinWindows | None, options: StreamJoin) -> None:
    operator = options.operator
    if options.kind == "outer":
        raise UnsupportedError("outer_join() joins a stream with a stream; a table is only looked up", call_site())
    if options.grace is not None and not table.table.is_versioned():
        raise UnsupportedError(
            f"{operator}() with grace= needs a table that keeps versions: give it store=Store(..., kind='versioned', "
            "retention=...)",
            call_site(),
        )
    if windows is not None or options.other_value is not None or options.store is not None:
        raise TopologyError(
            f"{operator}() with a table takes no windows, other_value or store: it looks up the newest row",
            call_site(),
        )


def _join_table(stream: PlannedStream, table: PlannedTable, options: StreamJoin) -> PlannedStream:
    operator, name, left = options.operator, options.name, options.kind == "left"
    own_key, own_value = stream.key.or_given(options.key), stream.value.or_given(options.value)
    check_keys(operator, own_key.serde, table.key.serde)
    parent, sources = stream.step, stream.sources
    if stream.repartition_required:
        through = stream.repartitioned_for_join(name or stream.step.name, own_key, own_value)
        parent, sources = through, frozenset((through.name,))
    sources |= table.sources
    stream.plan.copartitioned.append((sources, call_site()))
    node = stream.plan.named(name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    step = OperatorStep(
        name=node,
        site=call_site(),
        parents=(parent,),
        operation=StreamTableJoin(table=table.table.name, joiner=options.joiner, left=left, with_key=options.with_key),
        stores=table.table.materialize(),
    )
    if options.grace is not None:
        _wait(step, table, options, own_key, own_value)
    stream.plan.add(step)
    return PlannedStream(stream.plan, step, own_key, own_value.changed(operator, step.site, keep=False), sources)


def _wait(step: OperatorStep, table: PlannedTable, options: StreamJoin, key: PlannedSerde, value: PlannedSerde) -> None:
    """Makes a join one that lets its records wait."""
    assert options.grace is not None
    grace_ms = to_ms(options.grace, "the grace period")
    if grace_ms < 0:
        raise WindowError(f"a grace period must not be negative, it is {grace_ms} ms", call_site())
    buffer = f"{step.name}-Buffer"
    step.operation = StreamTableGraceJoin(
        table=table.table.name,
        joiner=options.joiner,
        buffer=buffer,
        grace_ms=grace_ms,
        left=options.kind == "left",
        with_key=options.with_key,
    )
    spec = store_spec(Store(buffer, caching=False, timestamped=False, in_memory=False), buffer, bytes_, bytes_)
    step.own_stores = (PlannedStore(spec, PlannedSerde(bytes_), PlannedSerde(bytes_)),)
    step.stores = (buffer, *step.stores)
    step.serdes = {"key": key, "value": value}


def _join_global(
    stream: PlannedStream, table: PlannedGlobalTable, windows: JoinWindows | None, options: StreamJoin
) -> PlannedStream:
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
    serdes_and_grace = (options.key, options.value, options.other_value, options.grace)
    if any(given is not None for given in serdes_and_grace):
        raise TopologyError(
            f"{operator}() with a global table takes no key, value, other_value or grace: it looks up the newest row, and "
            "stores and repartitions nothing",
            call_site(),
        )
    step = OperatorStep(
        name=stream.plan.named(options.name, "KSTREAM-LEFTJOIN-"),
        site=call_site(),
        parents=(stream.step,),
        operation=StreamGlobalTableJoin(
            store=table.store,
            on=options.on,
            joiner=options.joiner,
            left=options.kind == "left",
            with_key=options.with_key,
        ),
    )
    stream.plan.add(step)
    value = stream.value.changed(operator, step.site, keep=False)
    return PlannedStream(stream.plan, step, stream.key, value, stream.sources, stream.repartition_required)


def _join_stream(
    stream: PlannedStream, other: PlannedStream, windows: JoinWindows, options: StreamJoin
) -> PlannedStream:
    plan, name, kind, site = stream.plan, options.name, options.kind, call_site()
    key = stream.key.or_given(options.key)
    values = (stream.value.or_given(options.value), other.value.or_given(options.other_value))
    check_keys(options.operator, key.serde, other.key.serde)
    left, left_sources = join_side(stream, name, "left", key, values[0])
    right, right_sources = join_side(other, name, "right", key, values[1])
    plan.copartitioned.append((left_sources | right_sources, site))
    windowed = [plan.suffixed(name, f"-{side}-windowed", "KSTREAM-WINDOWED-") for side in ("this", "other")]
    generated = (
        plan.number("KSTREAM-OUTERTHIS-" if kind == "outer" else "KSTREAM-JOINTHIS-"),
        plan.number("KSTREAM-JOINOTHER-" if kind == "inner" else "KSTREAM-OUTEROTHER-"),
    )
    merge = plan.suffixed(name, "-merge", "KSTREAM-MERGE-")
    stores = stream_join_stores(kind, options.store, windows, generated, key, values)
    steps = [
        _window_step(plan, step_name, parent, store)
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
    joined = PlannedStream(plan, step, key, values[0].changed(options.operator, site, keep=False), sources, False)
    joined.late = {
        side: LateSource((window,), key, value, sources)
        for side, window, value in zip(("left", "right"), steps, values, strict=True)
    }
    return joined


def join_side(
    stream: PlannedStream, name: str | None, side: str, key: PlannedSerde, value: PlannedSerde
) -> tuple[Step, frozenset[str]]:
    """The step that this stream is joined behind, and the sources above it."""
    if not stream.repartition_required:
        return stream.step, stream.sources
    prefix = stream.step.name if name is None else f"{name}-{side}"
    through = stream.repartitioned_for_join(prefix, key, value)
    return through, frozenset((through.name,))


def _window_step(plan: Plan, name: str, parent: Step, store: PlannedStore) -> OperatorStep:
    step = OperatorStep(
        name=name,
        site=call_site(),
        parents=(parent,),
        operation=StreamJoinWindow(store=store.name),
        stores=(store.name,),
        own_stores=(store,),
    )
    plan.add(step)
    return step
