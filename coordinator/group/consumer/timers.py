"""The timers of consumer groups.

1. ``session``: the member is silent. ``rebalance``: it does not give partitions back. Both remove it.
2. A classic member has two more: ``join`` from when it is told to join again until it does, ``sync`` from then until it
   fetches its assignment. It has no ``rebalance``.
"""

from __future__ import annotations

from coordinator.machine.values import CancelTimer, TimerKey

SESSION = "session"
REBALANCE = "rebalance"
JOIN = "consumer-join"
SYNC = "consumer-sync"


def session_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(SESSION, group_id, member_id)


def rebalance_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(REBALANCE, group_id, member_id)


def join_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(JOIN, group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> TimerKey:
    return TimerKey(SYNC, group_id, member_id)


def all_cancelled(group_id: str, member_id: str) -> list[CancelTimer]:
    return [CancelTimer(TimerKey(kind, group_id, member_id)) for kind in (SESSION, REBALANCE, JOIN, SYNC)]
