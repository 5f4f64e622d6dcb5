"""Timestamp extractors by name.

A source's ``timestamp_extractor`` and the setting ``default.timestamp.extractor`` take one of these names, or a
function ``(record, partition_time_ms) -> epoch milliseconds``.

==========================  =============================================================================================
``fail_on_invalid``         the record's timestamp; the task fails if it is negative (the default)
``log_and_skip``            the record's timestamp; a record whose timestamp is negative is dropped and counted
``use_partition_time``      the record's timestamp; if it is negative, the latest one of its partition
``wallclock``               the time at which the record is read
==========================  =============================================================================================

Source: FailOnInvalidTimestamp, LogAndSkipOnInvalidTimestamp, UsePartitionTimeOnInvalidTimestamp and
WallclockTimestampExtractor of Kafka Streams, whose class names are known here too.
"""

from __future__ import annotations

from typing import Protocol, SupportsIndex

from topology.spec.errors import TopologyError, call_site
from topology.spec.functions import TimestampExtractor, check_function
from topology.spec.windows import END_OF_TIME_MS


def is_whole_ms(value: object, least_ms: int = -END_OF_TIME_MS) -> bool:
    """Whether it is a whole number of milliseconds, not a float, from ``least_ms`` to the last time that there is."""
    if type(value) is not int:
        if not isinstance(value, SupportsIndex):
            return False
        value = value.__index__()
    return least_ms <= value <= END_OF_TIME_MS


class _Stamped(Protocol):
    """What is looked at of a record."""

    @property
    def timestamp(self) -> int: ...

    @property
    def system_time_ms(self) -> int: ...


def fail_on_invalid(record: _Stamped, partition_time_ms: int) -> int:
    """The record's timestamp. Raises ValueError where it is negative."""
    timestamp: int = record.timestamp
    if timestamp < 0:
        raise ValueError(f"the record has no timestamp ({timestamp}): its producer is too old, or has set it to -1")
    return timestamp


def log_and_skip(record: _Stamped, partition_time_ms: int) -> int:
    """The record's timestamp; negative: the record is dropped."""
    timestamp: int = record.timestamp
    return timestamp


def use_partition_time(record: _Stamped, partition_time_ms: int) -> int:
    """The record's timestamp, or where it is negative that of the partition. Raises ValueError where there is none yet."""
    timestamp: int = record.timestamp
    if timestamp >= 0:
        return timestamp
    if partition_time_ms < 0:
        raise ValueError("the first record of the partition has no timestamp, so there is no partition time to use")
    return partition_time_ms


def wallclock(record: _Stamped, partition_time_ms: int) -> int:
    """The time of the wall clock."""
    now_ms: int = record.system_time_ms
    return now_ms


EXTRACTORS: dict[str, TimestampExtractor] = {
    "fail_on_invalid": fail_on_invalid,
    "log_and_skip": log_and_skip,
    "use_partition_time": use_partition_time,
    "wallclock": wallclock,
    "FailOnInvalidTimestamp": fail_on_invalid,
    "LogAndSkipOnInvalidTimestamp": log_and_skip,
    "UsePartitionTimeOnInvalidTimestamp": use_partition_time,
    "WallclockTimestampExtractor": wallclock,
}


def timestamp_extractor(setting: TimestampExtractor | str | None) -> TimestampExtractor | None:
    """The extractor of that name, or the function itself. Raises TopologyError for anything else."""
    if isinstance(setting, str):
        found = EXTRACTORS.get(setting.rpartition(".")[2])
        if found is None:
            known = ", ".join(list(EXTRACTORS)[:4])
            raise TopologyError(
                f"there is no timestamp extractor {setting!r}: use one of {known}, or a function", call_site()
            )
        return found
    if setting is not None:
        check_function(setting, "timestamp_extractor", "record, partition_time_ms")
    return setting
