"""Joins of a stream with what a function looks up elsewhere: a SQL database, a service.

1. The function is asked for many keys at once, and each answer is remembered for a time, that there is none too. What is
   remembered is no state: a task that starts anew asks again.
2. A record that is read again after a crash is joined with what is there by then. Who needs the answer of the first time
   brings the table into a topic and joins with that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from topology.graph.operations.batches import JoinLookup, MapAsync
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import OF_JOINER, OF_RECORD, check_arguments, check_function
from topology.spec.windows import Duration, to_ms

if TYPE_CHECKING:
    from topology.dsl.streams import KStream

K = TypeVar("K")
V = TypeVar("V")
V2 = TypeVar("V2")
K3 = TypeVar("K3")
V3 = TypeVar("V3")


class LookupJoins(Generic[K, V]):
    """The lookup join of a :class:`topology.KStream`."""

    __slots__ = ()

    @overload
    def join_lookup(
        self,
        lookup: Callable[[list[K3]], Mapping[K3, V3] | Awaitable[Mapping[K3, V3]]],
        joiner: Callable[[V, V3], V2],
        *,
        on: Callable[[K, V], K3 | None],
        how: Literal["inner"] = "inner",
        ttl: Duration = 60_000,
        max_entries: int = 10_000,
        batch: int = 500,
        concurrency: int = 4,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def join_lookup(
        self,
        lookup: Callable[[list[K3]], Mapping[K3, V3] | Awaitable[Mapping[K3, V3]]],
        joiner: Callable[[V, V3 | None], V2],
        *,
        on: Callable[[K, V], K3 | None],
        how: Literal["left"],
        ttl: Duration = 60_000,
        max_entries: int = 10_000,
        batch: int = 500,
        concurrency: int = 4,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def join_lookup(
        self,
        lookup: Callable[..., Any],
        joiner: Callable[..., Any],
        *,
        on: Callable[[K, V], Any],
        how: Literal["inner", "left"] = "inner",
        ttl: Duration = 60_000,
        max_entries: int = 10_000,
        batch: int = 500,
        concurrency: int = 4,
        timeout: Duration | None = None,
        retries: int = 0,
        backoff: Duration = 100,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Joins each record with what ``lookup`` knows of the key that ``on(key, value)`` returns.

        ``lookup(keys)`` is given a list of at most ``batch`` different keys and returns a mapping with those that it found;
        it may be ``async``. The result is ``joiner(value, found)``, under the record's key, in the order of the records.
        ``how="left"``: where nothing is found, or ``on`` returned None, ``joiner(value, None)``; else such records, and
        records without a value always, are dropped.

        Each task remembers ``max_entries`` answers, those of keys that are not there too, for ``ttl`` of the wall clock (0:
        none). For an async lookup: ``concurrency`` calls at a time, and ``timeout``, ``retries`` and ``backoff`` as of
        :meth:`map_async`. What a call raises is the failure of each record that waits for it: the processing exception
        handler decides. Durations: timedelta or int milliseconds. Raises TopologyError for numbers that make no sense.
        """
        is_async = iscoroutinefunction(lookup) or iscoroutinefunction(type(lookup).__call__)
        if is_async:
            check_arguments(lookup, "join_lookup", "keys")
        else:
            check_function(lookup, "join_lookup", "keys")
        check_function(joiner, "join_lookup", OF_JOINER)
        check_function(on, "join_lookup", OF_RECORD)
        if how not in ("inner", "left"):
            raise TopologyError(f"join_lookup(how={how!r}): give 'inner' or 'left'", call_site())
        ttl_ms, backoff_ms = to_ms(ttl, "ttl"), to_ms(backoff, "backoff")
        timeout_ms = None if timeout is None else to_ms(timeout, "timeout")
        if min(batch, concurrency, max_entries, 1 if timeout_ms is None else timeout_ms) < 1:
            raise TopologyError(
                "join_lookup(): batch, concurrency, max_entries and timeout are at least 1", call_site()
            )
        if min(ttl_ms, retries, backoff_ms) < 0:
            raise TopologyError("join_lookup(): ttl, retries and backoff are at least 0", call_site())
        if not is_async and (timeout_ms is not None or retries):
            raise TopologyError("join_lookup(): timeout and retries are for an async lookup", call_site())
        calls = MapAsync(
            fn=lookup, concurrency=concurrency, timeout_ms=timeout_ms, retries=retries, backoff_ms=backoff_ms
        )
        operation = JoinLookup(
            lookup=lookup,
            calls=calls if is_async else None,
            joiner=joiner,
            on=on,
            left=how == "left",
            ttl_ms=ttl_ms,
            max_entries=max_entries,
            batch=batch,
        )
        stream = cast("KStream[K, V]", self)
        step = stream._operator("join_lookup", "KSTREAM-JOINLOOKUP-", name, None, operation)
        return stream._next(step, stream._key, stream._value.changed("join_lookup", step.site, keep=False))
