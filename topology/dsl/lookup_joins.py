"""Joins of a stream with lookups in other systems: a SQL database, a service.

1. The function gets many keys at once. Each answer is cached for a time, including that a key is missing. The cache is
   not state: a restarted task asks again.
2. A record that is read again after a crash is joined with the answer at that time. For repeatable results, load the
   table into a topic and join with that.
"""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Literal

from topology.build.planned import NO_FUNCTION, PlannedStream
from topology.graph.operations import Function, JoinLookup, MapAsync
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import OF_JOINER, OF_RECORD, check_arguments, check_function
from topology.spec.windows import Duration, to_ms


def join_lookup(
    stream: PlannedStream,
    lookup: Function,
    joiner: Function,
    on: Function,
    *,
    how: Literal["inner", "left"],
    ttl: Duration,
    max_entries: int,
    batch: int,
    concurrency: int,
    timeout: Duration | None,
    retries: int,
    backoff: Duration,
    name: str | None,
) -> PlannedStream:
    """The stream joined with what a function knows of each record. Raises TopologyError for numbers that make no sense."""
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
        raise TopologyError("join_lookup(): batch, concurrency, max_entries and timeout are at least 1", call_site())
    if min(ttl_ms, retries, backoff_ms) < 0:
        raise TopologyError("join_lookup(): ttl, retries and backoff are at least 0", call_site())
    if not is_async and (timeout_ms is not None or retries):
        raise TopologyError("join_lookup(): timeout and retries are for an async lookup", call_site())
    calls = MapAsync(fn=lookup, concurrency=concurrency, timeout_ms=timeout_ms, retries=retries, backoff_ms=backoff_ms)
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
    step = stream.add("join_lookup", "KSTREAM-JOINLOOKUP-", name, NO_FUNCTION, operation)
    return stream.behind(step, stream.key, stream.value.changed("join_lookup", step.site, keep=False))
