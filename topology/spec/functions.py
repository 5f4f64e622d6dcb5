"""User functions of operators: their types, and checks when the topology is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from datetime import timedelta
from types import FunctionType, MethodType
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from topology.spec.errors import TopologyError, UnsupportedError, call_site
from topology.spec.processor import PunctuationType, RecordContext
from topology.spec.windows import Duration, to_ms

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


class FailedValue(NamedTuple, Generic[V]):
    """A value whose function raised an exception, and that exception."""

    value: V
    error: Exception


_CO_COROUTINE = 0x80
_CO_ASYNC_GENERATOR = 0x200


OF_VALUE = "value"
OF_RECORD = "key, value"
OF_REDUCER = "aggregate, value"
OF_AGGREGATOR = "key, value, aggregate"
OF_MERGER = "key, aggregate, other aggregate"
OF_JOINER = "value, other value"
OF_PARTITIONER = "topic, key, value, partitions"
OF_TOPIC = "key, value, context"
NOTHING = ""
"""What functions are called with: names of arguments, with commas."""


def of_values(with_key: bool) -> str:
    """What a function of values is called with."""
    return OF_RECORD if with_key else OF_VALUE


def of_joined(with_key: bool) -> str:
    """What a joiner is called with."""
    return f"key, {OF_JOINER}" if with_key else OF_JOINER


def check_function(function: object, operator: str, arguments: str) -> None:
    """Raises TopologyError where ``function`` can't be called with ``arguments``, UnsupportedError where it is ``async``.

    Only functions in Python tell what they take; what is written in C, or is an object with a call, is not judged.
    """
    if not callable(function):
        raise TopologyError(f"{operator}() takes a function, not {function!r}", call_site())
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & (_CO_COROUTINE | _CO_ASYNC_GENERATOR):
        name = getattr(function, "__qualname__", repr(function))
        raise UnsupportedError(f"{operator}() calls {name} for its result at once: it can't be async", call_site())
    check_arguments(function, operator, arguments)


def check_arguments(function: Callable[..., Any], operator: str, arguments: str) -> None:
    """Raises TopologyError where ``function``, async or not, can't be called with ``arguments``."""
    if not isinstance(function, (FunctionType, MethodType)) or hasattr(function, "__signature__"):
        return
    signature = inspect.signature(function, follow_wrapped=False)
    count = len(arguments.split(", ")) if arguments else 0
    try:
        signature.bind(*(None,) * count)
    except TypeError:
        name = getattr(function, "__qualname__", repr(function))
        raise TopologyError(
            f"{operator}() calls a function with ({arguments}), but {name} takes {signature}", call_site()
        ) from None


def reset_policy(reset: OffsetReset | None) -> str | None:
    """The policy as a source node has it. Raises TopologyError for anything else."""
    if isinstance(reset, timedelta):
        if reset < timedelta():
            raise TopologyError(f"offset_reset must not be negative: {reset}", call_site())
        return f"by_duration:{reset // timedelta(milliseconds=1)}"
    if reset is not None and reset not in ("earliest", "latest", "none"):
        raise TopologyError(f"offset_reset is earliest, latest, none or a timedelta, not {reset!r}", call_site())
    return reset


def check_schedule(interval: Duration, punctuation_type: object, callback: object, where: str) -> int:
    """The interval in milliseconds. Raises TopologyError with the line that schedules, where an argument is wrong."""
    interval_ms = to_ms(interval, f"{where}: the punctuation interval")
    if interval_ms < 1:
        raise TopologyError(f"{where}: a punctuation interval is at least 1 ms, not {interval_ms}", call_site())
    if not isinstance(punctuation_type, PunctuationType):
        choices = " or ".join(map(str, PunctuationType))
        raise TopologyError(f"{where}: schedule() takes {choices}, not {punctuation_type!r}", call_site())
    check_function(callback, f"{where}: schedule", "timestamp")
    return interval_ms
