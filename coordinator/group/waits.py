"""Waits by the machine's clock, which may be set back.

Then a wait that has begun would last by as much longer: for an hour, nobody would get the tasks of a member that is gone. So
a wait that would take longer than it may is over.
"""

from __future__ import annotations


def goes_on(until_ms: int, now_ms: int, *, at_most_ms: int) -> bool:
    """Whether a wait of at most ``at_most_ms`` goes on."""
    return 0 < until_ms - now_ms <= at_most_ms
