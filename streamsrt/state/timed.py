"""Stores whose operations are timed (``metrics.recording.level`` DEBUG and up).

A :class:`Timed` object wraps a store, or its interface for user code, and times the calls of the given methods;
everything else is passed on. Without it nothing is timed, and there is no check whether to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from streamsrt.sensors import WINDOW_NS, Spread

S = TypeVar("S")

BYTE_STORE: Final[Mapping[str, str]] = {
    "get": "get",
    "write": "put-all",
    "write_rows": "put-all",
    "write_windows": "put-all",
    "restore": "restore",
    "restore_stamped": "restore",
    "range": "range",
    "prefix": "prefix-scan",
    "fetch": "fetch",
    "fetch_all": "all",
    "rows_of": "fetch",
    "all_rows": "all",
    "sessions": "fetch",
    "all_sessions": "all",
    "expire": "remove",
}
"""The methods of byte stores that caches call, with Kafka's names for the metrics."""

USER_STORE: Final[Mapping[str, str]] = {
    "get": "get",
    "put": "put",
    "put_if_absent": "put-if-absent",
    "put_all": "put-all",
    "delete": "delete",
    "remove": "remove",
    "range": "range",
    "reverse_range": "range",
    "all": "all",
    "reverse_all": "all",
    "prefix_scan": "prefix-scan",
    "fetch": "fetch",
    "fetch_range": "fetch",
    "backward_fetch_range": "fetch",
    "fetch_keys": "fetch",
    "fetch_session": "fetch",
    "find_sessions": "fetch",
    "fetch_all": "all",
    "versions": "fetch",
}
"""The methods of stores that user code calls."""


class StoreMeter:
    """Of one store of one task. Times in nanoseconds."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.clock_ns = clock_ns
        self.by_caches: dict[str, Spread] = {}
        self.by_users: dict[str, Spread] = {}
        self.iterators = Spread(WINDOW_NS)
        """The durations for which iterators were in use."""
        self.hit_ratios = Spread(WINDOW_NS)
        """Of the record cache, in millionths, each time that somebody asks."""
        self.asked = (0, 0)
        """Accesses to the cache, and of these look-ups in the store, when somebody asked last."""

    @property
    def operations(self) -> Mapping[str, Spread]:
        """What user code does counts where it does something: what its cache does is a part of that."""
        return {**self.by_caches, **self.by_users}

    def before(self, store: Any) -> Any:
        """Stands before a byte store."""
        return Timed(store, BYTE_STORE, self.by_caches, self)

    def before_access(self, store: Any) -> Any:
        """Stands before what user code sees of the store."""
        return Timed(store, USER_STORE, self.by_users, self)

    def flushing(self, flush: Callable[[S], None]) -> Callable[[S], None]:
        """What empties the record cache of the store, timed."""
        return _timed(flush, self.by_caches.setdefault("flush", Spread(WINDOW_NS)), self)

    @property
    def loads(self) -> int:
        """The number of reads from the store by the cache."""
        return sum(self.by_caches[name].count for name in ("get", "fetch") if name in self.by_caches)

    @property
    def user_accesses(self) -> int:
        return sum(each.count for each in self.by_users.values())

    def hit_ratio(self, accesses: int, now_ns: int) -> None:
        """``accesses``: how often nodes have asked the cache, all in all. Called when somebody wants to know."""
        before, loads_before = self.asked
        loads = self.loads
        self.asked = (accesses, loads)
        if accesses > before:
            missed = min(1.0, (loads - loads_before) / (accesses - before))
            self.hit_ratios.one(now_ns, round((1.0 - missed) * 1e6))


class Timed:
    """Stands before ``store``; ``methods``: which are timed, and as what."""

    def __init__(self, store: Any, methods: Mapping[str, str], spreads: dict[str, Spread], meter: StoreMeter) -> None:
        self._store = store
        for method, operation in methods.items():
            call = getattr(store, method, None)
            if call is not None:
                spread = spreads.setdefault(operation, Spread(WINDOW_NS))
                setattr(self, method, _timed(call, spread, meter))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _timed(call: Callable[..., Any], spread: Spread, meter: StoreMeter) -> Callable[..., Any]:
    clock_ns, iterators = meter.clock_ns, meter.iterators

    def run(*arguments: object, **named: object) -> Any:
        began_ns = clock_ns()
        result = call(*arguments, **named)
        ended_ns = clock_ns()
        spread.one(ended_ns, ended_ns - began_ns)
        if isinstance(result, Iterator):
            return _timed_rows(result, began_ns, iterators, clock_ns)
        return result

    return run


def _timed_rows(
    rows: Iterator[object], began_ns: int, iterators: Spread, clock_ns: Callable[[], int]
) -> Iterator[object]:
    try:
        yield from rows
    finally:
        ended_ns = clock_ns()
        iterators.one(ended_ns, ended_ns - began_ns)
