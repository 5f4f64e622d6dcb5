"""Joins of a stream with the latest record of another one: as of the time of each record.

1. Both sides are read through a repartition topic where their key may have changed, and need equal partition counts.
2. The right side's records are kept in a window store, for as long as a left record may need them. Left records that wait
   for the grace period are kept in a store of their own; without grace there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from topology.build.materialize import as_store, store_spec, windowed_spec
from topology.build.plan import Carried, LateSource, OperatorStep, Plan, PlannedStore
from topology.graph.operations import PassThrough
from topology.graph.operations.joins import AsofJoin, AsofKeep
from topology.spec.codecs import Serde, bytes_, check_keys
from topology.spec.errors import TopologyError, UnsupportedError, WindowError, call_site
from topology.spec.functions import check_function, of_joined
from topology.spec.names import check_name
from topology.spec.stores import Store
from topology.spec.windows import Duration, to_ms

if TYPE_CHECKING:
    from topology.build.plan import Step
    from topology.dsl.streams import KStream
    from topology.graph.operations.joins import JoinKind

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
VO = TypeVar("VO")

How = Literal["inner", "left"]


class AsofJoins(Generic[K, V]):
    """The as-of join of a :class:`topology.KStream`."""

    __slots__ = ()

    _key: Carried
    _plan: Plan
    _value: Carried

    if TYPE_CHECKING:

        def _side(
            self, name: str | None, side: str, kind: JoinKind, key: Carried, value: Carried
        ) -> tuple[Step, frozenset[str]]: ...

    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], V2],
        within: Duration,
        *,
        how: Literal["inner"] = "inner",
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], V2],
        within: Duration,
        *,
        how: Literal["left"],
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[False] = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO], V2],
        within: Duration,
        *,
        how: Literal["inner"] = "inner",
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[[K, V, VO | None], V2],
        within: Duration,
        *,
        how: Literal["left"],
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: Literal[True],
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, V2]: ...
    def join_asof(
        self,
        other: KStream[K, VO],
        joiner: Callable[..., Any],
        within: Duration,
        *,
        how: How = "inner",
        grace: Duration = 0,
        keep: Duration | None = None,
        with_key: bool = False,
        name: str | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | Store | None = None,
    ) -> KStream[K, Any]:
        """Joins each record with the latest one of ``other`` with its key, at or before its own time, ``within`` at most.

        ``joiner(value, other value)``, with the key first where ``with_key``. ``how`` "inner": a record without a match is
        dropped; "left": it is joined with None. A result has the timestamp and the headers of this stream's record; of
        several records of ``other`` with one time the last that came counts.

        ``grace``: a record waits until stream time (of both streams together) is that far beyond it, so that records of
        ``other`` which come late are found; 0: it is joined when it comes. What comes later than that does not change a
        result that is there. ``keep``: how long records of ``other`` are kept, of stream time; None: twice ``within``, plus
        ``grace``. A record of this stream that is out of order finds what was valid at its time, as long as it comes no
        later than ``keep - within`` behind stream time; a later one, and a record of ``other`` older than ``keep``, is
        dropped as late (:meth:`topology.KStream.late`).

        ``store``: a name for the stores to begin with, or a :class:`Store` that also says whether they are in memory and
        logged. Durations are timedelta or int milliseconds. Raises WindowError, TopologyError. Source: pandas' merge_asof.
        """
        from topology.dsl.streams import KStream

        if not isinstance(other, KStream):
            raise UnsupportedError(f"join_asof() joins a stream with a KStream, not with {other!r}", call_site())
        if other._plan is not self._plan:
            raise TopologyError("join_asof() needs both sides from one StreamsBuilder", call_site())
        check_function(joiner, "join_asof", of_joined(with_key))
        if how not in ("inner", "left"):
            raise TopologyError(f"join_asof(how={how!r}): give 'inner' or 'left'", call_site())
        within_ms, keep_ms, grace_ms = _times(within, grace, keep)
        operation = AsofJoin(
            store="",
            joiner=joiner,
            time="",
            within_ms=within_ms,
            keep_ms=keep_ms,
            grace_ms=grace_ms,
            left=how == "left",
            with_key=with_key,
        )
        keys = self._key.or_given(key)
        values = (self._value.or_given(value), other._value.or_given(other_value))
        given = None if name is None else check_name(name, "step")
        check_keys("join_asof", keys.serde, other._key.serde)
        left, left_sources = self._side(given, "left", how, keys, values[0])
        right, right_sources = other._side(given, "right", how, keys, values[1])
        sources = left_sources | right_sources
        self._plan.copartitioned.append((sources, call_site()))
        step, lates = _steps(self._plan, given, (left, right), operation, as_store(store), (keys, *values))
        joined: KStream[K, Any] = KStream(
            self._plan, step, keys, values[0].changed("join_asof", step.site, keep=False), sources, False
        )
        joined._late = {
            side: LateSource((late,), keys, carried, sources)
            for side, late, carried in zip(("left", "right"), lates, values, strict=True)
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
            f"within + grace = {within_ms + grace_ms} ms at least",
            call_site(),
        )
    return within_ms, keep_ms, grace_ms


def _steps(
    plan: Plan,
    name: str | None,
    parents: tuple[Step, Step],
    operation: AsofJoin,
    base: Store,
    carried: tuple[Carried, Carried, Carried],
) -> tuple[OperatorStep, tuple[Step, Step]]:
    """The steps of a join: the one behind which its results are, and those of the two sides."""
    if base.key is not None or base.value is not None:
        raise TopologyError("the serdes of a join are given with key=, value= and other_value=", call_site())
    site, (key, value, other_value) = call_site(), carried
    keeps = plan.suffixed(name, "-asof-right", "KSTREAM-ASOFRIGHT-")
    joins = plan.suffixed(name, "-asof-left", "KSTREAM-ASOFLEFT-")
    prefix = base.name or name or joins
    own = replace(
        store_spec(base, f"{prefix}-asof-store", key.serde, other_value.serde),
        timestamped=False,
        caching=False,
        retain_duplicates=True,
    )
    # What lies exactly keep_ms back is needed still.
    kept = PlannedStore(windowed_spec(own, operation.keep_ms + 1, max(1, operation.within_ms)), key, other_value)
    waiting: tuple[PlannedStore, ...] = ()
    if operation.grace_ms:
        waits = store_spec(base, f"{prefix}-asof-waiting-store", bytes_, bytes_)
        waiting = (PlannedStore(replace(waits, timestamped=False, caching=False), Carried(bytes_), Carried(bytes_)),)
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
