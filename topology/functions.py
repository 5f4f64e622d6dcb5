"""The functions that a program gives to operators: their types, and the mistakes that show at once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypeVar

from topology.errors import TopologyError, UnsupportedError, call_site
from topology.processor import RecordContext

K = TypeVar("K")
V = TypeVar("V")

Predicate: TypeAlias = Callable[[K, V], object]
"""``(key, value)`` -> anything; truth counts."""

Partitioner: TypeAlias = Callable[[str, K, V, int], int | Collection[int] | None]
"""``(topic, key, value, partitions)`` -> partition, None for the default one, or a list or set: the record goes to each."""

TopicExtractor: TypeAlias = Callable[[K, V, RecordContext], str]
"""``(key, value, context)`` -> topic."""

TimestampExtractor: TypeAlias = Callable[[Any, int], int]
"""``(record, partition_time_ms)`` -> epoch milliseconds; negative drops the record.

The record has ``topic, partition, offset, timestamp, key, value, headers`` and ``system_time_ms``, the time on the wall;
``partition_time_ms`` is the highest timestamp of the partition so far, -1 before the first.
"""

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"] | timedelta
"""Where to begin without a committed offset; ``none``: that is an error. A timedelta: that long before now."""

_CO_COROUTINE = 0x80
_CO_ASYNC_GENERATOR = 0x200


def check_function(function: object, operator: str) -> None:
    """Raises TopologyError where ``function`` can't be called, UnsupportedError where it is ``async``."""
    if not callable(function):
        raise TopologyError(f"{operator}() takes a function, not {function!r}", call_site())
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & (_CO_COROUTINE | _CO_ASYNC_GENERATOR):
        name = getattr(function, "__qualname__", repr(function))
        raise UnsupportedError(f"{operator}() calls {name} for its result at once: it can't be async", call_site())


def reset_policy(reset: OffsetReset | None) -> str | None:
    """The policy as a source node has it. Raises TopologyError for anything else."""
    if isinstance(reset, timedelta):
        if reset < timedelta():
            raise TopologyError(f"offset_reset must not be negative: {reset}", call_site())
        return f"by_duration:{reset // timedelta(milliseconds=1)}"
    if reset is not None and reset not in ("earliest", "latest", "none"):
        raise TopologyError(f"offset_reset is earliest, latest, none or a timedelta, not {reset!r}", call_site())
    return reset
