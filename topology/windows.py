"""Windows over event time. Durations are milliseconds or :class:`datetime.timedelta`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows:
    """Windows of ``size_ms``, one starting every ``advance_ms`` from the epoch on; late after ``grace_ms``."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0


Windows = TimeWindows
