"""Operators over batches: they process the records of one fetch together, in order.

1. Each runs in its task, and nothing is committed before all records that were read are processed.
2. Batch boundaries are not defined: the result for a record must not depend on the other records of its batch.
"""

from __future__ import annotations

import builtins
import inspect
from typing import get_origin

from topology.build.planned import NO_FUNCTION, PlannedStream
from topology.graph.operations import Function, MapAsync, MapBatches
from topology.graph.operations.batches import Frame
from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import check_arguments, of_values
from topology.spec.windows import Duration, to_ms


def map_batches(
    stream: PlannedStream, fn: Function, frame: Frame, name: str | None, *, unpack: bool, keeps_keys: bool
) -> PlannedStream:
    """The stream behind a function of tables or frames."""
    if frame not in ("arrow", "pandas"):
        raise TopologyError(f"map_batches(frame={frame!r}): give 'arrow' or 'pandas'", call_site())
    operation = MapBatches(fn=fn, frame=frame, unpack=unpack)
    step = stream.add("map_batches", "KSTREAM-MAPBATCHES-", name, fn, operation)
    key = stream.key if keeps_keys else stream.key.changed("map_batches", step.site)
    return stream.behind(step, key, stream.value.changed("map_batches", step.site), rekeyed=not keeps_keys)


def map_async(
    stream: PlannedStream,
    fn: Function,
    *,
    concurrency: int,
    ordered: bool,
    timeout: Duration | None,
    retries: int,
    backoff: Duration,
    with_key: bool,
    name: str | None,
) -> PlannedStream:
    """The stream with what an async function makes of each value."""
    if not callable(fn) or _returns_none_awaitable(fn):
        raise TopologyError(
            f"map_async() takes an async function, or another one that returns an awaitable, not {fn!r}", call_site()
        )
    check_arguments(fn, "map_async", of_values(with_key))
    timeout_ms = None if timeout is None else to_ms(timeout, "timeout")
    backoff_ms = to_ms(backoff, "backoff")
    if concurrency < 1 or retries < 0 or backoff_ms < 0 or (timeout_ms is not None and timeout_ms < 1):
        raise TopologyError(
            f"map_async(concurrency={concurrency}, retries={retries}, timeout={timeout}, backoff={backoff}): "
            "concurrency and timeout are at least 1, retries and backoff at least 0",
            call_site(),
        )
    operation = MapAsync(
        fn=fn,
        concurrency=concurrency,
        ordered=ordered,
        timeout_ms=timeout_ms,
        retries=retries,
        backoff_ms=backoff_ms,
        with_key=with_key,
    )
    step = stream.add("map_async", "KSTREAM-MAPASYNC-", name, NO_FUNCTION, operation)
    return stream.behind(step, stream.key, stream.value.changed("map_async", step.site))


def _returns_none_awaitable(fn: Function) -> bool:
    """Whether it is certain that nothing can be awaited of a call. Of most functions without ``async`` it is not."""
    called = getattr(fn, "func", fn)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        return True
    if inspect.iscoroutinefunction(called):
        return False
    return _is_plain(called if isinstance(called, type) else inspect.get_annotations(called).get("return"))


def _is_plain(result: object) -> bool:
    """Whether results of that type are never awaitable. Classes of others may have subclasses that are."""
    if isinstance(result, str):
        result = getattr(builtins, result.partition("[")[0], None)
    kind = get_origin(result) or result
    return (
        isinstance(kind, type)
        and kind.__module__ == "builtins"
        and kind is not object
        and not hasattr(kind, "__await__")
    )
