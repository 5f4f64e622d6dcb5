"""Windows over event time. Durations are milliseconds or :class:`datetime.timedelta`; times are epoch milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from topology.errors import WindowError, call_site

K = TypeVar("K")

Duration: TypeAlias = timedelta | int

DEFAULT_RETENTION_MARGIN_MS = 24 * 60 * 60 * 1000
MIN_SEGMENT_INTERVAL_MS = 60_000


def to_ms(duration: Duration, what: str) -> int:
    """The duration in whole milliseconds. Raises WindowError where it is neither an int nor a timedelta."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if isinstance(duration, bool) or not isinstance(duration, int):
        raise WindowError(f"{what} must be a timedelta or an int of milliseconds, not {duration!r}", call_site())
    return duration


class Windowed(NamedTuple, Generic[K]):
    """A key and its window: the key of a windowed table. ``end_ms`` is exclusive for time windows.

    Source: org.apache.kafka.streams.kstream.Windowed.
    """

    key: K
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, init=False)
class TimeWindows:
    """Windows of ``size``, one starting every ``advance`` from the epoch on.

    ``advance`` None: the size (tumbling windows); smaller: hopping windows that overlap. A record is late for a window,
    and dropped, once stream time has reached the window's end plus ``grace``. Raises WindowError unless
    0 < advance <= size and grace >= 0. Source: org.apache.kafka.streams.kstream.TimeWindows.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __init__(self, size: Duration, advance: Duration | None = None, grace: Duration = 0) -> None:
        size_ms = to_ms(size, "the window size")
        advance_ms = size_ms if advance is None else to_ms(advance, "the window advance")
        grace_ms = to_ms(grace, "the grace period")
        if size_ms <= 0:
            raise WindowError(f"a window size must be above 0 ms, not {size_ms}", call_site())
        if not 0 < advance_ms <= size_ms:
            raise WindowError(
                f"windows of {size_ms} ms can't advance by {advance_ms} ms: give 0 < advance <= size", call_site()
            )
        if grace_ms < 0:
            raise WindowError(f"a grace period must not be negative, it is {grace_ms} ms", call_site())
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "advance_ms", advance_ms)
        object.__setattr__(self, "grace_ms", grace_ms)


Windows: TypeAlias = TimeWindows
