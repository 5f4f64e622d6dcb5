"""How far apart two joined records may be. Durations are milliseconds or :class:`datetime.timedelta`."""

from __future__ import annotations

from dataclasses import dataclass

from topology.spec.errors import WindowError, call_site
from topology.spec.windows import Duration, to_ms


@dataclass(frozen=True, slots=True, init=False)
class JoinWindows:
    """Joins records of the other stream from ``before`` a record's timestamp to ``after`` it, inclusive.

    ``before`` and ``after`` are relative to the left stream; ``after`` None: the same as ``before``. One of them may be
    negative, down to minus the other. ``grace``: how much longer records are kept for out-of-order records, and how much
    longer a record without a match waits. A record that is more than ``after`` behind stream time when it arrives does
    not wait. Raises WindowError. Source: org.apache.kafka.streams.kstream.JoinWindows.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    def __init__(self, before: Duration, after: Duration | None = None, *, grace: Duration = 0) -> None:
        before_ms = to_ms(before, "before")
        after_ms = before_ms if after is None else to_ms(after, "after")
        grace_ms = to_ms(grace, "the grace period")
        if before_ms + after_ms < 0:
            raise WindowError(f"a window from {-before_ms} ms to {after_ms} ms ends before it begins", call_site())
        if grace_ms < 0:
            raise WindowError(f"a grace period must not be negative, it is {grace_ms} ms", call_site())
        object.__setattr__(self, "before_ms", before_ms)
        object.__setattr__(self, "after_ms", after_ms)
        object.__setattr__(self, "grace_ms", grace_ms)

    @property
    def size_ms(self) -> int:
        """From the earliest to the latest record that can be joined, in milliseconds."""
        return self.before_ms + self.after_ms

    @property
    def retention_ms(self) -> int:
        """How long records are kept, in milliseconds."""
        return self.size_ms + self.grace_ms
