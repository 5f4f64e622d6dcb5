"""Joins of a stream with the latest record of another one: as of the time of each record.

1. Both sides are read through a repartition topic where their key may have changed, and need equal partition counts.
2. The right side's records are kept in a window store, for as long as a left record may need them. Left records that wait
   for the grace period are kept in a store of their own; without grace there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from topology.build.materialize import as_store, refuse_another_kind, refuse_options, store_spec, windowed_spec
from topology.build.plan import LateSource, OperatorStep, Plan, PlannedSerde, PlannedStore, Step
from topology.build.planned import PlannedStream, checked_step_name
from topology.dsl.stream_joins import join_side
from topology.graph.operations import AsofJoin, AsofKeep, Function, PassThrough
from topology.spec.codecs import AnySerde, bytes_, check_keys
from topology.spec.errors import TopologyError, UnsupportedError, WindowError, call_site
from topology.spec.functions import check_function, of_joined
from topology.spec.stores import Store
from topology.spec.windows import Duration, to_ms

How = Literal["inner", "left"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAsofJoin:
    """What the arguments of ``join_asof`` say."""

    joiner: Function
    within: Duration
    how: How
    grace: Duration
    keep: Duration | None
    with_key: bool
    name: str | None
    key: AnySerde
    value: AnySerde
    other_value: AnySerde
    store: str | Store | None


def join_asof(stream: PlannedStream, other: object, join: StreamAsofJoin) -> PlannedStream:
    """The stream joined with the latest records of another one. Raises UnsupportedError where ``other`` is none."""
    if not isinstance(other, PlannedStream):
        raise UnsupportedError(f"join_asof() joins a stream with a KStream, not with {other!r}", call_site())
    if other.plan is not stream.plan:
        raise TopologyError("join_asof() needs both sides from one StreamsBuilder", call_site())
    check_function(join.joiner, "join_asof", of_joined(join.with_key))
    if join.how not in ("inner", "left"):
        raise TopologyError(f"join_asof(how={join.how!r}): give 'inner' or 'left'", call_site())
    within_ms, keep_ms, grace_ms = _times(join.within, join.grace, join.keep)
    operation = AsofJoin(
        store="",
        joiner=join.joiner,
        time="",
        within_ms=within_ms,
        keep_ms=keep_ms,
        grace_ms=grace_ms,
        left=join.how == "left",
        with_key=join.with_key,
    )
    keys = stream.key.or_given(join.key)
    values = (stream.value.or_given(join.value), other.value.or_given(join.other_value))
    given = checked_step_name(join.name)
    check_keys("join_asof", keys.serde, other.key.serde)
    left, left_sources = join_side(stream, given, "left", keys, values[0])
    right, right_sources = join_side(other, given, "right", keys, values[1])
    sources = left_sources | right_sources
    stream.plan.copartitioned.append((sources, call_site()))
    step, lates = _steps(stream.plan, given, (left, right), operation, as_store(join.store), (keys, *values))
    joined = PlannedStream(stream.plan, step, keys, values[0].changed("join_asof", step.site, keep=False), sources)
    joined.late = {
        side: LateSource((late,), keys, value, sources)
        for side, late, value in zip(("left", "right"), lates, values, strict=True)
    }
    return joined


def _times(within: Duration, grace: Duration, keep: Duration | None) -> tuple[int, int, int]:
    """How old a match may be, how long matches are kept, how long a record waits for one."""
    within_ms, grace_ms = to_ms(within, "within"), to_ms(grace, "the grace period")
    keep_ms = 2 * within_ms + grace_ms if keep is None else to_ms(keep, "keep")
    if within_ms < 0 or grace_ms < 0:
        raise WindowError(
            f"join_asof(within={within_ms} ms, grace={grace_ms} ms): both must not be negative", call_site()
        )
    if keep_ms < within_ms + grace_ms:
        raise WindowError(
            f"join_asof(keep={keep_ms} ms) is too short: records that are still needed would be gone. Keep them for "
            f"at least within + grace = {within_ms + grace_ms} ms",
            call_site(),
        )
    return within_ms, keep_ms, grace_ms


def _steps(
    plan: Plan,
    name: str | None,
    parents: tuple[Step, Step],
    operation: AsofJoin,
    base: Store,
    serdes: tuple[PlannedSerde, PlannedSerde, PlannedSerde],
) -> tuple[OperatorStep, tuple[Step, Step]]:
    """The steps of a join: the one behind which its results are, and those of the two sides."""
    if base.key is not None or base.value is not None:
        raise TopologyError("the serdes of a join are given with key=, value= and other_value=", call_site())
    if base.version > 1 and operation.grace_ms:
        raise UnsupportedError(
            "the stores of a join that waits hold values of both sides: they have no version=", call_site()
        )
    site, (key, value, other_value) = call_site(), serdes
    keeps = plan.suffixed(name, "-asof-right", "KSTREAM-ASOFRIGHT-")
    joins = plan.suffixed(name, "-asof-left", "KSTREAM-ASOFLEFT-")
    prefix = base.name or name or joins
    refuse_another_kind(base, prefix, "window")
    refuse_options(
        base,
        prefix,
        "the join keeps records for keep=",
        *("retention", "window_size", "segment_interval", "max_entries"),
    )
    own = replace(
        store_spec(base, f"{prefix}-asof-store", key.serde, other_value.serde),
        timestamped=False,
        caching=False,
        retain_duplicates=True,
    )
    # A record exactly keep_ms old is still needed.
    kept = PlannedStore(windowed_spec(own, operation.keep_ms + 1, max(1, operation.within_ms)), key, other_value)
    waiting: tuple[PlannedStore, ...] = ()
    if operation.grace_ms:
        waits = store_spec(base, f"{prefix}-asof-waiting-store", bytes_, bytes_)
        waiting = (
            PlannedStore(replace(waits, timestamped=False, caching=False), PlannedSerde(bytes_), PlannedSerde(bytes_)),
        )
    stores = (kept.name, *(store.name for store in waiting))
    right = OperatorStep(
        name=keeps,
        site=site,
        parents=(parents[1],),
        operation=AsofKeep(store=kept.name, join=joins),
        stores=stores,
        own_stores=(kept,),
    )
    left = OperatorStep(
        name=joins,
        site=site,
        parents=(parents[0],),
        operation=replace(operation, store=kept.name, time=joins, waiting=waiting[0].name if waiting else None),
        stores=stores,
        own_stores=waiting,
        serdes={"key": key, "value": value},
    )
    plan.add(right)
    plan.add(left)
    if not waiting:
        return left, (left, right)
    merge = OperatorStep(
        name=plan.suffixed(name, "-merge", "KSTREAM-MERGE-"), site=site, parents=(left, right), operation=PassThrough()
    )
    plan.add(merge)
    return merge, (left, right)
