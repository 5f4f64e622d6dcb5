"""The functions that a program gives to operators: their types, and the mistakes that show at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from topology.errors import TopologyError, UnsupportedError, call_site
from topology.processor import RecordContext

K = TypeVar("K")
V = TypeVar("V")

Predicate: TypeAlias = Callable[[K, V], object]
"""``(key, value)`` -> anything; truth counts."""

Partitioner: TypeAlias = Callable[[str, K, V, int], int | None]
"""``(topic, key, value, partitions)`` -> partition, or None for the default one."""

TopicExtractor: TypeAlias = Callable[[K, V, RecordContext], str]
"""``(key, value, context)`` -> topic."""

TimestampExtractor: TypeAlias = Callable[[Any, int], int]
"""``(record, partition_time_ms)`` -> epoch milliseconds; negative drops the record.

The record has ``topic, partition, offset, timestamp, key, value, headers``; ``partition_time_ms`` is the highest timestamp
of the partition so far, -1 before the first.
"""

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
