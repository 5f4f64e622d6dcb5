"""Windows over event time. Durations are milliseconds or :class:`datetime.timedelta`; times are epoch milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from topology.spec.errors import WindowError, call_site

K = TypeVar("K")

Duration: TypeAlias = timedelta | int

Time: TypeAlias = datetime | int
"""A moment: a datetime with a time zone, or epoch milliseconds."""

DEFAULT_RETENTION_MARGIN_MS = 24 * 60 * 60 * 1000
MIN_SEGMENT_INTERVAL_MS = 60_000
END_OF_TIME_MS = 2**63 - 1
_EPOCH = datetime.fromtimestamp(0, UTC)


def to_ms(duration: Duration, what: str) -> int:
    """The duration in whole milliseconds. Raises WindowError where it is neither an int nor a timedelta."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if isinstance(duration, bool) or not isinstance(duration, int):
        raise WindowError(f"{what} must be a timedelta or an int of milliseconds, not {duration!r}", call_site())
    return duration


def to_epoch_ms(time: Time, what: str) -> int:
    """The moment in epoch milliseconds. Raises WindowError where it is before the epoch, or is no moment."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise WindowError(f"{what} needs a time zone, such as datetime(..., tzinfo=UTC): {time!r}", call_site())
        time = (time - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(time, bool) or not isinstance(time, int):
        raise WindowError(f"{what} must be a datetime or an int of epoch milliseconds, not {time!r}", call_site())
    if time < 0:
        raise WindowError(f"{what} is before 1970-01-01, the earliest possible: {time} ms", call_site())
    return time


def to_idle_timeout_ms(idle_timeout: Duration | None) -> int | None:
    """The idle timeout in milliseconds. Raises WindowError where it is below 1 ms."""
    if idle_timeout is None:
        return None
    idle_timeout_ms = to_ms(idle_timeout, "idle_timeout")
    if idle_timeout_ms < 1:
        raise WindowError(f"an idle_timeout is at least 1 ms, not {idle_timeout_ms}", call_site())
    return idle_timeout_ms


class Windowed(NamedTuple, Generic[K]):
    """A key and its window: the key of a windowed table. ``end_ms`` is exclusive for time windows, inclusive for others.

    Source: org.apache.kafka.streams.kstream.Windowed.
    """

    key: K
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, init=False)
class TimeWindows:
    """Windows of ``size``, one starting every ``advance`` since the epoch.

    ``advance`` None: the size (tumbling windows); smaller: overlapping hopping windows. A record is late for a window,
    and dropped, when stream time has reached the window's end plus ``grace``. Raises WindowError unless
    0 < advance <= size and grace >= 0. Source: org.apache.kafka.streams.kstream.TimeWindows.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __init__(self, size: Duration, advance: Duration | None = None, grace: Duration = 0) -> None:
        size_ms = to_ms(size, "the window size")
        advance_ms = size_ms if advance is None else to_ms(advance, "the window advance")
        grace_ms = _grace_ms(grace)
        if size_ms <= 0:
            raise WindowError(f"a window size must be greater than 0 ms, not {size_ms}", call_site())
        if not 0 < advance_ms <= size_ms:
            raise WindowError(
                f"windows of {size_ms} ms can't advance by {advance_ms} ms: give 0 < advance <= size", call_site()
            )
        object.__setattr__(self, "size_ms", size_ms)
        object.__setattr__(self, "advance_ms", advance_ms)
        object.__setattr__(self, "grace_ms", grace_ms)

    @property
    def retention_ms(self) -> int:
        """Minimum time for which the windows must be kept, in milliseconds."""
        return self.size_ms + self.grace_ms


@dataclass(frozen=True, slots=True, init=False)
class UnlimitedWindows:
    """One window that starts at ``start`` (epoch milliseconds) and never ends; older records are in no window.

    Raises WindowError if ``start`` is negative. Source: org.apache.kafka.streams.kstream.UnlimitedWindows.
    """

    start_ms: int

    def __init__(self, start: int = 0) -> None:
        if isinstance(start, bool) or not isinstance(start, int) or start < 0:
            raise WindowError(f"an unlimited window starts at epoch millisecond 0 or later, not {start!r}", call_site())
        object.__setattr__(self, "start_ms", start)

    @property
    def size_ms(self) -> int:
        return END_OF_TIME_MS - self.start_ms

    @property
    def grace_ms(self) -> int:
        return 0

    @property
    def retention_ms(self) -> int:
        return END_OF_TIME_MS


@dataclass(frozen=True, slots=True, init=False)
class SlidingWindows:
    """A window for each set of records of a key that are within ``difference`` of each other, inclusive.

    A window ends at a record's timestamp, or starts just after one. It is closed when stream time has passed its end
    plus ``grace``. Raises WindowError unless difference > 0 and grace >= 0. Source:
    org.apache.kafka.streams.kstream.SlidingWindows.
    """

    difference_ms: int
    grace_ms: int

    def __init__(self, difference: Duration, grace: Duration = 0) -> None:
        difference_ms = to_ms(difference, "the time difference")
        if difference_ms <= 0:
            raise WindowError(
                f"the time difference of sliding windows must be greater than 0 ms, not {difference_ms}", call_site()
            )
        object.__setattr__(self, "difference_ms", difference_ms)
        object.__setattr__(self, "grace_ms", _grace_ms(grace))

    @property
    def size_ms(self) -> int:
        return self.difference_ms

    @property
    def retention_ms(self) -> int:
        return 2 * self.difference_ms + self.grace_ms


@dataclass(frozen=True, slots=True, init=False)
class SessionWindows:
    """Sessions of a key: records that follow each other within ``gap``, inclusive.

    A record may start a session, extend one, or merge several. A session is closed, and later records for it are late,
    when stream time has passed its end plus gap plus ``grace``. Raises WindowError unless gap > 0 and grace >= 0.
    Source: org.apache.kafka.streams.kstream.SessionWindows.
    """

    gap_ms: int
    grace_ms: int

    def __init__(self, gap: Duration, grace: Duration = 0) -> None:
        gap_ms = to_ms(gap, "the gap")
        if gap_ms <= 0:
            raise WindowError(f"the gap between sessions must be greater than 0 ms, not {gap_ms}", call_site())
        object.__setattr__(self, "gap_ms", gap_ms)
        object.__setattr__(self, "grace_ms", _grace_ms(grace))

    @property
    def retention_ms(self) -> int:
        return self.gap_ms + self.grace_ms


def _grace_ms(grace: Duration) -> int:
    grace_ms = to_ms(grace, "the grace period")
    if grace_ms < 0:
        raise WindowError(f"a grace period must not be negative, it is {grace_ms} ms", call_site())
    return grace_ms


class EmitStrategy(Enum):
    """When a windowed aggregation forwards results. Source: org.apache.kafka.streams.kstream.EmitStrategy."""

    ON_WINDOW_UPDATE = "on_window_update"
    """Each time a window changes (with a cache: at commits)."""
    ON_WINDOW_CLOSE = "on_window_close"
    """Once, when the window is closed: its end plus grace has passed."""


Windows: TypeAlias = TimeWindows | UnlimitedWindows
AnyWindows: TypeAlias = TimeWindows | UnlimitedWindows | SlidingWindows | SessionWindows
